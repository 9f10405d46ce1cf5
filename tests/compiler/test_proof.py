"""A routine is proved elsewhere too: with results in another order, and with fresh inputs."""

from typing import Any

import msgspec
import pytest

from em.compiler.compile_trace import compile_trace
from em.compiler.draft import Draft
from em.compiler.proof import UNEXPLAINED, Proof, prove
from em.compiler.verification import NotReproduced
from em.runner.routine import ToolStep
from em.traces.trace import Mission, ToolCall, Trace

ORDER = {
    "id": "#W1001",
    "owner": "ana_lopez_12",
    "items": [{"id": "8384507844", "price": 20}, {"id": "1151293680", "price": 30}],
}


def trace(**args: Any) -> Trace:
    return Trace(
        mission=Mission(goal="return", input_summary={"order": "#W1001"}),
        events=[
            ToolCall(tool="get_order", args={"order": "#W1001"}, result=ORDER),
            ToolCall(tool="return_order", args={"order": "#W1001", **args}, result="done"),
        ],
        outcome="success",
    )


def with_args(draft: Draft, **args: Any) -> Draft:
    """The draft with other arguments than its recording, as a wrong compiler would write them."""
    steps = [
        msgspec.structs.replace(step, args={**step.args, **args}, agree={}, guards=())
        if isinstance(step, ToolStep) and step.tool == "return_order"
        else step
        for step in draft.routine.steps
    ]
    return msgspec.structs.replace(
        draft, routine=msgspec.structs.replace(draft.routine, steps=steps)
    )


def test_the_report_says_what_was_proved_and_what_was_not() -> None:
    draft = compile_trace(trace(owner="ana_lopez_12", item="1151293680"))
    assert list(draft.proof) == [
        "same task: proved",
        "other inputs: order varies freely; item is ambiguous (2 explanations), so it is asked for",
    ]


def test_a_position_is_found_out_by_another_order() -> None:
    draft = with_args(compile_trace(trace(item="1151293680")), item="{{ order_2.items[1].id }}")
    with pytest.raises(NotReproduced, match="with other values it calls return_order"):
        prove(draft)


def test_a_constant_in_place_of_an_input_is_found_out_by_a_fresh_value() -> None:
    draft = with_args(compile_trace(trace()), order="#W1001")
    with pytest.raises(NotReproduced, match="#W1001"):
        prove(draft)


def test_a_list_that_is_passed_on_may_have_any_order() -> None:
    recorded = Trace(
        mission=Mission(goal="report", input_summary={"month": "2025-04"}),
        events=[
            ToolCall(tool="list_sales", args={"month": "2025-04"}, result=["A-1001", "B-2002"]),
            ToolCall(tool="send_report", args={"rows": ["A-1001", "B-2002"]}, result="sent"),
        ],
        outcome="success",
    )
    assert prove(compile_trace(recorded)).other_order == ""


def test_a_routine_that_asks_or_stops_with_other_values_may_be_written() -> None:
    draft = compile_trace(trace(reason="ordered by mistake"))
    assert "reason is asked for" in ". ".join(draft.proof)


def test_inputs_that_nothing_explains_are_named_together() -> None:
    proof = Proof(inputs={"order": "", "channel": UNEXPLAINED, "notify": UNEXPLAINED})
    assert [*proof.sentences()][-1] == (
        "other inputs: order varies freely;"
        " channel and notify are asked for: nothing recorded explains them"
    )
