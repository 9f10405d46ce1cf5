"""A dry run makes the reads, and shows each call with an effect without making it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.errors import RoutineError
from em.runner.preparation import aprepare_routine, prepare_routine
from em.runner.run import Planned, Prepared

REFUND = """
name: refund
checks: hand_over
input_schema:
  type: object
  required: [order, limit]
  properties: {order: {type: string}, limit: {type: integer}}
tools:
  - {name: get_order, effect: read}
  - {name: refund, effect: write}
  - {name: send_mail, effect: write}
steps:
  - id: get_order
    type: tool.call
    tool: get_order
    args: {order: "{{ order }}"}
    save_as: found
    expect: {properties: {status: {const: delivered}}}
    held: 1/1
  - id: approval
    type: prompt.user
    prompt: {message: "Refund {{ order }}?", fields: [{name: answer, type: confirm}]}
    save_as: approval
  - {id: agreed, type: assert, check: approval.answer}
  - id: refund
    type: tool.call
    tool: refund
    args: {order: "{{ found.id }}", amount: "{{ limit }}"}
    expect: {required: [receipt]}
    save_as: refunded
  - id: send_mail
    type: tool.call
    tool: send_mail
    args: {order: "{{ order }}", receipt: "{{ refunded.receipt }}"}
  - {id: return, type: return, value: {receipt: "{{ refunded.receipt }}"}}
"""
AS_RECORDED = {"order": "#W1001", "limit": 100}
YES = {"approval": {"answer": True}}


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
    (tmp_path / "refund").mkdir()
    (tmp_path / "refund" / "routine.yaml").write_text(REFUND)
    return tmp_path / "refund"


def rehearse(folder: Path, given: Any, shop: Shop, **more: Any) -> Prepared:
    result = prepare_routine(folder, given, shop.tools, **more)
    assert shop.effects == []
    return result


def step(result: Prepared, name: str) -> Planned:
    (found,) = [one for one in result.planned if one.step == name]
    return found


def test_a_write_is_shown_with_its_values_their_sources_and_what_it_must_return(
    folder: Path,
) -> None:
    shop = Shop()
    result = rehearse(folder, AS_RECORDED, shop, answers=YES)
    assert (result.status, shop.reads) == ("ok", ["#W1001"])
    refund = step(result, "refund")
    assert (refund.does, refund.tool) == ("write", "refund")
    shown = {one.place: (one.value, one.source) for one in refund.arguments}
    assert shown == {"order": ("#W1001", "`found.id`"), "amount": (100, "the input `limit`")}
    assert refund.expects == ["`refunded` has receipt"]


def test_what_needs_the_result_of_a_write_says_so(folder: Path) -> None:
    result = rehearse(folder, AS_RECORDED, Shop(), answers=YES)
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
    given = rehearse(folder, AS_RECORDED, Shop(), answers=YES)
    assert {one.step for one in given.planned} == {"refund", "send_mail", "return"}
    refused = rehearse(folder, AS_RECORDED, Shop(), answers={"approval": {"answer": False}})
    assert refused.reason is not None
    assert refused.reason.step_id == "agreed"


def test_a_missing_input_is_asked_for_as_a_run_would(folder: Path) -> None:
    shop = Shop()
    result = rehearse(folder, {"order": "#W2002"}, shop)
    assert (result.status, result.failure, shop.reads) == ("needs_input", None, [])
    assert result.pending_prompt is not None
    assert [field["name"] for field in result.pending_prompt.fields] == ["limit"]
    answered = rehearse(
        folder, {"order": "#W2002"}, Shop(), answers={**YES, "inputs": {"limit": 70}}
    )
    assert answered.status == "ok"
    assert step(answered, "refund").arguments[1].value == 70


def test_a_check_that_fails_is_shown_as_the_reason(folder: Path) -> None:
    result = rehearse(folder, AS_RECORDED, Shop(status="cancelled"))
    assert (result.status, result.failure) == ("needs_input", None)
    assert result.reason is not None
    assert (result.reason.step_id, result.reason.held) == ("get_order", "1/1")
    assert (result.reason.check, result.reason.now) == ("found.status", "cancelled")


def test_nothing_is_journalled(folder: Path, tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        shop = Shop()
        result = memory.prepare(folder, AS_RECORDED, shop.tools, answers=YES)
        assert (result.status, shop.effects) == ("ok", [])
        assert list(memory.log.read()) == []


def test_it_is_the_same_under_asyncio(folder: Path) -> None:
    shop = Shop()
    result = asyncio.run(aprepare_routine(folder, AS_RECORDED, shop.tools, answers=YES))
    assert (result.status, shop.effects) == ("ok", [])
    assert step(result, "refund").arguments[1].value == 100


def test_what_is_missing_is_raised(folder: Path) -> None:
    with pytest.raises(RoutineError, match="refund"):
        prepare_routine(folder, AS_RECORDED, {"get_order": Shop().get_order})


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
    result = prepare_routine(tmp_path, {"x": 1}, tools, secrets={"key": "hush-hush"})
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
    result = prepare_routine(tmp_path, {"x": 1}, tools, secrets={"key": "hush-hush"})
    assert (result.status, step(result, "d").needs) == ("ok", ["the effect of b"])
