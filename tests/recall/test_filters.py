"""Narrow a search by who said it, where, and by fields of the caller's own."""

import pytest

from em import Memory
from em.errors import InputError


def test_an_observation_keeps_its_agent_run_and_own_fields() -> None:
    with Memory(":memory:") as memory:
        given = {"project": "atlas", "ticket": 42, "tags": ["a", "b"]}
        one = memory.observe("ana", "It works.", agent="coder", run="r7", metadata=given)
        (two,) = memory.observe_many([{"subject": "ana", "text": "Yes.", "metadata": given}])
        bodies = {event.id: event.body for event in memory.log.read()}
        assert bodies[one]["agent"] == "coder"
        assert bodies[one]["run"] == "r7"
        assert bodies[one]["metadata"] == bodies[two]["metadata"] == given


@pytest.mark.parametrize("wrong", [{"": 1}, {"a": None}, {"a": {"b": 1}}, {"k" * 129: 1}])
def test_own_fields_are_named_texts_numbers_truth_values_or_lists(wrong: dict[str, object]) -> None:
    with Memory(":memory:") as memory, pytest.raises(InputError):
        memory.observe("ana", "It works.", metadata=wrong)
