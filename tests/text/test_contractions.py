"""`I'm` and `I am` are the same words, and a negation stays one."""

import pytest

from em.text.contractions import expanded


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("I'm here.", "I am here."),
        ("i’d like it", "i would like it"),
        ("Don't go, it's late.", "Do not go, it is late."),
        ("You can't; I won't; we cannot.", "You can not; I will not; we can not."),
        ("Dont, didnt and isn't", "Do not, did not and is not"),
        ("Let's go, they've come and she'll stay.", "Let us go, they have come and she will stay."),
        ("Ana's book, the dogs' bowl, its lid, well-known", None),
        ("He said 'it' and 'm'.", None),
        ("were, well, ill, id, shed and wed are words", None),
    ],
)
def test_contractions_get_one_form(short: str, long: str | None) -> None:
    assert expanded(short).text == (long or short)


@pytest.mark.parametrize(
    "word", "don't dont doesn’t didn't can't cannot won't wouldn't isn't aren't haven't".split()
)
def test_a_negation_stays_one(word: str) -> None:
    assert "not" in expanded(f"I {word} it").text.split()


def test_a_part_of_an_expanded_text_is_known_as_it_was_written() -> None:
    made = expanded("I'm Ana, don't wait: it's O'Neil's 'can't stop'.")
    assert made.text == "I am Ana, do not wait: it is O'Neil's 'can not stop'."
    start = made.text.index("O'Neil")
    assert made.original(start, len(made.text)) == "O'Neil's 'can't stop'."
    assert made.original(0, len(made.text)) == made.source
    assert made.original(5, 8) == "Ana"
    cut = made.text.index("not wait")
    assert made.original(cut, cut + 8) == "not wait", "half of a negation is one"
