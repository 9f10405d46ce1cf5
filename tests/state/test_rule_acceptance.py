"""Rules that a model derived are proposals: they warn as such, and a person accepts or rejects."""

from typing import Any

import pytest

from em import Memory
from em.errors import NotFound
from em.llm import ScriptedClient
from em.state.code import load_module


def rule(limit: int = 100) -> dict[str, Any]:
    return {
        "id": "limit",
        "severity": "warning",
        "action": "spend",
        "message": "{amount} is more than she wants",
        "when": {"op": ">", "left": {"detail": "amount"}, "right": {"value": limit}},
        "events": ["e1"],
    }


def derive(memory: Memory, *rules: dict[str, Any], text: str = "A limit.") -> Any:
    memory.observe("ana", text)
    reply = {"facts": [], "constraints": list(rules)}
    return memory.checkpoint("ana", llm=ScriptedClient([reply]))


def printed(state: Any) -> list[Any]:
    """The rules of the module that people see, which has the same fields as the one that runs."""
    shown, run = load_module(state.code).RULES, state.module.RULES
    for name in ("id", "severity", "message", "action", "deadline", "event_ids", "proposed"):
        assert [getattr(one, name) for one in shown] == [getattr(one, name) for one in run]
    return [(one.id, one.proposed, one.action, one.each) for one in shown]


def test_a_derived_rule_is_shown_and_fires_as_a_proposal_until_it_is_accepted(
    memory: Memory,
) -> None:
    state = derive(memory, rule())
    assert state.report.proposed == ["limit"]
    assert [(one.id, one.verdict) for one in state.rules] == [("limit", "proposed")]
    (fired,) = memory.check("ana", "spend", amount=200)
    assert fired.proposed
    assert printed(state) == [("limit", True, "spend", None)]
    memory.accept_rule("ana", "limit")
    (fired,) = memory.check("ana", "spend", amount=200)
    assert not fired.proposed
    assert printed(memory.state("ana")) == [("limit", False, "spend", None)]
    assert memory.checkpoint("ana").report.proposed == []


def test_a_rejected_rule_never_fires_also_when_it_is_derived_again(memory: Memory) -> None:
    derive(memory, rule())
    memory.reject_rule("ana", "limit")
    assert memory.check("ana", "spend", amount=200) == []
    state = derive(memory, rule(), text="The limit again.")
    assert state.report.proposed == []
    assert state.check("spend", amount=200) == []
    assert memory.checkpoint("ana", rebuild=True).check("spend", amount=200) == []


def test_a_rule_that_changed_is_proposed_anew(memory: Memory) -> None:
    derive(memory, rule())
    memory.accept_rule("ana", "limit")
    state = derive(memory, rule(50), text="Another limit.")
    assert state.report.proposed == ["limit"]
    (fired,) = state.check("spend", amount=60)
    assert fired.proposed
    rebuilt = memory.checkpoint("ana", rebuild=True)
    assert [one.verdict for one in rebuilt.rules] == ["proposed"]


def test_a_verdict_is_a_decision_that_can_be_taken_back(memory: Memory) -> None:
    derive(memory, rule())
    decided = memory.reject_rule("ana", "limit")
    memory.undo("ana", decided)
    state = memory.checkpoint("ana")
    assert [one.verdict for one in state.rules] == ["proposed"]
    assert len(state.check("spend", amount=200)) == 1


def test_a_rule_that_is_not_there_can_not_be_accepted(memory: Memory) -> None:
    derive(memory)
    with pytest.raises(NotFound, match="no rule 'limit'"):
        memory.accept_rule("ana", "limit")


def test_the_prompt_teaches_the_rules_that_the_checker_takes(memory: Memory) -> None:
    memory.observe("ana", {"with": "Bo", "date": "2025-06-01", "time": "19:30"}, type="Dinner")
    memory.observe("ana", "Warn me when two dinners are at the same time.")
    model = ScriptedClient([{"facts": []}])
    memory.checkpoint("ana", llm=model)
    prompt = model.requests[0].system
    for word in ('"each"', '"outer"', '"now"', "mentions", "days_remaining", '"plus"'):
        assert word in prompt
