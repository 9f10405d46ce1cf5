"""A model's value must be said to hold now: not denied, wished for, past or quoted."""

from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.llm import ScriptedClient
from em.state.state import State

DENIED = [
    "I don't live in Rome.",
    "I do not live in Rome",
    "I dont live in Rome",
    "I have never lived in Rome.",
    "I no longer live in Rome",
    "I'm not living in Rome.",
    "I live in Bern, not Rome.",
    "It's not like I live in Rome or anything",
    "I don't think I live in Rome.",
    "I can't say that I live in Rome",
    "I haven't been to Oslo, Milan or Rome.",
    "Rome is not my city.",
    "Nobody in my family lives in Rome, neither do I live in Rome",
    "I don't, as you know, live in Rome",
    "I refused to move to Rome.",
    "I doubt that I live in Rome.",
]
POSSIBLE = [
    "I might move to Rome.",
    "I may move to Rome",
    "I could live in Rome one day",
    "I would live in Rome.",
    "I'd move to Rome.",
    "Maybe I live in Rome",
    "I wish I lived in Rome.",
    "Honestly I wish I lived in Rome",
    "I hope to live in Rome",
    "If I lived in Rome, I would be happy.",
    "I'd be happy if I lived in Rome",
    "Suppose I live in Rome.",
    "Let's say I live in Rome",
    "I want to live in Rome.",
    "I'm thinking of moving to Rome",
    "I almost moved to Rome.",
    "I dreamt that I live in Rome",
    "At this point I basically live in Rome",
    "In another life I live in Rome.",
    "If I get the job, I live in Rome.",
    "I was wondering whether I live in Rome",
]
TO_COME = [
    "I will move to Rome.",
    "I'll live in Rome",
    "I'm going to move to Rome.",
    "I'm moving to Rome next week.",
    "I plan to live in Rome",
    "I'm about to move to Rome",
]
PAST = [
    "I used to live in Rome.",
    "I lived in Rome.",
    "I once lived in Rome",
    "Three years ago I lived in Rome.",
    "I was living in Rome",
    "When I was a child we lived in Rome",
    "My old city is Rome.",
    "My city was Rome.",
]
OTHERS = [
    "Do I live in Rome?",
    "I live in Rome, right?",
    "I live in Rome, don't I?",
    "I live in Rome, is that so?",
    "I live in Rome, would you say?",
    "Do I live in Rome, or is it Bern by now?",
    "Since when do I live in Rome, is it May?",
    'Bo said "I live in Rome".',
    "> I live in Rome",
    "Everyone thinks I live in Rome.",
    "My brother claims I live in Rome",
    "She wrote: I live in Rome.",
    "Translate this: I live in Rome.",
    "From: Bo\nI live in Rome.",
    "My t-shirt says I live in Rome.",
    "In the play I live in Rome.",
]


def read(path: Path, text: str, *facts: dict[str, Any], **more: Any) -> State:
    given = {"evidence": [text.strip()], "events": ["e1"], "status": "stated"}
    memory = Memory(f"{path}/em.db")
    memory.observe("ana", text, speaker="Ana", at="2025-04-07")
    answer = {"records": more.get("records", []), "facts": [{**given, **one} for one in facts]}
    return memory.checkpoint("ana", llm=ScriptedClient([answer]))


def test_a_statement_before_a_question_is_taken_with_its_own_words(tmp_path: Path) -> None:
    text = "I live in Rome, is there a good dentist nearby?"
    fact = {"field": "city", "value": "Rome", "evidence": ["I live in Rome"]}
    assert read(tmp_path, text, fact).profile.city == "Rome"


@pytest.mark.parametrize(
    ("text", "amount", "is_said"),
    [
        ("Paid 1.250,50 € for the sofa.", "1250.50 EUR", True),
        ("i paid ₹1,20,000 for the flights", "120000 INR", True),
        ("got the bike for 2k swiss francs", "2000 CHF", True),
        ("just paid my rent. CA$1,475", "1475 CAD", True),
        ("just paid my rent. CA$1,475", "1475 USD", False),
        ("I paid 20 Canadian dollars", "20 USD", False),
        ("I paid $20", "20 USD", True),
        ("I paid $20", "20 CAD", False),
        ("I paid €20", "20 GBP", False),
    ],
)
def test_an_amount_is_grounded_with_its_currency(
    tmp_path: Path, text: str, amount: str, is_said: bool
) -> None:
    one = {"type": "Expense", "record": {"amount": amount}, "evidence": [text], "events": ["e1"]}
    assert bool(read(tmp_path, text, records=[one]).collections) == is_said


def test_a_correction_may_name_only_the_part_that_was_wrong(tmp_path: Path) -> None:
    memory = Memory(f"{tmp_path}/em.db")
    memory.observe("ana", {"name": "Ana Kowalski"}, type="Profile", at="2024-01-01")
    memory.checkpoint("ana")
    text = "*Kowalska, not Kowalski"
    memory.observe("ana", text, speaker="Ana", at="2025-04-07")
    given = {"op": "update", "field": "name", "evidence": [text], "events": ["e1"]}
    facts = [{**given, "value": "Eva Kowalska"}, {**given, "value": "Ana Kowalska"}]
    state = memory.checkpoint("ana", llm=ScriptedClient([{"records": [], "facts": facts}]))
    assert state.profile.name == "Ana Kowalska"


@pytest.mark.parametrize("text", [*DENIED, *POSSIBLE, *TO_COME, *PAST, *OTHERS])
@pytest.mark.parametrize("short", [False, True], ids=["whole", "short"])
def test_a_value_that_is_not_said_to_hold_is_left_out(
    tmp_path: Path, text: str, short: bool
) -> None:
    """Also if the evidence is cut so that what denies it stands before it."""
    words = text[text.index("Rome") - 3 :].strip() if short else text
    if short and not words[0].isalpha():
        words = "Rome"
    state = read(tmp_path, text, {"field": "city", "value": "Rome", "evidence": [words]})
    assert not hasattr(state.profile, "city") or state.profile.city is None
    assert len(state.report.problems) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("I live in Rome.", "city", "Rome"),
        ("I'm living in Rome now", "city", "Rome"),
        ("I moved to Rome last month.", "city", "Rome"),
        ("I have lived in Rome for ten years", "city", "Rome"),
        ("I've always lived in Rome.", "city", "Rome"),
        ("I couldn't be happier that I moved to Rome", "city", "Rome"),
        ("I can't believe I live in Rome!", "city", "Rome"),
        ("No, I live in Rome.", "city", "Rome"),
        ("no I live in Rome", "city", "Rome"),
        ("I'm not from Bern, I live in Rome.", "city", "Rome"),
        ("I don't live in Bern but in Rome.", "city", "Rome"),
        ("I live in Rome, not Bern", "city", "Rome"),
        ("I live in Rome and I don't smoke.", "city", "Rome"),
        ("I don't smoke and I live in Rome.", "city", "Rome"),
        ("If you're wondering, I live in Rome.", "city", "Rome"),
        ("You should know that I live in Rome.", "city", "Rome"),
        ("I should mention I live in Rome", "city", "Rome"),
        ("I might be wrong but I live in Rome.", "city", "Rome"),
        ("It would be late for me, I live in Rome.", "city", "Rome"),
        ("I live in Rome and I might buy a bike", "city", "Rome"),
        ("I told you I live in Rome.", "city", "Rome"),
        ("Like I said, I live in Rome", "city", "Rome"),
        ("I think I live in Rome, haha yes I do", "city", "Rome"),
        ("Home is Rome btw", "city", "Rome"),
        ("I'm allergic to nuts.", "allergy", "nuts"),
        ("My doctor says I'm allergic to nuts.", "allergy", "nuts"),
        ("I was born in Rome.", "birthplace", "Rome"),
        ("I used to live in Rome.", "former_city", "Rome"),
        ("I grew up in Rome", "hometown", "Rome"),
        ("I don't like olives.", "dislikes", "olives"),
        ("I want to learn Greek.", "goal", "learn Greek"),
        ("I will visit Oslo.", "next_visit", "Oslo"),
        ("I was promoted to manager.", "job", "manager"),
        ("I was diagnosed with asthma in May.", "condition", "asthma"),
        ("My rent was raised to $900", "rent", "$900"),
        ("I haven't eaten meat since 2019.", "vegetarian_since", "2019"),
        ("I never miss yoga.", "hobby", "yoga"),
        ("Without coffee I'm nobody; I work as a nurse.", "job", "nurse"),
        ("I'm a nurse who doesn't smoke.", "job", "nurse"),
        ("Not only do I work for Acme, I love it", "employer", "Acme"),
        ("I'm used to the cold and live in Oslo", "city", "Oslo"),
    ],
)
def test_what_is_plainly_said_is_taken(tmp_path: Path, text: str, field: str, value: Any) -> None:
    state = read(tmp_path, text, {"field": field, "value": value})
    assert state.report is not None
    assert state.report.problems == []
    assert state.as_record(state.profile) == {field: value}


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("I didn't buy the $300 headphones.", {"amount": "$300", "what": "headphones"}),
        ("I might spend $20 on lunch", {"amount": "$20", "what": "lunch"}),
        ("I will spend $100 on shoes tomorrow.", {"amount": "$100", "what": "shoes"}),
        ("I used to spend $20 on lunch", {"amount": "$20", "what": "lunch"}),
        ("if i'd spent 500 bucks on that i would cry", {"amount": "500 USD"}),
        ("I didn't sleep seven hours.", {"hours": 7}),
        ("I never ran 5 miles", {"miles": 5}),
    ],
)
def test_a_record_of_what_did_not_happen_is_left_out(
    tmp_path: Path, text: str, record: dict[str, Any]
) -> None:
    one = {"type": "Thing", "record": record, "evidence": [text], "events": ["e1"]}
    state = read(tmp_path, text, records=[one])
    assert not state.collections


@pytest.mark.parametrize(
    ("type_", "text", "record"),
    [
        ("Expense", "I paid $20 for lunch.", {"amount": "$20", "what": "lunch"}),
        ("Expense", "Lunch was $14, not bad", {"amount": "$14", "what": "lunch"}),
        ("Job", "I worked at Acme in 2019", {"employer": "Acme"}),
        ("Trip", "I'm going to Lisbon on 2 May", {"destination": "Lisbon"}),
        ("Trip", "I will fly to Lisbon", {"destination": "Lisbon"}),
        ("Run", "I ran 5 miles and didn't even sweat", {"miles": 5}),
        ("Expense", "I couldn't resist and paid $20 for cake", {"amount": "$20", "what": "cake"}),
    ],
)
def test_a_record_of_what_happened_is_taken(
    tmp_path: Path, type_: str, text: str, record: dict[str, Any]
) -> None:
    one = {"type": type_, "record": record, "evidence": [text], "events": ["e1"]}
    state = read(tmp_path, text, records=[one])
    assert len(state.collections) == 1


@pytest.mark.parametrize(
    "text",
    [
        "I might quit Nokia.",
        "I will quit Nokia soon.",
        "If I quit Nokia, who pays the rent",
        '"I quit Nokia" is what I will tell them.',
        "Should I quit Nokia?",
        "Liam quit Nokia.",
        "I want to quit Nokia",
    ],
)
def test_words_that_take_nothing_back_leave_the_fact(tmp_path: Path, text: str) -> None:
    words = text[text.index("quit") :].rstrip(".?") if '"' not in text else "I quit Nokia"
    gone = {"op": "retract", "field": "employer", "evidence": [words], "events": ["e1"]}
    memory = Memory(f"{tmp_path}/em.db")
    memory.observe("ana", {"employer": "Nokia"}, type="Profile", at="2024-01-01")
    memory.checkpoint("ana")
    memory.observe("ana", text, speaker="Ana", at="2025-04-07")
    state = memory.checkpoint("ana", llm=ScriptedClient([{"records": [], "facts": [gone]}]))
    assert state.profile.employer == "Nokia"
