"""What agents left on disk comes in as traces; the same again changes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.capture.importers.openai_chat import read_chat, read_chats
from em.capture.recorder import Recorder
from em.errors import InputError
from em.models.trace import Message, ToolCall


def call(number: int, name: str, **args: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(args)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def answer(number: int, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": content}


CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "be nice"},
        {"role": "user", "content": "cancel #W1"},
        call(1, "get_order", id="#W1"),
        answer(1, '{"status": "pending"}'),
        call(2, "cancel", id="W1"),
        answer(2, "Error: no such order"),
        call(3, "cancel", id="#W1"),
        answer(3, "done"),
        {"role": "assistant", "content": "It is cancelled."},
    ],
    "reward": 1.0,
}


def test_a_chat_becomes_a_trace() -> None:
    trace = read_chat(CHAT, "chat")
    assert [type(event).__name__ for event in trace.events] == [
        "Message", "ToolCall", "ToolCall", "ToolCall", "Message",
    ]  # fmt: skip
    calls = [event for event in trace.events if isinstance(event, ToolCall)]
    assert [(c.tool, c.args, c.result, c.error) for c in calls] == [
        ("get_order", {"id": "#W1"}, {"status": "pending"}, None),
        ("cancel", {"id": "W1"}, None, "Error: no such order"),
        ("cancel", {"id": "#W1"}, "done", None),
    ]
    assert (trace.outcome, trace.mission.goal) == ("success", "cancel #W1")
    assert isinstance(trace.events[0], Message)


def test_one_object_a_list_and_lines_are_read() -> None:
    one = json.dumps(CHAT)
    for text, expected in ((one, 1), (f"[{one},{one}]", 2), (f"{one}\n\n{one}\n", 2)):
        assert len(list(read_chats(text.encode(), "f"))) == expected


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"nonsense", b'{"messages": 5}', b'{"messages": []}\n{broken', b"[1]", b"\xff"],
)
def test_what_is_no_chat_is_named(data: bytes) -> None:
    if data == b"":
        assert list(read_chats(data, "f")) == []
        return
    with pytest.raises(InputError, match="f"):
        list(read_chats(data, "f"))


def test_arguments_that_are_no_json_are_named() -> None:
    broken = {"messages": [call(1, "x")]}
    broken["messages"][0]["tool_calls"][0]["function"]["arguments"] = "{"
    with pytest.raises(InputError, match="arguments of x"):
        read_chat(broken, "f")


def test_importing_twice_changes_nothing_and_all_come_in_or_none(tmp_path: Path) -> None:
    other = {"messages": CHAT["messages"][:4]}
    with Memory(tmp_path / "em.db") as memory:
        traces = [read_chat(chat, "f") for chat in (CHAT, other)]
        assert memory.import_traces(traces) == (2, 0)
        before = list(memory.log.read())
        assert memory.import_traces(traces) == (0, 2)
        assert list(memory.log.read()) == before
        with pytest.raises(InputError):
            memory.import_traces(read_chat(chat, "f") for chat in ({"messages": []}, 5))
        assert list(memory.log.read()) == before
        assert memory.log.verify().ok
        kinds = [event.kind for event in memory.log.read(stream=before[0].stream)]
        assert kinds == ["trace_started", "message", *["tool_call"] * 3, "message", "trace_ended"]


def test_a_recorder_notes_calls_errors_and_times() -> None:
    recorder = Recorder("add", {"x": 1}, app="test")

    def add(x: int, y: int) -> int:
        if y == 0:
            raise ValueError("no zero")
        return x + y

    recorded = recorder.tool(add, effect="read")
    own = recorder.udf(add, name="mine")
    recorder.said("user", "add it")
    with pytest.raises(ValueError, match="no zero"):
        recorded(x=1, y=0)
    assert (recorded(x=1, y=2), own(x=1, y=1)) == (3, 2)
    trace = recorder.trace(final_output=3, model_calls=4)
    first, second, third = trace.calls
    assert isinstance(first, ToolCall)
    assert (first.error, second.result, third.result) == ("ValueError: no zero", 3, 2)
    assert first.duration_ms is not None
    assert (trace.usage.model_calls, trace.mission.input_summary) == (4, {"x": 1})
