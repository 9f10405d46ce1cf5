"""A type may have any name: none collides with what State, the classes or the sandbox use."""

from typing import Any

import pytest

from em import Memory
from em.llm import ScriptedClient
from em.state.state import State
from em.state.subjects import Subjects


def every_attribute_of_a_state() -> list[str]:
    """The attributes of State in this version of em, whatever they are."""
    return [name for name in dir(State) if not name.startswith("_")]


@pytest.mark.parametrize("type_", ["Action", "Row", "Conflict", "Report", "Field", "profile"])
def test_records_of_a_type_named_like_a_part_of_em_are_counted(memory: Memory, type_: str) -> None:
    memory.observe("ana", {"name": "one"}, type=type_)
    state = memory.checkpoint("ana")
    (collection,) = state.collections
    assert len(getattr(state, collection)) == 1
    assert memory.ask("ana", code=f"len({collection})").value == 1
    code = f"def answer(state):\n    return [r.name for r in state.{collection}]"
    model = ScriptedClient([{"route": "code", "code": code, "parameters": {}}])
    assert memory.ask("ana", "Which?", llm=model).value == ["one"]


def test_no_attribute_of_a_state_is_hidden_by_a_collection(memory: Memory) -> None:
    names = every_attribute_of_a_state()
    types = {kind.capitalize() for name in names for kind in (name, name.removesuffix("s"))}
    for type_ in types - {"Profile"}:
        memory.observe("ana", {"n": 1}, type=type_)
    state = memory.checkpoint("ana")
    assert not state.collections.keys() & set(names)
    assert {len(getattr(state, name)) for name in state.collections} == {1}
    assert len(state.collections) == len(types - {"Profile"})


@pytest.mark.parametrize("name", ["datetime", "field", "tuple", "event_ids", "history", "list"])
def test_a_field_may_be_named_like_what_its_class_is_written_with(compiled: Any, name: str) -> None:
    given = {name: "2024-05-02", "date": "2024-05-03", "many": ["a"], "when": "10:30"}
    (found,) = (state := compiled(given)).things
    assert state.as_record(found) == given


def test_a_state_that_an_older_em_gave_a_taken_name_is_compiled_again(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.observe("ana", {"name": "one"}, type="Action")
    with monkeypatch.context() as older:
        older.setattr("em.state.types.reserved_collections", frozenset)
        older.setattr(Subjects, "_is_outdated", lambda *_given: False)
        assert list(memory.checkpoint("ana").collections) == ["actions"]
    state = memory.state("ana")
    assert list(state.collections) == ["actions_"]
    assert [one.name for one in state.actions_] == ["one"]
