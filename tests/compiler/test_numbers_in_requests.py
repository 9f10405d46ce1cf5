"""A number that a request says is an input, however few digits it has and whatever else has it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import RoutineError
from em.traces.trace import Message, Mission, ToolCall, Trace

Recorded = Callable[[int], Iterator[ToolCall]]


def closed(number: int) -> Iterator[ToolCall]:
    yield ToolCall(tool="close", args={"issue": number}, result={"ok": True}, effect="write")


def closed_as_text(number: int) -> Iterator[ToolCall]:
    yield ToolCall(tool="close", args={"issue": str(number)}, result={"ok": True}, effect="write")


def looked_at(number: int) -> Iterator[ToolCall]:
    found = {"number": number, "state": "open", "votes": 3}
    yield ToolCall(tool="get", args={"issue": number}, result=found, effect="read")
    yield from closed(number)


def in_a_page(number: int) -> Iterator[ToolCall]:
    args = {"path": f"/issues/{number}/close", "body": {"state": "closed"}}
    yield ToolCall(tool="post", args=args, result={"status": 200}, effect="write")


def with_a_message(number: int) -> Iterator[ToolCall]:
    yield from closed(number)
    args = {"room": "ops", "text": f"Issue #{number} is closed."}
    yield ToolCall(tool="say", args=args, result="ok", effect="write")


def twice_the_same(number: int) -> Iterator[ToolCall]:
    args = {"issue": number, "priority": 2, "after": 30}
    yield ToolCall(tool="close", args=args, result={"ok": True}, effect="write")


CASES: dict[str, Recorded] = {
    one.__name__: one
    for one in (closed, closed_as_text, looked_at, in_a_page, with_a_message, twice_the_same)
}
NUMBERS = {
    "one digit": (4, 7, 9, 2, 5), "two digits": (42, 17, 30, 85, 61),
    "three digits": (200, 417, 305, 999, 612), "mixed": (200, 7, 35, 2, 30),
}  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("case", CASES)
def test_another_number_is_never_taken_for_the_recorded_one(
    tmp_path: Path, case: str, numbers: str, count: int
) -> None:
    written: list[tuple[str, Any]] = []

    def tool(name: str) -> Callable[..., Any]:
        def call(**args: Any) -> Any:
            if name == "get":
                return {"number": args["issue"], "state": "open", "votes": 3}
            written.append((name, args))
            return {"status": 200} if name == "post" else "ok" if name == "say" else {"ok": True}

        return call

    with Memory(tmp_path / "em.db") as memory:
        ids = []
        for number in NUMBERS[numbers][:count]:
            said = f"close issue {number}"
            events = [Message(role="user", text=said), *CASES[case](number)]
            trace = Trace(mission=Mission(goal=said), events=events, outcome="success")
            ids.append(memory.add_trace(trace))
        try:
            routine = memory.compile(ids, name="close")
        except RoutineError:
            return
        tools = {name: tool(name) for name in ("get", "close", "post", "say")}
        done = 0
        for number in (3, 36, 512, 77, 100):
            written.clear()
            ended = memory.run(routine, {"request": f"close issue {number}"}, tools)
            gold = [(one.tool, one.args) for one in CASES[case](number) if one.effect == "write"]
            assert written in ([], gold), (number, written)
            done += ended.status == "ok" and written == gold
        # A number far from those that were seen hands over, and so does one inside of a path.
        assert done >= (2 if case.startswith("closed") else 0)
