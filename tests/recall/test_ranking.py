"""What comes first: the user's own words in a chat, and what was said in a time that is named."""

from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random

import pytest

from em import Memory
from em.recall.question import read_question
from em.recall.rank import RankedWord, Weights, apart, best_of, score_words
from em.store.protocol import SHAPE_BITS
from em.text.terms import ASSISTANT, QUESTION

ADVICE = (
    "A budget tracker is a great project. For a budget tracker in Flask, sketch the budget "
    "tables first, then the tracker's routes, and then the deadline of each sprint. "
) * 6


def chat(memory: Memory, *turns: str) -> None:
    memory.observe_many(
        [
            {
                "subject": "ana",
                "text": text,
                "role": ("user", "assistant")[n % 2],
                "at": "2024-03-05",
            }
            for n, text in enumerate(turns)
        ]
    )


def test_in_a_chat_the_user_says_what_is_true_of_the_user() -> None:
    with Memory(":memory:") as memory:
        chat(
            memory,
            *("Hello there, how are you doing this fine morning?", ADVICE),
            *("Please note: the deadline of my budget tracker is the 3rd of May.", ADVICE),
            *("Thanks, that will do for now, see you later then.", ADVICE),
        )
        found = memory.recall("When is the deadline of my budget tracker?", "ana")
        assert found[0].text.startswith("Please note")


@pytest.mark.parametrize(
    "asked",
    ["Which museum did you recommend?", "the museum you told me about", "your advice on a museum"],
)
def test_a_question_for_the_assistants_words_finds_them(asked: str) -> None:
    with Memory(":memory:") as memory:
        chat(
            memory,
            *("I went to some museum of trains near here once, it was quite nice.", "Sounds good."),
            *("Tell me where to go.", "Go to the museum of modern art near the old bridge."),
        )
        assert memory.recall(asked, "ana")[0].role == "assistant"


def test_a_longer_text_is_not_better_without_limit() -> None:
    with Memory(":memory:") as memory:
        memory.observe(
            "ana", "My violin lessons are on Tuesdays with Vera in the old town.", at="2024-01-05"
        )
        padded = "violin " + " ".join(f"word{n}" for n in range(300))
        memory.observe("ana", padded, at="2024-02-05")
        assert memory.recall("violin", "ana")[0].text.startswith("My violin")


MOVES = {
    "2019-06-10": "I rented a flat in Faro",
    "2022-03-10": "I rented a flat in Braga",
    "2023-05-20": "I rented a flat in Porto",
    "2023-09-12": "I rented a flat in Lisbon",
    "2023-12-12": "I rented a flat in Evora",
}


def near_faro(texts: Sequence[str]) -> list[list[float]]:
    """A model for which every question means Faro."""
    return [[1.0, 0.0] if "Faro" in text or "?" in text else [0.3, 1.0] for text in texts]


@pytest.mark.parametrize("embedder", [None, near_faro])
@pytest.mark.parametrize(
    ("when", "where"),
    [
        ("since May 2022", ["Porto", "Lisbon", "Evora"]),
        ("between April and October 2023", ["Porto", "Lisbon"]),
        ("before 2023 but not before 2020", ["Braga"]),
        ("in the last six months", ["Lisbon", "Evora"]),
        ("over the past two weeks", ["Evora"]),
        ("on 5/20/2023", ["Porto"]),
        ("after May 2023", ["Lisbon", "Evora"]),
    ],
)
def test_a_named_time_comes_first_whatever_meaning_says(
    embedder: object, when: str, where: list[str]
) -> None:
    with Memory(":memory:", embedder=embedder) as memory:  # type: ignore[arg-type]  # one or none
        for n, (day, text) in enumerate(MOVES.items()):
            memory.observe("ana", text, at=day, session=str(n))
        found = memory.recall(f"Where did Ana rent a flat {when}?", "ana", now="2023-12-15")
        first = {passage.text.split()[-1] for passage in found[: len(where)]}
        if when.startswith("before"):
            assert first <= {"Faro", "Braga"}
        else:
            assert first == set(where)


def test_a_named_time_without_any_passage_changes_nothing() -> None:
    with Memory(":memory:") as memory:
        memory.observe("ana", "I rented a flat in Faro", at="2019-06-10")
        assert memory.recall("the flat before 1990", "ana")[0].text.endswith("Faro")


@pytest.mark.parametrize(
    ("asked", "many"),
    [
        ("How many bikes do I have?", True),
        ("Which books has Ana read?", True),
        ("a summary of my project", True),
        ("Where does Ana live?", False),
        ("When did I buy the bike?", False),
    ],
)
def test_a_question_that_counts_or_lists_is_known(asked: str, *, many: bool) -> None:
    nobody = read_question(
        asked, datetime(2024, 1, 1, tzinfo=UTC), lambda stems: [False] * len(stems)
    )
    assert nobody.of_many is many


def test_places_far_apart_keep_their_scores() -> None:
    assert apart({1: 1.0, 9: 0.9, 20: 0.8}, 0.5) == {1: 1.0, 9: 0.9, 20: 0.8}
    assert apart({1: 1.0, 2: 0.9, 20: 0.8}, 0.5) == {1: 1.0, 20: 0.8, 2: 0.45}
    assert list(apart({1: 1.0, 2: 1.0, 3: 1.0}, 0.5)) == [3, 2, 1]


def _random_words(seed: int, count: int) -> list[RankedWord]:
    random = Random(seed)
    words = []
    for weight in (5.0, 3.0, 1.5):
        numbers = sorted(random.sample(range(count), random.randint(1, count // 8)), reverse=True)
        shapes = [random.choice((4, 14, 20, 14 | QUESTION, 20 | ASSISTANT)) for _ in numbers]
        postings = [n << SHAPE_BITS | shape for n, shape in zip(numbers, shapes, strict=True)]
        words.append(RankedWord(weight, postings, spreads=weight > 2))
    return words


@pytest.mark.parametrize("seed", range(20))
def test_the_best_are_the_same_if_only_the_best_are_wanted(seed: int) -> None:
    words = _random_words(seed, 60 * (1 + seed % 7) ** 2)
    every = best_of(score_words(words, Weights()), 50)
    wanted = best_of(score_words(words, Weights(), 50), 50)
    assert [number for _, number in wanted] == [number for _, number in every]
    assert [score for score, _ in wanted] == pytest.approx([score for score, _ in every])


def test_what_stands_alone_in_a_large_scope_is_not_scored_unless_it_is_among_the_best() -> None:
    def scored(scale: int) -> int:
        frequent = [n * 20 << SHAPE_BITS | n % 30 for n in range(100 * scale, 0, -1)]
        words = [RankedWord(5.0, [7 << SHAPE_BITS | 14]), RankedWord(1.0, frequent)]
        return len(score_words(words, Weights(), 50))

    assert scored(10) < 10 * scored(1) / 2


@pytest.mark.parametrize("count", [1, 30, 300, 5_000])
def test_the_best_are_the_highest_and_of_equal_ones_the_newest(count: int) -> None:
    random = Random(count)
    scores = {n: random.choice((0.1, 0.2, 0.3, random.random())) for n in range(count)}
    best = sorted(((score, n) for n, score in scores.items()), reverse=True)
    assert best_of(scores, 50) == best[:50]


def test_words_that_frame_a_question_count_less_than_what_it_is_about() -> None:
    with Memory(":memory:") as memory:
        memory.observe("ana", "Let me mention and describe the list in detail for you again.")
        for n in range(6):
            memory.observe("ana", f"Entirely unrelated talk number {n} about the weather.")
        memory.observe("ana", "The garden at the back has a pond with frogs in it now.")
        for n in range(6):
            memory.observe("ana", f"More unrelated talk number {n} about the garden party.")
        found = memory.recall("mention and describe the garden pond", "ana")
        assert "pond" in found[0].text


def test_what_asks_comes_behind_what_tells() -> None:
    with Memory(":memory:") as memory:
        for n, text in enumerate(("Was the old bridge closed?", "The old bridge was closed.")):
            memory.observe("ana", text, session=str(n), at="2025-01-01")
            memory.observe("ana", text, session=f"{n} later", at="2025-02-01")
        found = [one.text for one in memory.recall("old bridge closed", "ana")]
        assert [text.endswith("?") for text in found] == [False, False, True, True]
        asked = memory.recall("what did Ana ask about the old bridge", "ana")
        assert asked[0].score == asked[-1].score
