"""The bench of state from text finds what is wrong, and its sentences are what it says they are."""

from collections import Counter

import pytest
from bench import erring, state_text


@pytest.mark.parametrize("name", state_text.FILES.values())
def test_the_sentences_are_ten_of_each_of_ten_classes(name: str) -> None:
    cases = state_text.load(name)
    if cases:
        assert Counter(Counter(case["class"] for case in cases).values()) == {10: 10}


def test_what_is_not_true_is_wrong_and_what_is_missing_is_not() -> None:
    true = {"profile": {"city": "Porto"}, "records": {"Trip": [{"to": "Oslo"}]}, "people": {}}
    nothing = {"profile": {}, "records": {}, "people": {}}
    assert state_text.wrong(nothing, true) == []
    assert state_text.wrong({**nothing, "profile": {"city": "Faro"}}, true) == ["city is 'Faro'"]
    twice = {**nothing, "records": {"Trip": [{"to": "Oslo"}] * 2}}
    assert state_text.wrong(twice, true) == ["Trip {'to': 'Oslo'}"]
    person = {**nothing, "people": {"Bo": {"city": "Madrid"}}}
    assert state_text.wrong(person, true) == ["Bo: city 'Madrid'"]


def test_a_sentence_is_read_by_a_careful_model() -> None:
    case = {
        "earlier": ["I live in Paris."], "believed": {"city": "Paris"}, "text": "I meant Bern.",
        "profile": {"city": "Bern"},
    }  # fmt: skip
    assert state_text.read(case) == ([], True)
    assert state_text.read({**case, "words": "I live in Bern"}) == (["city is 'Paris'"], False)


def test_the_erring_cases_are_two_hundred_and_can_be_wrong() -> None:
    cases = list(erring.cases())
    assert set(Counter(case.error for case in cases).values()) == {16}
    assert len({(case.text, str(case.fact)) for case in cases}) == len(cases) == 256
    denied = next(case for case in cases if case.error == "denied")
    assert erring.is_wrong(denied, "none")
    assert not erring.is_wrong(denied, "all")
