"""A person's answer is evidence: the routine does not ask the same question twice."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import Memory
from em.compiler.compile_trace import compile_trace
from em.compiler.confirmation import confirm
from em.compiler.package_files import package_texts
from em.errors import UsageError
from em.runner.package import keep_routine
from em.runner.routine import Routine, ToolStep
from em.traces.trace import Message, Mission, ToolCall, Trace

LIMIT = Trace(
    mission=Mission(goal="refund", input_summary={"order": "#W1001", "limit": 100}),
    events=[
        ToolCall(tool="get_order", args={"order": "#W1001"}, result={"id": "#W1001", "paid": 250}),
        ToolCall(tool="refund", args={"order": "#W1001", "amount": 100}, result="done"),
    ],
    outcome="success",
)


class Shop:
    def __init__(self) -> None:
        self.refunds: list[Any] = []

    @property
    def tools(self) -> dict[str, Any]:
        return {
            "get_order": lambda order: {"id": order, "paid": 250},
            "refund": lambda order, amount: self.refunds.append((order, amount)) or "done",
        }


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    with Memory(tmp_path / "em.db") as memory:
        draft = compile_trace(LIMIT, name="refund")
        keep_routine(memory.store, package_texts(draft))
        yield memory


def test_the_recorded_inputs_run_as_recorded_and_others_are_asked_about(memory: Memory) -> None:
    shop = Shop()
    assert memory.run("refund", {"order": "#W1001", "limit": 100}, shop.tools).status == "ok"
    asked = memory.run("refund", {"order": "#W2002", "limit": 500}, shop.tools)
    assert asked.status == "needs_input"
    assert asked.pending_prompt is not None
    words = asked.pending_prompt.message
    assert "500 if it is the input `limit`" in words
    assert "100 if it is always 100" in words
    assert shop.refunds == [("#W1001", 100)]


@pytest.mark.parametrize(("answer", "next_amount"), [(500, 700), (100, 100)])
def test_an_answer_is_remembered_in_a_new_version(
    memory: Memory, answer: int, next_amount: int
) -> None:
    shop = Shop()
    asked = memory.run("refund", {"order": "#W2002", "limit": 500}, shop.tools)
    done = memory.resume(asked.run_id, shop.tools, answers={"inputs": {"amount": answer}})
    assert (done.status, shop.refunds) == ("ok", [("#W2002", answer)])
    again = memory.run("refund", {"order": "#W3003", "limit": 700}, shop.tools)
    assert (again.status, shop.refunds[-1]) == ("ok", ("#W3003", next_amount))
    with pytest.raises(AssertionError):
        assert memory.run("refund@1", {"order": "#W4", "limit": 9}, shop.tools).status == "ok"


def test_a_confirmed_value_is_a_constant() -> None:
    draft = compile_trace(LIMIT, name="refund")
    assert "amount" in draft.routine.asks
    fixed = confirm(draft.routine, ["amount"])
    assert "amount" not in fixed.asks
    assert "amount" not in (fixed.input_schema or {})["properties"]
    (step,) = [one for one in fixed.steps if isinstance(one, ToolStep) and one.tool == "refund"]
    assert step.args["amount"] == 100


def test_only_what_is_asked_for_can_be_confirmed() -> None:
    routine = compile_trace(LIMIT, name="refund").routine
    with pytest.raises(UsageError, match="amuont"):
        confirm(routine, ["amuont"])


def test_a_person_may_agree_that_the_wording_makes_no_difference(tmp_path: Path) -> None:
    trace = Trace(
        mission=Mission(goal=""),
        events=[
            Message(role="user", text="send the invoice of #W1001 to my usual address, please"),
            ToolCall(
                tool="get_order",
                args={"order": "#W1001"},
                result={"id": "#W1001", "mail": "ana.lopez77@shop.example"},
            ),
            ToolCall(
                tool="send_invoice",
                args={"order": "#W1001", "mail": "ana.lopez77@shop.example"},
                result="sent",
            ),
        ],
        outcome="success",
    )
    sent: list[str] = []
    tools = {
        "get_order": lambda order: {"id": order, "mail": "bob.stone12@shop.example"},
        "send_invoice": lambda order, mail: sent.append(mail) or "sent",
    }
    with Memory(tmp_path / "em.db") as memory:
        keep_routine(memory.store, package_texts(compile_trace(trace, name="invoice")))
        asked = memory.run("invoice", {"order": "#W2002"}, tools)
        assert (asked.status, sent) == ("needs_input", [])
        assert asked.pending_prompt is not None
        assert "wording" in asked.pending_prompt.message
        answers = {"inputs": {"request": True}}
        assert memory.resume(asked.run_id, tools, answers=answers).status == "ok"
        assert memory.run("invoice", {"order": "#W3003"}, tools).status == "ok"
    assert sent == ["bob.stone12@shop.example"] * 2


def test_a_rewritten_routine_reads_back(memory: Memory) -> None:
    routine = confirm(compile_trace(LIMIT, name="refund").routine, ["amount"])
    again = msgspec.convert(msgspec.to_builtins(routine), Routine)
    assert msgspec.to_builtins(again) == msgspec.to_builtins(routine)
