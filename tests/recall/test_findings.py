"""What a critic found in recall, and must not come back."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from em import Memory

T0 = datetime(2025, 3, 7, 10, 0, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return Memory(tmp_path / "em.db")


@pytest.mark.parametrize("text", ["½" * 2_000, "ﷺ" * 2_000, "㍿" * 600])
def test_signs_that_are_several_words_each_are_taken_in(memory: Memory, text: str) -> None:
    memory.observe("ana", text)
    memory.observe("ana", "a zebra")
    assert "a zebra" in [found.text for found in memory.recall("zebra", "ana")]


def test_the_end_of_time_is_a_time(memory: Memory) -> None:
    memory.observe("ana", "it happens today", at="9999-12-31")
    assert memory.recall("today", "ana", now="9999-12-31T10:00:00Z")


def test_times_bound_also_what_stands_beside_a_hit(memory: Memory) -> None:
    for hours, text in enumerate(("the zebra escaped", "we called the zoo", "they came quickly")):
        memory.observe("ana", text, at=T0 + timedelta(hours=hours), session="s")
    until = T0 + timedelta(minutes=30)
    found = memory.recall("zebra", "ana", until=until, neighbours=2)
    assert [passage.text for passage in found] == ["the zebra escaped"]
    assert list(found[0].neighbours) == []
    late = memory.recall("zebra zoo", "ana", since=until)
    assert "the zebra escaped" not in [passage.text for passage in late]


def test_a_word_that_nobody_used_does_not_empty_the_answer(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("em.recall.search.POSTINGS", 50)
    memory.observe_many(("ana", f"alpha n{n}") for n in range(120))
    memory.observe("ana", "alpha tango")
    assert len(memory.recall("alpha zzzunknown", "ana")) == 10
    assert memory.recall("alpha tango", "ana")[0].text == "alpha tango"


def test_one_long_event_does_not_take_the_places_of_others(memory: Memory) -> None:
    for n in range(9):
        memory.observe("ana", f"budget item {n} small note", session=str(n))
    memory.observe("ana", "The budget was discussed in the meeting. " * 7_000, session="long")
    assert len(memory.recall("budget meeting", "ana")) == 10


def test_what_comes_after_a_forgotten_one_gets_its_vector(tmp_path: Path) -> None:
    seen: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        seen.extend(texts)
        return [[float(len(text)), 1.0] for text in texts]

    with Memory(tmp_path / "em.db", embedder=embed) as memory:
        first = memory.observe("ana", "one zebra")
        memory.observe("ana", "two zebras")
        memory.recall("zebra", "ana")
        memory.forget(first)
        memory.observe("ana", "three giraffes")
        memory.recall("zebra", "ana")
    assert any("three giraffes" in text for text in seen)
