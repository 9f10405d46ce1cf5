"""Importing transcripts: every sample with all its calls, and how fast the commonest format is."""

import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.figure import Figure, in_turns, rate_figure, seconds

DATA = Path(os.environ.get("EM_BENCH_DATA", "../shared/data"))
TRANSCRIPTS = DATA / "transcripts"
SESSIONS, TURNS = 8, 12
AT_LEAST = 0.2


def _values(text: str) -> list[Any]:
    """Every JSON value of a file: a document, or its lines, without those that are none."""
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object within a value."""
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, dict):
            yield part
            todo += part.values()
        elif isinstance(part, list):
            todo += part


def _attributes(span: dict[str, Any]) -> dict[str, Any]:
    pairs = span.get("tags") or span.get("attributes") or []
    return {
        pair["key"]: next(iter(pair["value"].values()))
        if isinstance(pair["value"], dict)
        else pair["value"]
        for pair in pairs
    }


def count_calls(  # noqa: PLR0911 - a rule for each format, one below the other
    folder: str, text: str
) -> int:
    """The tool calls in a file, counted by its fields alone; it knows nothing of em's importers."""
    values = _values(text)
    objects = [found for value in values for found in _objects(value)]
    if folder == "claude_code":
        return sum(found.get("type") == "tool_use" for found in objects)
    if folder == "codex":
        calls = [found for found in objects if found.get("type") == "function_call"]
        return len({(call["call_id"], call["name"]) for call in calls})
    if folder == "mini_swe_agent":
        return sum(
            found.get("role") == "assistant" and "```mswea_bash_command" in found["content"]
            for found in objects
        )
    if folder == "swe_agent":
        steps = values[0].get("trajectory")
        history = values[0]["history"]
        return len(steps) if steps else sum(len(one.get("tool_calls") or ()) for one in history)
    if folder == "openhands":
        # An agent's finish is a call where the model called it as a tool.
        said = {"message", "change_agent_state", "finish", "null", "system", "recall"}
        return sum(
            isinstance(found.get("action"), str)
            and (found["action"] not in said or (
                found["action"] == "finish" and "tool_call_metadata" in found))
            for found in objects
        )  # fmt: skip
    if folder == "openhands_sdk_v1":
        return sum(found.get("kind") == "ActionEvent" for found in objects)
    if folder == "openinference":
        return sum(
            found.get("span_attributes", {}).get("openinference.span.kind") == "TOOL"
            for found in objects
        )
    spans = [_attributes(found) for found in objects if "spanID" in found or "spanId" in found]
    by_span = {
        span["gen_ai.tool.call.id"]
        for span in spans
        if span.get("gen_ai.operation.name") == "execute_tool"
    }
    named = re.compile(r"gen_ai\.completion\.\d+\.tool_calls\.\d+\.id")
    by_answer = {value for span in spans for name, value in span.items() if named.fullmatch(name)}
    return len(by_span | by_answer)


def samples() -> Iterator[Figure]:
    from em import Memory

    files = sorted(path for path in TRANSCRIPTS.glob("*/*") if path.is_file())
    if not files:
        print(f"no data in {TRANSCRIPTS}: set EM_BENCH_DATA; this bench is passed over")
        return
    imported = found = counted = 0
    with Memory(":memory:") as memory:
        for path in files:
            (read,) = memory.import_files(path)
            expected = count_calls(path.parent.name, path.read_text())
            imported += not read.problems
            found, counted = found + read.calls, counted + expected
            verdict = "" if read.calls == expected else "  DIFFERS"
            name = f"{path.parent.name}/{path.name}"
            print(f"    {name:<60} {read.format:<16} {read.calls:>4} of {expected}{verdict}")
            if verdict:
                found -= 1_000_000
        kept = sum(len(one.trace.calls) for one in memory.traces())
    yield _share("samples imported without a broken line", imported, "all samples", len(files))
    yield _share("tool calls found in them", found, "an independent count", counted)
    yield _share("of those, calls in the log", kept, "an independent count", counted)


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
