"""Importing transcripts: every sample with all its calls, and how fast the commonest format is."""

import json
import os
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


def _sessions(folder: Path, sources: list[str]) -> list[Path]:
    """The real sessions as long ones: their turns again and again, under ids of their own."""
    paths = []
    for number in range(SESSIONS):
        text = sources[number % len(sources)]
        session = json.loads(text.splitlines()[0])["sessionId"]
        text = text.replace(session, f"{session[:-4]}{number:04}")
        path = folder / f"{number}.jsonl"
        path.write_text("".join(text.replace("toolu_", f"toolu_{n}_") for n in range(TURNS)))
        paths.append(path)
    return paths
