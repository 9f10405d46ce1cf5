"""Words that ask for something, and words that only speak of it."""

import pytest

from em.runner.mood import requests

VERBS = {"cancel", "return"}


@pytest.mark.parametrize(
    "text",
    [
        "Cancel #W1.",
        "please cancel #W1",
        "For order #W1 of mine, cancel it.",
        "For my order #W1 cancel the rest.",
        "I want to cancel #W1",
        "I'd like to cancel #W1",
        "I would like you to cancel #W1",
        "We need to cancel #W1",
        "Could you please cancel #W1?",
        "I am Ana, and I wish to cancel #W1",
        "Hello! Then go ahead and cancel #W1",
        "Let's cancel #W1",
    ],
)
def test_words_that_ask(text: str) -> None:
    assert requests(text, VERBS) == ["cancel"]


@pytest.mark.parametrize(
    "text",
    [
        "#W1 was cancelled.",
        "I cancelled #W1",
        "My order is cancelled",
        "I may cancel #W1",
        "I might cancel #W1",
        "I will cancel #W1",
        "I did cancel #W1",
        "You may cancel #W1",
        "He will cancel #W1",
        "They want to cancel #W1",
        "She wanted to cancel #W1",
        "It is too late to cancel #W1",
        "Cancel #W1?",
        "Should I cancel #W1?",
        "Can I cancel #W1?",
        "When will you cancel #W1?",
        "Did you cancel #W1?",
        "In this case they cancel #W1",
        "for him you cancel #W1",
        "The return of my lamp",
        "My return",
        "Cancelling #W1 is what I fear",
    ],
)
def test_words_that_only_speak_of_it(text: str) -> None:
    assert requests(text, VERBS) == []
