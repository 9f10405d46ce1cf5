"""Files of lines are read one line at a time: what is held does not grow with a file."""

import gc
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sessions import ClaudeCode

from em.store.sqlite import SqliteStore
from em.traces.formats import claude_code as sessions_of_claude_code
from em.traces.transcripts import import_each

FEW, MANY = 2_000, 20_000


def claude_code(turns: int) -> Iterator[Any]:
    says = ClaudeCode()
    yield says.user("go")
    for number in range(turns):
        yield says.calls(f"t{number}", "Task", prompt=f"part {number}", description="part")
        yield says.result(f"t{number}", f"text {number}")


def codex(turns: int) -> Iterator[Any]:
    yield {"type": "session_meta", "payload": {"id": "s1", "cwd": "/x"}}
    for number in range(turns):
        call_id = f"c{number}"
        yield {"type": "response_item", "payload": {
            "type": "function_call", "name": "exec_command", "call_id": call_id,
            "arguments": json.dumps({"cmd": f"cat {number}"})}}  # fmt: skip
        yield {"type": "event_msg", "payload": {"type": "item_completed", "item": {
            "type": "CommandExecution", "id": call_id, "command": ["bash", "-lc", f"cat {number}"],
            "exit_code": 0, "aggregated_output": f"text {number}"}}}  # fmt: skip


def pi(turns: int) -> Iterator[Any]:
    yield {"type": "session", "version": 3, "id": "p1", "timestamp": "2026-01-01", "cwd": "/x"}
    for number in range(turns):
        call = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {"n": number}}
        ended = {
            "role": "toolResult",
            "toolCallId": f"c{number}",
            "toolName": "read",
            "content": [{"type": "text", "text": f"text {number}"}],
            "isError": False,
        }
        for message in ({"role": "assistant", "content": [call]}, ended):
            yield {"type": "message", "id": "x", "parentId": None, "timestamp": "2026-01-01",
                   "message": message}  # fmt: skip


def broken(turns: int) -> Iterator[Any]:
    yield ClaudeCode().user("go")
    for number in range(turns):
        yield {"type": "system", "sessionId": "s1", "number": number}
        yield None  # written as a line that is not JSON


def held(folder: Path, made: Iterator[Any]) -> int:
    """Return how many blocks of memory were held at most while a file was imported."""
    folder.mkdir()
    path = folder / "session.jsonl"
    with path.open("w") as file:
        for value in made:
            file.write("{not JSON\n" if value is None else json.dumps(value) + "\n")
    most = lines = 0

    def look(_bytes: int) -> None:
        nonlocal most, lines
        lines += 1
        if lines % 50 == 0:
            most = max(most, sys.getallocatedblocks())

    store = SqliteStore(folder / "em.db")
    gc.collect()
    before = sys.getallocatedblocks()
    [*import_each(store, [path], progress=look)]
    store.close()
    assert lines > 0
    return most - before


@pytest.mark.parametrize("made", [claude_code, codex, pi, broken])
def test_ten_times_the_lines_hold_no_more(
    tmp_path: Path, made: Callable[[int], Iterator[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sessions_of_claude_code, "MOST_CALLS", 100
    )  # what is remembered of calls is bounded
    held(tmp_path / "warm", made(50))
    few = held(tmp_path / "few", made(FEW // 2))
    many = held(tmp_path / "many", made(MANY // 2))
    assert many < 1.5 * few + 1_000
