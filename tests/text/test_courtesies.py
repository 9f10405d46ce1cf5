import pytest

from em.text.courtesies import begun, courtesies, ended, is_courteous, is_courtesy


@pytest.mark.parametrize(
    "words",
    ["hi", "hello there", "good morning", "hey team", "thanks", "thank you very much",
     "thanks for your help", "many thanks in advance", "hi and thanks", "best regards", "please",
     "ok thanks", "hello again"],
)  # fmt: skip
def test_words_that_only_greet_or_thank(words: str) -> None:
    assert is_courtesy(words)


@pytest.mark.parametrize(
    "words",
    ["", "dear all", "again", "for all", "all", "you", "no thanks", "thanks for nothing", "good",
     "for you", "hi ana", "thanks but wait", "good morning for all", "day", "for your help"],
)  # fmt: skip
def test_words_that_may_say_something(words: str) -> None:
    assert not is_courtesy(words)


@pytest.mark.parametrize(
    ("text", "before", "rest"),
    [
        ("Please close it", "Please ", "close it"),
        ("Good morning! Hi, pls close it", "Good morning! Hi, pls ", "close it"),
        ("hey close it", "hey ", "close it"),
        ("Please, close it", "Please, ", "close it"),
        ("Ok? Close it", "", "Ok? Close it"),
        ("Highlight it", "", "Highlight it"),
        ("Thanks to Ana, close it", "", "Thanks to Ana, close it"),
    ],
)
def test_what_a_text_begins_with(text: str, before: str, rest: str) -> None:
    assert begun(text) == (before, rest)


@pytest.mark.parametrize(
    ("text", "rest", "behind"),
    [
        ("Close it.", "Close it", "."),
        ("Close it, please!", "Close it", ", please!"),
        ("Close it. Thank you very much!", "Close it", ". Thank you very much!"),
        ("Close it pls, thanks a lot", "Close it", " pls, thanks a lot"),
        ("Close it...", "Close it..", "."),
        ("Close it?", "Close it?", ""),
        ("Close it. No thanks to Bob", "Close it. No thanks to Bob", ""),
    ],
)
def test_what_a_text_ends_with(text: str, rest: str, behind: str) -> None:
    assert ended(text) == (rest, behind)
    assert is_courteous(text) == any(map(str.isalpha, behind))


def test_where_a_sentence_greets_and_thanks() -> None:
    assert courtesies("Hi there, close it, thank you!") == [(0, 9), (18, 30)]
    assert courtesies("Close it") == []
