"""Words that are introduced as a test, a question, an example or a quotation state nothing."""

import pytest

from em.state.frames import FRAMINGS, framing_of

ASKED = "Cancel #W80203, no longer needed."
FRAMED = [
    "This is a test.",
    "This is only a test:",
    "Hi, just testing,",
    "It was just a joke.",
    "I'm only asking:",
    "It's a test.",
    "It’s only a joke.",
    "Here's an example.",
    "Let us pretend.",
    "Just out of curiosity, just wondering:",
    "I just want to know:",
    "I have a question.",
    "My question:",
    "What happens if I say this?",
    "For example:",
    "Here is an example.",
    "E.g.",
    "She wrote:",
    "The customer says:",
    "Fwd:",
    "I quote:",
    "Suppose this:",
    "Hypothetically,",
    "Let's pretend.",
    "Das ist nur ein Test.",
    "Zum Beispiel:",
    "Mein Kunde schrieb:",
    "Ich frage nur:",
    "C'est juste un test.",
    "Par exemple,",
    "Esto es solo una prueba.",
    "Por ejemplo:",
    "Es una broma.",
]
PLAIN = [
    "Cancel my test order #W1.",
    "Could you cancel #W1?",
    "I was wondering if you could cancel #W1.",
    "Send the message 'This is a test.' to Ana.",
    'Post "For example: nothing" now.',
    "Book the demo flight.",
    "I am ana@shop.example. Cancel #W1.",
    "I need an example copy of #W1.",
    "I asked my question yesterday and now I want to cancel #W1.",
    "Exchange it for the sample with the same size.",
]


@pytest.mark.parametrize("words", FRAMED)
def test_an_introduction_is_noticed(words: str) -> None:
    assert framing_of(f"{words} {ASKED}") is not None
    assert framing_of(f"Good morning! {words} {ASKED}") is not None


@pytest.mark.parametrize("words", PLAIN)
def test_a_request_is_not_taken_for_one(words: str) -> None:
    assert framing_of(words) is None


def test_each_row_of_the_table_has_its_source() -> None:
    assert {one.language for one in FRAMINGS} == {"en", "de", "fr", "es"}
    assert all(one.source.startswith("wiktionary:") for one in FRAMINGS)
    for language in ("en", "de", "fr", "es"):
        kinds = {one.kind for one in FRAMINGS if one.language == language}
        assert kinds == {"test", "question", "example", "quotation", "supposition"}
