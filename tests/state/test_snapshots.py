"""A state is a snapshot of its version: what is compiled later never shows in it."""

from typing import Any

import pytest
from tests.careful import careful

from em import Memory
from em.state.rows import BLOCK_ROWS


def trip(number: int) -> dict[str, Any]:
    return {"to": f"City {number}", "date": "2024-05-02"}


def observe(memory: Memory, first: int, last: int) -> None:
    memory.observe_many(
        {"subject": "ana", "record": trip(number), "type": "Trip"} for number in range(first, last)
    )


@pytest.mark.parametrize("more", [1, BLOCK_ROWS, 3 * BLOCK_ROWS])
def test_version_1_shows_its_own_records_whatever_came_later(memory: Memory, more: int) -> None:
    observe(memory, 0, 3)
    memory.observe("ana", {"city": "Faro"}, type="Profile", at="2024-01-01")
    memory.checkpoint("ana")
    held = memory.state("ana")  # nothing of it is loaded yet
    observe(memory, 3, 3 + more)
    memory.observe("ana", {"city": "Porto"}, type="Profile", at="2025-01-01")
    assert len(memory.checkpoint("ana").trips) == 3 + more
    for state in (held, memory.subjects.state("ana", version=1)):
        assert [one.to for one in state.trips] == ["City 0", "City 1", "City 2"]
        assert len(state.rows("trips")) == 3
        assert state.profile.city == "Faro"
        assert len(state.history("city")) == 1
        assert state.conflicts() == []
    assert memory.state("ana").profile.city == "Porto"


def test_a_version_before_a_type_changed_reads_as_it_did(memory: Memory) -> None:
    memory.observe("ana", {"n": "5"}, type="Thing")
    memory.checkpoint("ana")
    memory.observe("ana", {"n": "five"}, type="Thing")
    memory.checkpoint("ana", accept=True)
    assert [one.n for one in memory.subjects.state("ana", version=1).things] == [5]
    assert [one.n for one in memory.state("ana").things] == ["5", "five"]


def test_a_version_before_a_key_was_declared_and_before_a_decision(memory: Memory) -> None:
    for city in ("Rome", "Oslo"):
        memory.observe("ana", {"email": "b@x.org", "city": city}, type="Contact")
    memory.checkpoint("ana")
    memory.declare("ana", "Contact", "email")
    memory.checkpoint("ana", accept=True)
    memory.resolve("ana", "Contact.city", value="Bern", key=["b@x.org"])
    memory.checkpoint("ana")
    shown = [
        [one.city for one in memory.subjects.state("ana", version=number).contacts]
        for number in (1, 2, 3)
    ]
    assert shown == [["Rome", "Oslo"], ["Oslo"], ["Bern"]]


def test_a_version_before_a_model_read_the_texts(memory: Memory) -> None:
    event = memory.observe("ana", "The trip to Rome was nice.")
    memory.checkpoint("ana")
    found = {"op": "add", "type": "Trip", "record": {"to": "Rome"}, "evidence": ["trip to Rome"]}
    reply = {**found, "events": ["e1"], "status": "stated"}
    model = careful({"facts": [reply]})
    assert len(memory.checkpoint("ana", llm=model, again=True).trips) == 1
    old = memory.subjects.state("ana", version=1)
    assert list(old.collections) == []
    assert [one.event_id for one in old.unstructured] == [event]
    assert memory.state("ana").unstructured == []


def test_what_was_forgotten_is_in_no_version(memory: Memory) -> None:
    observe(memory, 0, 2)
    gone = memory.observe("ana", trip(2), type="Trip")
    memory.checkpoint("ana")
    held = memory.state("ana")
    observe(memory, 3, 4)
    memory.checkpoint("ana")
    memory.forget([gone])
    memory.checkpoint("ana")
    assert [one.to for one in held.trips] == ["City 0", "City 1"]


def test_the_newest_version_is_read_from_the_store_and_not_from_the_log(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    observe(memory, 0, 3)
    state = memory.checkpoint("ana")
    monkeypatch.setattr("em.state.state.sort_events", None)
    assert len(state.trips) == len(memory.state("ana").trips) == 3
