"""Importing transcripts: every sample with all its calls, and how fast the commonest format is."""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.counts import Counted, count
from bench.figure import Figure, in_turns, rate_figure, seconds
from bench.made_sessions import sessions

DATA = Path(os.environ.get("EM_BENCH_DATA", "../shared/data"))
TRANSCRIPTS = DATA / "transcripts"
SESSIONS, TURNS = 8, 12
AT_LEAST = 0.2
MOST_MEMORY = 200


def samples() -> Iterator[Figure]:
    """Every sample, and sessions of five more formats, beside an independent count."""
    files = sorted(path for path in TRANSCRIPTS.glob("*/*") if path.is_file())
    if not files:
        print(f"no data in {TRANSCRIPTS}: set EM_BENCH_DATA; only made sessions are counted")
    named = [(path.parent.name, path.name, path.read_text()) for path in files]
    named += [(kind, f"made {number}", text) for number, (kind, text) in enumerate(sessions())]
    ours, theirs, broken = Counter[str](), Counter[str](), 0
    for kind, name, text in named:
        found, problems = imported(text)
        expected = count(kind, text)
        broken += bool(problems)
        differs = "" if found == expected else f"  DIFFERS from {expected}"
        what = f"{found.calls:>4} calls, {found.failures:>3} failed{differs}"
        print(f"    {kind + '/' + name:<58} {what}")
        for field in ("calls", "failures"):
            theirs[field] += getattr(expected, field)
            # A file that differs must not be made up for by another one.
            same = getattr(found, field) == getattr(expected, field)
            ours[field] += getattr(expected, field) if same else 0
        theirs["outcomes"] += 1
        ours["outcomes"] += found.outcomes == expected.outcomes
        theirs["files"] += 1
        ours["files"] += found == expected
    yield _share("files without a broken line", len(named) - broken, "all files", len(named))
    for field, total in theirs.items():
        yield _share(f"{field} as counted", ours[field], "an independent count", total)


def imported(text: str) -> tuple[Counted, Sequence[Any]]:
    """Import a file into a log of its own, and count what the log has."""
    from em import Memory

    with tempfile.TemporaryDirectory() as folder, Memory(":memory:") as memory:
        path = Path(folder, "transcript")
        path.write_text(text)
        (read,) = memory.import_files(path)
        traces = [kept.trace for kept in memory.traces()]
    calls = [call for trace in traces for call in trace.calls]
    outcomes = Counter[str](trace.outcome for trace in traces if trace.outcome != "unknown")
    failures = sum(call.error is not None for call in calls)
    return Counted(len(calls), failures, dict(outcomes)), read.problems


def _share(what: str, ours: int, beside: str, theirs: int) -> Figure:
    return Figure(what, ours, beside, theirs, "", ours / theirs, 1.0, True)


def rate() -> Iterator[Figure]:
    """Whole sessions into a log on disk, beside only decoding their lines."""
    from em import Memory

    sources = [path.read_text() for path in sorted(TRANSCRIPTS.glob("claude_code/*-*-*.jsonl"))]
    if not sources:
        print(f"no data in {TRANSCRIPTS}: set EM_BENCH_DATA; this bench is passed over")
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = _sessions(Path(folder), sources)
        lines = [line for path in paths for line in path.read_bytes().splitlines() if line.strip()]
        numbers = iter(range(10_000))

        def ours() -> float:
            with Memory(Path(folder, f"{next(numbers)}.db")) as memory:
                return seconds(lambda: memory.import_files(paths))

        def theirs() -> float:
            return seconds(lambda: [json.loads(line) for line in lines])

        sides = in_turns(ours, theirs, rounds=7)
        megabytes = sum(map(len, lines)) / 1e6
        print(f"    {len(lines):,} lines, {megabytes:.1f} MB, {len(paths)} sessions")
        yield rate_figure(
            "lines of Claude Code imported", "json.loads of them", len(lines), sides, AT_LEAST
        )


def _sessions(folder: Path, sources: list[str], first: int = 0) -> list[Path]:
    """The real sessions as long ones: their turns again and again, under ids of their own."""
    paths = []
    for number in range(first, first + SESSIONS):
        text = sources[number % len(sources)]
        session = json.loads(text.splitlines()[0])["sessionId"]
        text = text.replace(session, f"{session[:-4]}{number:04}")
        path = folder / f"{number}.jsonl"
        path.write_text("".join(text.replace("toolu_", f"toolu_{n}_") for n in range(TURNS)))
        paths.append(path)
    return paths


_IMPORT = """
import json, re, sys, time
from em import Memory
import em.traces.transcripts

def most():  # since the program was started; getrusage also counts what its parent had
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024

before = most()
start = time.process_time()
with Memory(sys.argv[2]) as memory:
    read = memory.import_files(sys.argv[1])
spent = time.process_time() - start
print(json.dumps([spent, most(), before, sum(one.calls for one in read)]))
"""
_DECODE = """
import json, os, sys, time
start = time.process_time()
for name in os.listdir(sys.argv[1]):
    with open(os.path.join(sys.argv[1], name), "rb") as file:
        for line in file:
            json.loads(line)
print(json.dumps([time.process_time() - start]))
"""


def large() -> Iterator[Figure]:
    """A folder of Claude Code sessions: 100 MB, or EM_BENCH_MB. 1000 is what the bar means.

    They are the real ones again and again, under other ids; without data, made ones.
    """
    megabytes = int(os.environ.get("EM_BENCH_MB", "100"))
    sources = [path.read_text() for path in sorted(TRANSCRIPTS.glob("claude_code/*-*-*.jsonl"))]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "sessions")
        folder.mkdir()
        calls = (
            _repeat_sessions(folder, sources, megabytes)
            if sources
            else _write_sessions(folder, megabytes)
        )
        spent, most, before, found = _child(_IMPORT, str(folder), str(Path(place, "em.db")))
        (decoding,) = _child(_DECODE, str(folder))
    print(
        f"    {megabytes} MB in {spent:.0f} s; memory {before:.0f} MB before, {most:.0f} MB at most"
    )
    yield _share("calls imported", int(found), "calls written", calls)
    yield Figure(
        "memory at most", most, "200 MB", MOST_MEMORY, "MB", most / MOST_MEMORY, 1.0, False
    )
    yield rate_figure(
        "megabytes imported", "json.loads", megabytes, (spent, decoding, spent / decoding), AT_LEAST
    )


def _child(code: str, *args: str) -> list[float]:
    done = subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True
    )
    found: list[float] = json.loads(done.stdout)
    return found


def _repeat_sessions(folder: Path, sources: list[str], megabytes: int) -> int:
    """Write the real sessions until there are enough bytes; return how many calls they have."""
    calls = written = number = 0
    while written < megabytes * 1_000_000:
        for path in _sessions(folder, sources, number):
            written += path.stat().st_size
        calls += sum(
            TURNS * count("claude_code", sources[n % len(sources)]).calls for n in range(SESSIONS)
        )
        number += SESSIONS
    return calls


def _write_sessions(folder: Path, megabytes: int) -> int:
    """Write sessions of about 5 MB each; return how many calls they have."""
    draw = random.Random(16)
    lines = [
        f'    if kind_{n} == "{n}":  # as in "{n:x}"\n        return {n}\n' for n in range(2_000)
    ]
    calls = 0
    for number in range(max(1, megabytes // 5)):
        with (folder / f"{number}.jsonl").open("w") as file:
            written = turn = 0
            while written < 5_000_000:
                text = "".join(draw.choices(lines, k=draw.choice([2, 10, 40, 150])))
                written += file.write("".join(_turn(f"s{number}", turn, text)))
                calls, turn = calls + 1, turn + 1
    return calls


def _turn(session: str, turn: int, text: str) -> Iterator[str]:
    call_id = f"toolu_{session}_{turn}"
    command = f"cat src/file_{turn}.py"
    call = {"type": "tool_use", "id": call_id, "name": "Bash",
            "input": {"command": command, "description": "Read a file"}}  # fmt: skip
    result = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": False}
    for number, (role, content) in enumerate((
        ("user", f"step {turn}"), ("assistant", [call]), ("user", [result]),
        ("assistant", [{"type": "text", "text": text[:300]}]),
    )):  # fmt: skip
        message: dict[str, Any] = {"role": role, "content": content}
        if role == "assistant":
            message |= {"id": f"msg_{turn}_{number}", "model": "m",
                        "usage": {"input_tokens": 900, "output_tokens": 40}}  # fmt: skip
        line = {"type": role, "uuid": f"{session}-{turn}-{number}", "parentUuid": None,
                "sessionId": session, "isSidechain": False, "cwd": "/home/me/project",
                "version": "2.1.197", "gitBranch": "main", "userType": "external",
                "timestamp": "2026-11-16T10:00:00.000Z", "message": message}  # fmt: skip
        if role == "user" and isinstance(content, list):  # Claude Code writes what it ran twice
            line["toolUseResult"] = {"stdout": text, "stderr": "", "interrupted": False,
                                     "isImage": False}  # fmt: skip
        yield f"{json.dumps(line)}\n"
