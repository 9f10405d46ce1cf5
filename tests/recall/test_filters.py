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


def test_what_stands_beside_a_hit_is_of_the_same_place_too() -> None:
    with Memory(":memory:") as memory:
        memory.observe("ana", "a secret of the other tenant", metadata={"tenant": "b"})
        memory.observe("ana", "where is the key", role="user", metadata={"tenant": "a"})
        memory.observe("ana", "below the mat", role="assistant", metadata={"tenant": "a"})
        (hit,) = memory.recall("key", role="user", metadata={"tenant": "a"}, neighbours=2)
        assert [one.text for one in hit.neighbours] == ["below the mat"]
        assert hit.metadata == {"tenant": "a"}


def test_a_rare_voice_is_found_among_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("em.recall.rank.SPREAD", 10)
    monkeypatch.setattr("em.recall.rank.BEST", 5)
    with Memory(":memory:") as memory:
        memory.observe("ana", "the blue key and the red door", speaker="Zoe")
        for n in range(60):
            memory.observe("ana", f"the blue key and the red door {n}", speaker="Ana")
        found = memory.recall("blue key red door", "ana", speaker="Zoe")
        assert [passage.speaker for passage in found] == ["Zoe"]


@pytest.mark.parametrize(
    "wrong", [{"role": 5}, {"metadata": {"a": None}}, {"metadata": {"a": ["x"]}}, {"run": b"x"}]
)
def test_a_filter_that_is_none_is_refused(wrong: dict[str, object]) -> None:
    with Memory(":memory:") as memory, pytest.raises(InputError):
        memory.recall("x", **wrong)  # type: ignore[arg-type]  # that is the test
