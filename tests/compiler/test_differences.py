"""Values in which traces of one task differ: explained by what holds in all of them, or asked."""

from pathlib import Path
from typing import Any

import pytest

from em.compiler.compile_trace import compile_trace
from em.compiler.confirmation import confirm, learn
from em.compiler.differences import told_apart
from em.compiler.draft import Draft
from em.compiler.package_files import write_package
from em.compiler.proof import prove
from em.errors import UsageError
from em.runner.engine import run_routine
from em.runner.expressions.functions import FUNCTIONS
from em.runner.run import RunResult
from em.traces.trace import Mission, ToolCall, Trace


def order(number: str, *prices: int, **more: Any) -> dict[str, Any]:
    items = [{"sku": f"S-{number}-{at}", "price": price} for at, price in enumerate(prices)]
    return {"id": number, "status": "open", "total": sum(prices), "items": items, **more}


def refunded(found: dict[str, Any], amount: int, *, channel: str = "mail") -> Draft:
    number = found["id"]
    args = {"order_id": number, "amount": amount, "channel": channel}
    return compile_trace(
        Trace(
            mission=Mission("refund", {"request": f"Please refund order {number}"}),
            events=[
                ToolCall(tool="get_order", args={"order_id": number}, result=found, effect="read"),
                ToolCall(tool="refund", args=args, result={"ok": True}, effect="write"),
            ],
            final_output={"ok": True},
            outcome="success",
        )
    )


@pytest.fixture
def draft() -> Draft:
    first, second = order("#W1001", 30, 12), order("#W2002", 50, 25)
    return told_apart(refunded(first, 42), [refunded(second, 75, channel="text")])


def run(draft: Draft, folder: Path, given: dict[str, Any], **options: Any) -> RunResult:
    write_package(draft, folder / "routine")
    tools = {
        "get_order": lambda order_id: order(order_id, 100, 20),
        "refund": lambda **args: {"ok": True},
    }
    return run_routine(folder / "routine", given, tools, **options)


def test_what_explains_a_value_in_every_trace_is_still_a_candidate(draft: Draft) -> None:
    asked = draft.routine.asks["amount"]
    assert list(asked.candidates) == ["order.total", 'sum(every(order, "items.*.price"))']
    assert list(asked.others) == [75]
    assert list(draft.routine.asks["channel"].candidates) == []


@pytest.mark.parametrize("number", ["#W1001", "#W3003"])
def test_a_value_that_differs_is_asked_for_with_what_it_was_and_may_be(
    draft: Draft, tmp_path: Path, number: str
) -> None:
    asked = run(draft, tmp_path, {"request": f"Please refund order {number}"})
    assert (asked.status, asked.pending_prompt is None) == ("needs_input", False)
    assert asked.pending_prompt is not None
    labels = {field["name"]: field["label"] for field in asked.pending_prompt.fields}
    assert set(labels) == {"amount", "channel"}
    assert labels["amount"].startswith(
        "amount: it was 42 and 75 in recordings; 120 if it is `order.total`; "
    )
    assert labels["channel"] == 'channel: it was "mail" and "text" in recordings'


def test_traces_that_show_nothing_new_change_nothing() -> None:
    draft = refunded(order("#W1001", 30, 12), 42)
    assert told_apart(draft, [refunded(order("#W1001", 30, 12), 42)]) is draft


def test_a_value_that_is_asked_for_does_not_vary_freely(draft: Draft) -> None:
    assert str(prove(draft)) == (
        "same task: proved. other inputs: order_id varies freely;"
        " amount is ambiguous (2 explanations), so it is asked for;"
        " channel is asked for: nothing recorded explains it"
    )


def test_a_value_that_differs_can_not_be_confirmed_as_a_constant(draft: Draft) -> None:
    with pytest.raises(UsageError, match="42 and 75"):
        confirm(draft.routine, ["amount"])


def test_an_answer_that_the_only_candidate_gives_settles_it() -> None:
    """Two tasks and a person agree on it."""
    first, second = order("#W1001", 30, 12), order("#W2002", 50, 25)
    first["items"] = second["items"] = []
    draft = told_apart(refunded(first, 42), [refunded(second, 75)])
    assert list(draft.routine.asks["amount"].candidates) == ["order.total"]
    scope = {**FUNCTIONS, "order_id": "#W3003", "order": order("#W3003", 120)}
    learnt = learn(draft.routine, scope, {"amount": 120})
    assert "amount" not in learnt.asks
    assert learnt.steps[1].args["amount"] == "{{ order.total }}"  # type: ignore[union-attr]


def test_an_explanation_that_another_trace_refutes_is_not_acted_on() -> None:
    """The total is large enough to be the source; but another task paid only a part of it."""
    first, second = order("#W1001", 918_273_645), order("#W2002", 812_736_455)
    first["items"] = second["items"] = []
    alone = refunded(first, 918_273_645)
    assert "amount" not in alone.routine.asks
    draft = told_apart(alone, [refunded(second, 700_000_123)])
    asked = draft.routine.asks["amount"]
    assert (asked.recorded, list(asked.others)) == (918_273_645, [700_000_123])
    assert draft.routine.steps[1].args["amount"] == "{{ amount }}"  # type: ignore[union-attr]


def test_an_explanation_that_holds_in_every_trace_takes_the_place_of_a_refuted_one() -> None:
    first = order("#W1001", 918_273_645, paid=918_273_645)
    second = order("#W2002", 812_736_455, paid=700_000_123)
    first["items"] = second["items"] = []
    draft = told_apart(refunded(first, 918_273_645), [refunded(second, 700_000_123)])
    assert "amount" not in draft.routine.asks
    step = draft.routine.steps[1]
    assert step.args["amount"] == "{{ order.paid }}"  # type: ignore[union-attr]
    assert "amount" not in step.agree
