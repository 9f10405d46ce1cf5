"""A reranker reorders the best passages, and an embedder that fails costs nothing else."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from em import Memory
from em.settings import EmbedSettings, Settings
from em.store.protocol import Passage


def test_a_reranker_sees_the_question_and_a_hundred_and_decides_the_order() -> None:
    asked: list[tuple[str, int]] = []

    def by_length(question: str, passages: Sequence[Passage]) -> list[float]:
        asked.append((question, len(passages)))
        return [float(len(passage.text)) for passage in passages]

    with Memory(":memory:", reranker=by_length) as memory:
        memory.observe_many([("ana", "a key" + " of iron" * n) for n in range(120)])
        found = memory.recall("the key", "ana", k=3)
        assert asked == [("the key", 100)]
        assert [len(one.text) for one in found] == sorted(
            (len(o.text) for o in found), reverse=True
        )
        assert found[0].score == len(found[0].text)
        assert not found.notes


@pytest.mark.parametrize(
    ("rerank", "note"),
    [
        (lambda _q, _p: 1 / 0, "ZeroDivisionError"),
        (lambda _q, _p: [1.0], "expected 2 finite scores, got 1"),
        (lambda _q, p: [float("nan")] * len(p), "finite"),
        (lambda _q, _p: ["x", "y"], "ValueError"),
        (lambda _q, _p: time.sleep(5), "no answer within 0.05 seconds"),
    ],
)
def test_a_reranker_that_fails_leaves_the_order(rerank: object, note: str) -> None:
    settings = Settings(embed=EmbedSettings(timeout=0.05))
    with Memory(":memory:", reranker=rerank, settings=settings) as memory:  # type: ignore[arg-type]  # wrong ones too
        memory.observe("ana", "the red key")
        memory.observe("ana", "the blue key and more")
        found = memory.recall("red key", "ana")
        assert found[0].text == "the red key"
        assert note in " ".join(found.notes)


def picky(texts: Sequence[str]) -> list[list[float]]:
    if any("poison" in text for text in texts):
        raise RuntimeError("too long")
    return [[float(len(text)), 1.0] for text in texts]


def test_a_text_that_can_not_be_embedded_costs_no_other_its_vector() -> None:
    with Memory(":memory:", embedder=picky) as memory:
        memory.observe_many([("ana", f"plain text {n}") for n in range(100)])
        memory.observe("ana", "poison in the well")
        memory.observe_many([("ana", f"another text {n}") for n in range(100)])
        assert memory.embed() == 1
        found = memory.recall("in the well", "ana")
        assert found[0].text == "poison in the well"
        assert found.notes == ["1 passages have no vector yet; run `em recall --embed`"]


def test_a_slow_embedder_is_waited_for_as_long_as_the_setting_says() -> None:
    def slow(_texts: Sequence[str]) -> list[list[float]]:
        time.sleep(5)
        return []

    with Memory(
        ":memory:", embedder=slow, settings=Settings(embed=EmbedSettings(timeout=0.05))
    ) as memory:
        memory.observe("ana", "the red key")
        found = memory.recall("red key", "ana")
        assert [one.text for one in found] == ["the red key"]
        assert "no answer within 0.05 seconds" in found.notes[0]
        assert found.notes[1] == "1 passages have no vector"


def test_what_another_process_adds_after_something_was_forgotten_gets_its_vector(
    tmp_path: Path,
) -> None:
    seen: list[str] = []

    def embed(texts: Sequence[str]) -> list[list[float]]:
        seen.extend(texts)
        return [[float(len(text)), 1.0] for text in texts]

    with Memory(tmp_path / "em.db", embedder=embed) as one, Memory(tmp_path / "em.db") as other:
        first = one.observe("ana", "one zebra")
        one.observe("ana", "two zebras")
        one.recall("zebra")
        other.forget(first)
        other.observe("ana", "three giraffes")
        assert not one.recall("zebra").notes
    assert "three giraffes" in seen
