"""What a recorded write returned is expected again, unless it differs from task to task."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from em.compiler.compile_trace import compile_several, compile_trace
from em.compiler.expectations import expectations
from em.compiler.package_files import write_package
from em.runner.engine import run_routine
from em.runner.expressions.functions import error_of
from em.runner.routine import ToolStep
from em.runner.run import UnexpectedResult
from em.traces.trace import KeptTrace, Mission, ToolCall, Trace

NOW = datetime(2026, 11, 15, tzinfo=UTC)
GOOD = {"ok": True, "id": 7}
SHAPE, NO_ERROR = 'shape_of(result) == "{}"', "error_of(result) == none"


def call(result: Any, **args: Any) -> ToolCall:
    return ToolCall(tool="act", args=args, result=result, effect="write")


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"ok": True}, "result.ok == true"),
        ({"data": {"sent": True}}, "result.data.sent == true"),
        ({"status": "cancelled"}, 'result.status == "cancelled"'),
        ({"status": "pending (item modified)"}, 'result.status == "pending (item modified)"'),
        ({"order_state": "open"}, 'result.order_state == "open"'),
        ({"id": 7, "error": None}, NO_ERROR),
        ({"id": 7, "total": 9.5, "note": ""}, 'empty_keys(result, "id", "total") == none'),
        ({"id": 7}, SHAPE.format("mapping")),
        (["R-1"], SHAPE.format("list")),
        (7, SHAPE.format("number")),
        (True, "result == true"),
        ("done", 'result == "done"'),
        ("Transfer successful", 'result == "Transfer successful"'),
        ("R-771231", 'kind_of(result) != "text"'),
        ("We refunded 50 EUR to your card.", NO_ERROR),
    ],
)
def test_shape_flags_statuses_keys_and_the_lack_of_an_error_are_expected(
    result: Any, expected: str
) -> None:
    assert expected in expectations(call(result))


@pytest.mark.parametrize("result", [
    {"id": "R-771231", "amount": 50, "at": "2026-11-15", "name": "Mia Li", "city": "Bonn"},
    {"#W1": {"ok": True}, "#W2": {"ok": True}},
    {"address": {"state": "Texas", "is_home": True}, "state": "TX"},
    "HATHAT",
    "facade",
    "R-771231",
    7,
])  # fmt: skip
def test_what_differs_from_task_to_task_is_not_expected(result: Any) -> None:
    found = expectations(call(result))
    assert not any(text.startswith(("result.", "result[", "result ==")) for text in found)


def test_a_call_whose_result_was_not_recorded_expects_nothing() -> None:
    assert expectations(call(None)) == []


def test_a_write_that_was_recorded_with_an_error_in_its_result_does_not_expect_none() -> None:
    assert NO_ERROR not in expectations(call({"errors": ["minor"], "id": 7}))


@pytest.mark.parametrize("result", [
    "Error: order not found", "ValueError: bad id", "order not found", "Failed to refund",
    {"error": "x"}, {"errors": ["x"]}, {"ok": False}, {"success": False}, {"exit_code": 2},
    {"status": 404}, {"status": "error"}, {"is_error": True}, {"result": {"error": "x"}},
    [{"ok": True}, {"ok": False}], '{"error": "x"}',
])  # fmt: skip
def test_a_result_that_reports_an_error_is_recognised(result: Any) -> None:
    assert error_of(result) is not None


@pytest.mark.parametrize("result", [
    "done", "Refund accepted", "Terror in the night: booked", {"error": None}, {"error": ""},
    {"errors": []}, {"ok": True}, {"exit_code": 0}, {"status": 201}, {"status": "done"},
    {"is_error": False}, [], 7, None, True, '{"error": null}', "{not json}",
])  # fmt: skip
def test_a_result_that_reports_none_is_recognised(result: Any) -> None:
    assert error_of(result) is None


def trace(number: str, result: Any) -> KeptTrace:
    act = ToolCall(tool="act", args={"order": number}, result=result, effect="write")
    made = Trace(
        mission=Mission(goal="act", input_summary={"order": number}),
        events=[act],
        outcome="success",
    )
    return KeptTrace(id=number, at=NOW, trace=made, event_ids=[])


def expected(*traces: KeptTrace) -> list[str]:
    steps = compile_several(traces, may_be_plain=False).draft.routine.steps
    (step,) = [one for one in steps if isinstance(one, ToolStep)]
    return list(step.expects)


def test_what_another_success_did_not_return_is_not_expected() -> None:
    one = trace("#W1001", {"id": 1, "ok": True, "status": "done", "note": "x"})
    other = trace("#W2002", {"id": 2, "ok": True, "status": "queued"})
    assert expected(one)[2:] == [
        "result.ok == true",
        'result.status == "done"',
        'strange_keys(result, "id", "ok", "status", "note") == none',
        'empty_keys(result, "id", "ok", "status", "note") == none',
        'strange_fields(result, {"id": "number", "note": "text"}) == none',
    ]
    assert expected(one, other)[2:] == [
        "result.ok == true",
        'strange_keys(result, "id", "ok", "status", "note") == none',
        'empty_keys(result, "id", "ok", "status") == none',
        'strange_fields(result, {"id": "number", "status": "text", "note": "nothing or text"})'
        " == none",
    ]
    assert expected(one, trace("#W3003", None)) == []


@pytest.mark.parametrize("result", [
    {"ok": False, "id": 8}, {"error": "not found"}, "Error: order not found", {"ok": True},
])  # fmt: skip
def test_a_compiled_routine_stops_after_a_write_that_says_it_failed(
    tmp_path: Path, result: Any
) -> None:
    made = Trace(
        mission=Mission(goal="act", input_summary={"order": "#W1001"}),
        events=[
            ToolCall(
                tool=name, args={"order": "#W1001"}, result={"ok": True, "id": 7}, effect="write"
            )
            for name in ("refund", "notify")
        ],
        outcome="success",
    )
    write_package(compile_trace(made), tmp_path / "r")
    written: list[str] = []

    def run(**returns: Any) -> Any:
        written.clear()
        tools = {
            name: lambda order, name=name: (
                written.append(name) or returns.get(name, {"ok": True, "id": 8})
            )
            for name in ("refund", "notify")
        }
        return run_routine(tmp_path / "r", {"order": "#W1001"}, tools)

    assert run().status == "ok"
    stopped = run(refund=result)
    assert (stopped.status, written) == ("failed", ["refund"])
    assert stopped.failure.error_type == UnexpectedResult.__name__
    last = run(notify=result)
    assert (last.status, written) == ("failed", ["refund", "notify"]), "the last one as well"
    steps = yaml.safe_load((tmp_path / "r" / "routine.yaml").read_text())
    for step in steps["steps"]:
        step.pop("expects", None)
    (tmp_path / "r" / "routine.yaml").write_text(yaml.safe_dump(steps))
    assert run(refund=result).status == "ok", "an author may remove what is not needed"
