"""Values are found in words only as words of their own, and nothing in them is overlooked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from em.runner.mentions import OPERATORS, Words, _is_code, is_chatter, stem, unread


@pytest.mark.parametrize(
    ("value", "text", "is_there"),
    [
        ("#W100", "cancel #W100.", True),
        ("#W100", "cancel #W1001", False),
        ("W100", "cancel #W100", False),
        ("card_55", "to gift_card_55", False),
        ("card_55", "to card_55, please", True),
        ("Shirt", "the T-Shirt", False),
        ("t-shirt", "the T-Shirt!", True),
        ("ana", "ana.silva@shop.example", False),
        ("ana.silva@shop.example", "I am ana.silva@shop.example.", True),
        ("12", "1.12", False),
        ("1.5", "1.5 litres", True),
        ("no", "nothing", False),
        (7, "order 7", True),
        ("", "anything", False),
        ("straße", "in der Straße 5", True),
    ],
)
def test_a_value_is_found_as_a_word_of_its_own(value: object, text: str, is_there: bool) -> None:
    assert bool(Words(text).find(value)) is is_there


@given(st.text(alphabet="ab #-_.1@", max_size=12), st.text(alphabet="ab1", min_size=1, max_size=3))
def test_what_is_found_stands_there(text: str, value: str) -> None:
    for span in Words(text).find(value):
        assert text[span.start : span.end].lower() == value.lower()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("please cancel it", []),
        ("cancel #W7 and card_55", ["#W7", "card_55"]),
        ("cancel {'color': 'red'}", ["{'color': 'red'}"]),
        ("cancel 'the red one'", ["the red one", "red"]),
        ("do not cancel it", ["not"]),
        ("cancel it if you can", ["if"]),
        ("cancel the lamp", ["lamp"]),
        ("cancelled and cancelling", []),
        ("storniere cancel", ["storniere"]),
    ],
)
def test_what_nothing_accounts_for_is_told(text: str, left: list[str]) -> None:
    found = unread(Words(text), ["cancel"])
    assert [one for one in found if one != "one"] == left


@given(st.sampled_from(sorted(OPERATORS)))
def test_a_word_that_changes_others_is_never_overlooked(word: str) -> None:
    assert word in unread(Words(f"cancel it {word} now"), ["cancel", word])
    assert not is_chatter(Words(f"I am {word} polite."))


@pytest.mark.parametrize("text", ["You are polite, organized.", "Thanks a lot", ""])
def test_talk(text: str) -> None:
    assert is_chatter(Words(text))


@pytest.mark.parametrize("text", ["Nichts davon", "I have 3", "I said 'stop'", "You are {'a': 1}"])
def test_what_is_more_than_talk(text: str) -> None:
    assert not is_chatter(Words(text))


def test_pieces_end_at_stops_but_not_within_a_record_or_a_number() -> None:
    text = "Pay 1.5 now; then {'a': 'b; c. d'}. Mail ana@shop.example.\nBye"
    words = Words(text)
    assert [text[a:b].strip() for a, b in words.pieces()] == [
        "Pay 1.5 now;",
        "then {'a': 'b; c. d'}.",
        "Mail ana@shop.example.",
        "Bye",
    ]


@pytest.mark.parametrize("word", ["returns", "returned", "returning", "return"])
def test_forms_of_a_verb_are_one_word(word: str) -> None:
    assert stem(word) == "return"


def test_a_hostile_record_is_only_text() -> None:
    assert Words("{__import__('os').system('x')}").literals == []
    assert Words("{" * 5000).literals == []


@given(st.text("a1@.-:/# ¹é€_", max_size=9))
def test_a_text_that_is_one_code_has_a_code_and_no_words(text: str) -> None:
    words = Words(text)
    if _is_code(text):
        assert any(span == (0, len(text)) for span, _ in words.codes())
        assert not words.plain()
