"""What comes first: the user's own words in a chat, and what was said in a time that is named."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from em import Memory
from em.recall.question import read_question
from em.recall.rank import apart

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
