"""A type may have any name: none collides with what State, the classes or the sandbox use."""

from typing import Any

import pytest

from em import Memory
from em.llm import ScriptedClient

TYPES = ["Action", "Rule", "Alert", "Row", "Conflict", "Field", "Record", "Collection", "profile"]


@pytest.mark.parametrize("type_", TYPES)
def test_records_of_a_type_named_like_a_part_of_em_are_asked_by_their_plain_plural(
    memory: Memory, type_: str
) -> None:
    memory.observe("ana", {"name": "one"}, type=type_)
    plural = f"{type_.lower()}s"
    state = memory.checkpoint("ana")
    assert list(state.collections) == [plural]
    assert memory.ask("ana", code=f"len({plural})").value == 1
    assert memory.ask("ana", code=f"len(state.{plural})").value == 1
    code = f"def answer(state):\n    return [r.name for r in state.{plural}]"
    model = ScriptedClient([{"route": "code", "code": code, "parameters": {}}])
    assert memory.ask("ana", "Which?", llm=model).value == ["one"]
    assert len(state.collection(plural)) == len(getattr(state, f"{plural}_")) == 1


def test_a_rule_is_about_the_records_and_not_about_a_part_of_em(memory: Memory) -> None:
    memory.observe("ana", {"cost": 5}, type="Action")
    dear = {"op": ">", "left": {"item": "cost"}, "right": {"value": 3}}
    rule = {
        "id": "dear", "severity": "info", "message": "{cost} is much",
        "each": {"in": "actions", "where": dear},
    }  # fmt: skip
    memory.observe("ana", "Tell me of dear actions.", facts=[], rules=[rule])
    memory.checkpoint("ana")
    assert [one.message for one in memory.alerts("ana")] == ["5 is much"]


@pytest.mark.parametrize(
    "type_", ["Any", "Money", "State", "Rule", "Entry", "list", "int", "Sequence"]
)
def test_a_class_may_be_named_like_what_the_code_is_written_with(
    compiled: Any, memory: Memory, type_: str
) -> None:
    memory.observe("ana", {"n": 1, "day": "2024-05-02", "paid": "5 EUR"}, type=type_)
    (collection,) = memory.checkpoint("ana").collections
    assert memory.ask("ana", code=f"{collection}[0].n").value == 1


@pytest.mark.parametrize("name", ["datetime", "field", "tuple", "event_ids", "history", "list"])
def test_a_field_may_be_named_like_what_its_class_is_written_with(compiled: Any, name: str) -> None:
    given = {name: "2024-05-02", "date": "2024-05-03", "many": ["a"], "when": "10:30"}
    (found,) = (state := compiled(given)).things
    assert state.as_record(found) == given
