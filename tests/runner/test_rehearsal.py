"""A dry run makes the reads, and shows each call with an effect without making it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.compiler.compile_trace import compile_trace
from em.compiler.package_files import write_package
from em.errors import RoutineError
from em.runner.engine import arun_routine, run_routine
from em.runner.run import Planned, RunResult
from em.traces.trace import Approval, Mission, ToolCall, Trace

TRACE = Trace(
    mission=Mission(goal="refund", input_summary={"order": "#W1001", "limit": 100}),
    events=[
        ToolCall(
            tool="get_order",
            args={"order": "#W1001"},
            result={"id": "#W1001", "status": "delivered", "paid": 250},
        ),
        Approval(prompt="Refund #W1001?", answer=True),
        ToolCall(
            tool="refund",
            args={"order": "#W1001", "amount": 100},
            result={"receipt": "RC-88123"},
        ),
        ToolCall(tool="send_mail", args={"order": "#W1001", "receipt": "RC-88123"}, result="sent"),
    ],
    final_output={"receipt": "RC-88123"},
    outcome="success",
)
AS_RECORDED = {"order": "#W1001", "limit": 100}
OTHER = {"order": "#W2002", "limit": 500}


class Shop:
    def __init__(self, status: str = "delivered") -> None:
        self.status = status
        self.reads: list[str] = []
        self.effects: list[Any] = []

    @property
    def tools(self) -> dict[str, Any]:
        return {"get_order": self.get_order, "refund": self.refund, "send_mail": self.send_mail}

    def get_order(self, order: str) -> Any:
        self.reads.append(order)
        return {"id": order, "status": self.status, "paid": 250}

    def refund(self, order: str, amount: int) -> Any:
        self.effects.append((order, amount))
        return {"receipt": "RC-1"}

    def send_mail(self, order: str, receipt: str) -> str:
        self.effects.append(receipt)
        return "sent"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_package(compile_trace(TRACE, name="refund"), tmp_path / "refund")
    return tmp_path / "refund"


def rehearse(folder: Path, given: Any, shop: Shop, **more: Any) -> RunResult:
    result = run_routine(folder, given, shop.tools, dry_run=True, **more)
    assert shop.effects == []
    return result


def step(result: RunResult, name: str) -> Planned:
    (found,) = [one for one in result.planned if one.step == name]
    return found


def test_a_write_is_shown_with_its_values_their_sources_and_its_guards(folder: Path) -> None:
    shop = Shop()
    result = rehearse(folder, AS_RECORDED, shop)
    assert (result.status, shop.reads) == ("ok", ["#W1001"])
    refund = step(result, "refund")
    assert (refund.does, refund.tool) == ("write", "refund")
    values = {one.place: one.value for one in refund.arguments}
    assert values == {"order": "#W1001", "amount": 100}
    order = refund.arguments[0]
    assert "the input `order`" in order.source
    assert order.agree
    (guard,) = [one for one in refund.guards if "status" in one.guard]
    assert (guard.holds, guard.now) == (True, '"delivered"')


def test_what_needs_the_result_of_a_write_says_so(folder: Path) -> None:
    result = rehearse(folder, AS_RECORDED, Shop())
    mail = step(result, "send_mail")
    assert (mail.does, mail.needs) == ("write", ["the result of refund"])
    assert mail.arguments[1].problem == "needs the result of refund"
    assert step(result, "return").needs == ["the result of refund"]
    assert result.output is None


def test_an_approval_is_shown_and_not_asked_unless_it_was_given(folder: Path) -> None:
    result = rehearse(folder, AS_RECORDED, Shop())
    assert (step(result, "approval").does, step(result, "approval").message) == (
        "ask",
        "Refund #W1001?",
    )
    given = rehearse(folder, AS_RECORDED, Shop(), answers={"approval": {"answer": True}})
    assert {one.step for one in given.planned} == {"refund", "send_mail", "return"}
    refused = rehearse(folder, AS_RECORDED, Shop(), answers={"approval": {"answer": False}})
    assert refused.status == "failed"


def test_a_question_is_shown_as_it_would_be_asked(folder: Path) -> None:
    result = rehearse(folder, OTHER, Shop())
    assert result.status == "needs_input"
    assert result.pending_prompt is not None
    assert "500 if it is the input `limit`" in result.pending_prompt.message
    amount = step(result, "refund").arguments[1]
    assert (amount.place, amount.problem) == ("amount", "is asked for")
    answered = rehearse(folder, OTHER, Shop(), answers={"inputs": {"amount": 70}})
    assert answered.status == "ok"
    assert step(answered, "refund").arguments[1].value == 70


def test_a_guard_that_fails_is_shown_as_such(folder: Path) -> None:
    result = rehearse(folder, AS_RECORDED, Shop(status="cancelled"))
    assert result.status == "failed"
    assert result.failure is not None
    assert result.failure.error_type == "GuardFailed"
    (guard,) = [one for one in step(result, "refund").guards if "status" in one.guard]
    assert (guard.holds, guard.now) == (False, '"cancelled"')


def test_nothing_is_journalled_and_nothing_remembered(folder: Path, tmp_path: Path) -> None:
    before = (folder / "routine.yaml").read_bytes()
    with Memory(tmp_path / "em.db") as memory:
        answers = {"inputs": {"amount": 500}}
        shop = Shop()
        result = memory.run(folder, OTHER, shop.tools, dry_run=True, answers=answers)
        assert (result.status, shop.effects) == ("ok", [])
        assert list(memory.log.read()) == []
    assert (folder / "routine.yaml").read_bytes() == before


def test_it_is_the_same_under_asyncio(folder: Path) -> None:
    shop = Shop()
    result = asyncio.run(arun_routine(folder, AS_RECORDED, shop.tools, dry_run=True))
    assert (result.status, shop.effects) == ("ok", [])
    assert step(result, "refund").arguments[1].value == 100


def test_what_is_missing_is_raised(folder: Path) -> None:
    with pytest.raises(RoutineError, match="refund"):
        run_routine(folder, AS_RECORDED, {"get_order": Shop().get_order}, dry_run=True)


HAND_WRITTEN = """
name: plain
tools: [{name: look, effect: read}]
secrets: [{name: key}]
steps:
  - {id: a, type: tool.call, tool: look, args: {at: "{{ x }}"}, save_as: seen}
  - id: b
    type: tool.call
    tool: odd
    for_each: "{{ seen }}"
    as: item
    args: {value: "{{ item }}", key: "{{ key }}"}
  - {id: c, type: tool.call, tool: look, args: {at: after}, save_as: later}
  - {id: d, type: assert, check: "later == ['changed by b']"}
  - {id: e, type: tool.call, tool: odd, when: "x == 2", args: {value: 0}}
  - {id: f, type: return, value: "{{ seen }}"}
"""


def test_a_tool_of_unknown_effect_counts_as_a_write_and_secrets_stay_hidden(
    tmp_path: Path,
) -> None:
    (tmp_path / "routine.yaml").write_text(HAND_WRITTEN)
    tools = {"look": lambda at: [at, "second"], "odd": pytest.fail}
    result = run_routine(tmp_path, {"x": 1}, tools, secrets={"key": "hush-hush"}, dry_run=True)
    assert (result.status, result.output) == ("ok", [1, "second"])
    written = [one for one in result.planned if one.does == "write"]
    assert [(one.step, one.item, one.arguments[0].value) for one in written] == [
        ("b", 0, 1),
        ("b", 1, "second"),
    ]
    assert "hush-hush" not in str(result.planned)


def test_a_check_of_what_a_write_would_have_changed_is_not_a_failure(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(HAND_WRITTEN)
    tools = {"look": lambda at: [at], "odd": pytest.fail}
    result = run_routine(tmp_path, {"x": 1}, tools, secrets={"key": "hush-hush"}, dry_run=True)
    assert (result.status, step(result, "d").needs) == ("ok", ["the effect of b"])


ASKING = """
version: "1"
name: refund
tools:
  - {name: get_order, effect: read}
  - {name: refund, effect: write}
  - {name: send_mail, effect: write}
input_schema:
  type: object
  properties:
    order: {type: string, examples: ["#W1001"]}
    amount: {type: integer, examples: [100]}
    receipt: {type: string, examples: ["RC-1"]}
  required: [order]
asks: {amount: {recorded: 100, others: [250], candidates: [found.paid]}}
steps:
  - {id: get_order, type: tool.call, tool: get_order, args: {order: "{{ order }}"}, save_as: found}
  - id: refund
    type: tool.call
    tool: refund
    args: {order: "{{ order }}", amount: "{{ amount }}"}
  - id: send_mail
    type: tool.call
    tool: send_mail
    args: {order: "{{ order }}", receipt: "{{ receipt }}"}
  - {id: return, type: return, value: {refunded: "{{ amount }}"}}
"""


def test_an_input_that_the_run_would_ask_for_is_not_a_failure(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(ASKING)
    result = rehearse(tmp_path, {"order": "#W2002"}, Shop())
    assert (result.status, result.failure) == ("needs_input", None)
    assert result.pending_prompt is not None
    assert {field["name"] for field in result.pending_prompt.fields} == {"amount", "receipt"}
    assert step(result, "refund").arguments[1].problem == "is asked for"
    mail = step(result, "send_mail").arguments[1]
    assert (mail.source, mail.problem) == ("the input `receipt`", "is asked for")
    assert step(result, "return").needs == ["your answer"]
