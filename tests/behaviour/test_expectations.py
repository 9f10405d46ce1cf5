"""What a recorded write returned is expected again, unless it may differ after the next call."""

from typing import Any

import pytest

from em.behaviour.expectations import RESULT, expectations
from em.errors import EmError
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.guard_functions import error_of
from em.runner.expressions.language import GIVEN, compile_expression
from em.traces.trace import ToolCall

SHAPE, NO_ERROR = 'shape_of(result) == "{}"', "error_of(result) == none"


def call(result: Any, **args: Any) -> ToolCall:
    return ToolCall(tool="act", args=args, result=result, effect="write")


def is_expected(recorded: ToolCall, now: ToolCall) -> bool:
    scope = {**FUNCTIONS, RESULT: now.result, GIVEN: now.args}
    try:
        return all(compile_expression(text, "")(scope) for text in expectations(recorded))
    except EmError:
        return False


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


@pytest.mark.parametrize(("was", "now"), [
    ({"made_at": "2026-11-15", "n": 1}, {"made_at": "2027-02-01", "n": 1}),
    ({"ticket_id": 1}, {"ticket_id": 2}),
    ({"text": "Done on 2026-11-15"}, {"text": "Done on 2027-02-01"}),
    ({"difference": 4.5}, {"difference": -3.5}),
    ({"left": 12}, {"left": 0}),
    ("Ana said hello to Bo and Cy", "Di said never to anybody"),
    ({"note": "red roof"}, {"note": "new lamp"}),
    ({"address": {"city": "Bonn", "zip": "53111"}}, {"address": {"city": "Ulm", "zip": "x"}}),
    ({"lines": [{"kind": "card"}]}, {"lines": [{"kind": "voucher", "left": 20}]}),
])  # fmt: skip
def test_what_another_call_may_change_is_left_open(was: Any, now: Any) -> None:
    assert is_expected(call(was, of="task-1"), call(now, of="task-77"))


@pytest.mark.parametrize(("was", "now"), [
    ({"id": 1}, {"id": 1, "warning": "kept for later"}),
    ({"id": 1, "note": "x"}, {"id": 1, "note": ""}),
    ({"id": 1}, {"id": None}),
    ({"data": {"loan": {"state": "out"}}}, {"data": {"loan": {"state": "refused"}}}),
    ({"failed": 0}, {"failed": 2}),
    ({"done": True}, {"done": False}),
    ({"state": "done", "of": ["red", "red", "red"]}, {"state": "done", "of": ["red", "blue"]}),
    ({"made": "2026-11-15"}, {"made": "never"}),
    ('{"ok": true, "n": 1}', '{"ok": false, "n": 1}'),
    ({"id": 1}, "Error: no such order"),
    ("R-771231", "the order was not found"),
])  # fmt: skip
def test_a_result_that_says_something_else_is_not_expected(was: Any, now: Any) -> None:
    assert is_expected(call(was), call(was))
    assert not is_expected(call(was), call(now))


def test_what_repeats_an_id_repeats_this_one() -> None:
    once = call({"object": "OBJ-1071", "room": "4"}, object="OBJ-1071", room="4")
    assert is_expected(once, call({"object": "OBJ-2210", "room": "5"}, object="OBJ-2210", room="5"))
    assert not is_expected(
        once, call({"object": "OBJ-1071", "room": "5"}, object="OBJ-2210", room="5")
    )


def test_a_list_repeats_what_was_given_in_any_order() -> None:
    once = call({"enrolled": ["p-102", "p-101"]}, enrolled=["p-101", "p-102"])
    assert is_expected(once, call({"enrolled": ["p-203", "p-201"]}, enrolled=["p-201", "p-203"]))
    assert not is_expected(once, call({"enrolled": ["p-201"]}, enrolled=["p-201", "p-203"]))


def test_what_may_be_recorded_or_repeated_may_be_either() -> None:
    once = call({"status": "open"}, wanted="open", at=1)
    assert is_expected(once, call({"status": "shut"}, wanted="shut", at=9))
    assert not is_expected(once, call({"status": "lost"}, wanted="shut", at=9))
