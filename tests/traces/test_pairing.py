"""Results and their calls: by id, and by order where ids are reused or missing."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.traces.formats._messages import read_messages
from em.traces.formats._spans import Span, add_spans
from em.traces.intake import Intake
from em.traces.trace import Trace
from em.traces.transcripts import read_traces

FAILED, DONE = "Error: not allowed", {"status": "cancelled"}


def call(order: str, call_id: str | None = "c1") -> dict[str, Any]:
    function = {"name": "cancel", "arguments": json.dumps({"order": order})}
    return {
        "type": "function",
        "function": function,
        **({} if call_id is None else {"id": call_id}),
    }


def asks(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def gives(content: Any, call_id: str | None = "c1") -> dict[str, Any]:
    text = content if isinstance(content, str | list) else json.dumps(content)
    own = {} if call_id is None else {"tool_call_id": call_id}
    return {"role": "tool", "content": text, **own}


def says(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def read(*messages: dict[str, Any]) -> Trace:
    (kept,) = read_traces(json.dumps({"messages": list(messages)}).encode(), "chat.json")
    return kept.trace


def pairs(trace: Trace) -> list[tuple[str, Any, Any]]:
    return [(one.args["order"], one.result, one.error) for one in trace.calls]


TWO = [("W1", None, FAILED), ("W2", DONE, None)]


def test_an_id_that_is_used_again_after_its_result_is_another_call() -> None:
    trace = read(
        says("cancel them"), asks(call("W1")), gives(FAILED), asks(call("W2")), gives(DONE)
    )
    assert pairs(trace) == TWO


def test_calls_of_one_answer_that_share_an_id_get_their_results_in_order() -> None:
    trace = read(says("cancel them"), asks(call("W1"), call("W2")), gives(FAILED), gives(DONE))
    assert pairs(trace) == TWO


def test_a_call_that_got_no_result_does_not_take_that_of_a_later_one() -> None:
    trace = read(asks(call("W1")), says("wait, the other one"), asks(call("W2")), gives(DONE))
    assert pairs(trace) == [("W1", None, None), ("W2", DONE, None)]


@pytest.mark.parametrize("asked", ["c1", None])
def test_results_without_an_id_belong_to_the_calls_in_order(asked: str | None) -> None:
    other = "c2" if asked else None
    trace = read(
        says("cancel them"),
        asks(call("W1", asked), call("W2", other)),
        gives(FAILED, None),
        gives(DONE, None),
    )
    assert pairs(trace) == TWO


def test_functions_of_older_chats_get_their_results() -> None:
    def old(order: str) -> dict[str, Any]:
        function = {"name": "cancel", "arguments": json.dumps({"order": order})}
        return {"role": "assistant", "content": None, "function_call": function}

    def gave(text: str) -> dict[str, Any]:
        return {"role": "function", "name": "cancel", "content": text}

    trace = read(says("go"), old("W1"), gave(FAILED), old("W2"), gave(json.dumps(DONE)))
    assert pairs(trace) == TWO


@pytest.mark.parametrize(
    "content", [FAILED, json.dumps(FAILED), [{"type": "text", "text": FAILED}]]
)
def test_a_result_that_begins_with_error_is_a_failed_call(content: Any) -> None:
    ((_, result, error),) = pairs(read(asks(call("W1")), gives(content)))
    assert (result, error) == (None, FAILED)


def test_blocks_that_share_an_id_get_their_results_in_order() -> None:
    def use(order: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": "t", "name": "cancel", "input": {"order": order}}

    def result(content: Any, **more: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": "t", "content": content, **more}

    trace = read(
        says("go"),
        {"role": "assistant", "content": [use("W1"), use("W2")]},
        {"role": "user", "content": [result(FAILED, is_error=True), result(json.dumps(DONE))]},
    )
    assert pairs(trace) == TWO


def test_a_call_that_is_written_twice_in_one_answer_is_one() -> None:
    block = {"type": "tool_use", "id": "c1", "name": "cancel", "input": {"order": "W1"}}
    both = {"type": "ai", "content": [block], "tool_calls": [
        {"name": "cancel", "args": {"order": "W1"}, "id": "c1"}
    ]}  # fmt: skip
    messages = [{"type": "human", "content": "go"}, both, {
        "type": "tool", "tool_call_id": "c1", "content": json.dumps(DONE)
    }]  # fmt: skip
    (kept,) = read_traces(json.dumps({"messages": messages}).encode(), "chat.json")
    assert pairs(kept.trace) == [("W1", DONE, None)]


START = datetime(2025, 6, 1, tzinfo=UTC)


def from_spans(*spans: Span) -> Trace:
    intake = Intake()
    add_spans(intake, "otel", spans)
    intake.close()
    (kept,) = intake.gathered()
    return kept.trace


def at(second: int) -> dict[str, datetime]:
    begun = START + timedelta(seconds=second)
    return {"start": begun, "end": begun + timedelta(milliseconds=500)}


def answer(number: int, before: list[dict[str, Any]], now: dict[str, Any]) -> Span:
    """A model's span: the conversation before its answer, and the answer."""
    heard, earlier, results = read_messages(before)
    _, asked, _ = read_messages([now])
    return Span(
        trace="t", id=f"s{number}", kind="llm", heard=heard, earlier=earlier, results=results,
        asked_for=asked, **at(number),
    )  # fmt: skip


def test_models_spans_with_a_reused_id_keep_both_calls_and_their_results() -> None:
    talk = [says("go"), asks(call("W1")), gives(FAILED), asks(call("W2")), gives(DONE)]
    trace = from_spans(
        answer(1, talk[:1], talk[1]),
        answer(2, talk[:1], talk[1]),  # the same answer, told by another layer
        answer(3, talk[:3], talk[3]),
        answer(4, talk, {"role": "assistant", "content": "done"}),
    )
    assert pairs(trace) == TWO


def test_tools_spans_with_a_reused_id_are_calls_of_their_own() -> None:
    def tool(number: int, order: str, **ended: Any) -> Span:
        return Span(
            trace="t", id=f"s{number}", kind="tool", name="cancel", call_id="c1",
            args={"order": order}, **ended, **at(number),
        )  # fmt: skip

    trace = from_spans(tool(1, "W1", error=FAILED), tool(2, "W2", result=DONE))
    assert (pairs(trace), trace.incomplete) == (TWO, "")
    # Two layers may tell of one call; two calls at once can't be told apart.
    same = from_spans(tool(1, "W1", result=DONE), tool(1, "W1", result=DONE))
    assert (pairs(same), same.incomplete) == ([("W1", DONE, None)], "")
    both = from_spans(tool(1, "W1", error=FAILED), tool(1, "W2", result=DONE))
    assert both.incomplete == "two calls of `cancel` at the same time share an id"


def test_a_reused_id_in_a_later_export_makes_the_trace_incomplete(tmp_path: Path) -> None:
    def tool(number: int, order: str) -> Span:
        return Span(
            trace="t", id=f"s{number}", kind="tool", name="cancel", call_id="c1",
            args={"order": order}, result=DONE, **at(number),
        )  # fmt: skip

    with Memory(tmp_path / "em.db") as memory:
        for spans in ([tool(1, "W1")], [tool(1, "W1")], [tool(2, "W2")]):
            assert not any(kept.trace.incomplete for kept in memory.traces())
            intake = Intake(memory.store)
            add_spans(intake, "otel", spans)
            intake.close()
        (kept,) = memory.traces()
    assert kept.trace.incomplete == "two calls of `cancel` share the id 'c1'"


def test_a_span_that_comes_again_with_its_secret_is_the_same_call(tmp_path: Path) -> None:
    key = "sk-ant-api03-" + "Zx9" * 30
    span = Span(
        trace="t", id="s", kind="tool", name="log_in", call_id="c1",
        args={"key": key, "user": "ana"}, result=DONE, **at(1),
    )  # fmt: skip
    with Memory(tmp_path / "em.db") as memory:
        for _ in range(2):
            intake = Intake(memory.store)
            add_spans(intake, "otel", [span])
            intake.close()
        (kept,) = memory.traces()
    assert key not in str(kept.trace.calls[0].args)
    assert kept.trace.incomplete == ""


def test_codex_sessions_with_a_reused_id_keep_both_results() -> None:
    def line(**body: Any) -> str:
        return json.dumps(
            {"type": "response_item", "timestamp": START.isoformat(), "payload": body}
        )

    def asked(order: str) -> str:
        arguments = json.dumps({"order": order})
        return line(type="function_call", name="cancel", call_id="c1", arguments=arguments)

    def gave(code: int, text: str) -> str:
        output = json.dumps({"output": text, "metadata": {"exit_code": code}})
        return line(type="function_call_output", call_id="c1", output=output)

    meta = json.dumps({"type": "session_meta", "payload": {"id": "s", "cwd": "/"}})
    lines = [meta, asked("W1"), gave(1, "no"), asked("W2"), gave(0, "cancelled")]
    (kept,) = read_traces("\n".join(lines).encode(), "rollout.jsonl", "codex")
    assert pairs(kept.trace) == [("W1", None, "exit code 1: no"), ("W2", "cancelled", None)]
