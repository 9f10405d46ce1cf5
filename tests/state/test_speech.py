"""Whose words they are: "I" is the subject only where the subject speaks."""

from typing import Any

import pytest

from em import Memory


def said(memory: Memory, text: str, **details: Any) -> Any:
    memory.observe("ana", text, at="2025-04-07T12:00:00Z", **details)
    return memory.checkpoint("ana")


def profile(state: Any) -> dict[str, Any]:
    row = state.profile_row()
    return {name: row[name] for name in row if name not in ("event_ids", "as_given")}


def test_what_others_say_of_themselves_says_nothing_about_the_subject(memory: Memory) -> None:
    said(memory, "I live in Lisbon.", speaker="Ana", role="user")
    said(memory, "I live in Madrid.", speaker="Bo", role="user")
    said(memory, "I live in Paris.", role="assistant")
    said(memory, "My name is Claude.", role="assistant", addressee="Ana")
    state = said(memory, "My name is Bo Lee.", speaker="Bo", addressee="ana")
    assert profile(state) == {"city": "Lisbon"}


def test_who_the_subject_is_can_be_said_by_its_id_its_name_or_its_role(memory: Memory) -> None:
    memory.observe("u-17", {"name": "Ana Silva"}, type="Profile")
    for number, details in enumerate(
        ({"speaker": "U-17"}, {"speaker": "ana silva"}, {"role": "user"}, {"role": "human"}, {})
    ):
        memory.observe("u-17", f"I spent ${number + 1} on tea.", **details)
    for details in ({"speaker": "Ana"}, {"role": "tool"}, {"role": "system"}, {"role": "doctor"}):
        memory.observe("u-17", "I spent $99 on tea.", **details)
    state = memory.checkpoint("u-17")
    assert [int(one.amount.amount) for one in state.expenses] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["Eric", "Theresa May", "Walter White", "Ana-Maria O'Neill"])
def test_names_are_read(memory: Memory, name: str) -> None:
    assert said(memory, f"My name is {name}.").profile.name == name


def test_an_observation_keeps_its_speaker_role_and_addressee(memory: Memory) -> None:
    event = memory.observe("ana", "Hello.", speaker="Bo", role="user", addressee="Ana")
    (many,) = memory.observe_many([{"subject": "ana", "text": "Hi.", "addressee": "Bo"}])
    assert memory.log.get(event).body == {
        "text": "Hello.", "speaker": "Bo", "role": "user", "addressee": "Ana",
    }  # fmt: skip
    assert memory.log.get(many).body == {"text": "Hi.", "addressee": "Bo"}


@pytest.mark.parametrize(
    "text",
    [
        "I moved to Linux.",
        "I moved to Marketing.",
        "I moved to Python.",
        "I live in Paris?",
        "I live in Hope.",
        "I work for Peace.",
        "I work at Night.",
        "“I live in Paris.”",
        "If I live in Paris.",
        "I live in Paris. Just kidding.",
        "Imagine this. I live in Paris.",
        "Bo said this. My name is Bo.",
        "I live in Paris 😂",
        "> I live in Paris",
        "I live in Paris\nBo",
        "I live in Paris /s",
        "I live in Paris...",
        "I spent $20 on him.",
        "I paid $20 for Bo.",
        "I spent $1.200 on rent.",
        "I spent $20 on lunch last week.",
        "I spent $20 on lunch tomorrow.",
        "I paid $20 for my sister.",
        "I spent $20 on nothing.",
        "I moved to Paris in 1999.",
        "I paid $20 for lunch on 5/2/2025.",
        "I spent ¥500 on tea.",
        "I spent $5 on coffee every day.",
        "My name is not important.",
        "I'm Hungry.",
        "I spent $20 or so on lunch.",
        "My name is Mud",
        "My name is Classified.",
        "I paid $20 for lunch next friday.",
        "I paid $20 for lunch on Monday.",
        "I paid -$20 for lunch.",
        "I spent $20 on lunch less.",
        "I paid $20 for the second time.",
    ],
)
def test_better_nothing_than_something_wrong(memory: Memory, text: str) -> None:
    state = said(memory, text)
    assert (profile(state), list(state.collections)) == ({}, [])
    assert len(state.unstructured) == 1


@pytest.mark.parametrize(
    ("text", "what", "day"),
    [
        ("I spent $12.50 on coffee yesterday.", "coffee", "2025-04-06"),
        ("I spent $12.50 on a train ticket today", "a train ticket", "2025-04-07"),
        ("Yesterday I paid $12.50 for lunch.", "lunch", "2025-04-06"),
        ("I paid $12.50 for lunch on 2 April 2025!", "lunch", "2025-04-02"),
        ("I paid $12.50 for lunch on 2025-04-02.", "lunch", "2025-04-02"),
        ("I've spent $12.50 on tea two days ago", "tea", "2025-04-05"),
        ("I paid $12.50 for lunch the day before yesterday", "lunch", "2025-04-05"),
        ("Hi! I spent $12.50 on coffee. Thanks!", "coffee", None),
    ],
)
def test_amounts_have_the_date_that_was_said_and_no_other(
    memory: Memory, text: str, what: str, day: str | None
) -> None:
    (expense,) = said(memory, text).expenses
    assert (str(expense.amount.amount), expense.what) == ("12.50", what)
    assert str(getattr(expense, "date", None)) == str(day)


@pytest.mark.parametrize(
    ("known", "text", "value"),
    [
        ({"employer": "Acme"}, "My employer is Initech.", "Initech"),
        ({"Home Town": "Faro"}, "my home town is Porto now", "Porto"),
        ({"birthday": "1990-05-02"}, "My birthday is 3 May 1991.", "1991-05-03"),
        ({"age": 33}, "My age is 34.", 34),
        ({"diet": "vegan"}, "My diet is vegan.", "vegan"),
        ({"email": "a@x.org"}, "My email is b@x.org.", "b@x.org"),
    ],
)
def test_my_x_is_y_sets_a_field_that_the_profile_has(
    memory: Memory, known: dict[str, Any], text: str, value: Any
) -> None:
    memory.observe("ana", known, type="Profile", at="2024-01-01")
    state = said(memory, text)
    (field,) = known
    assert state.as_record(state.profile)[field] == value


@pytest.mark.parametrize(
    ("known", "text"),
    [
        ({"phone": "555-1234"}, "My phone is broken."),
        ({"boss": "Bo Lee"}, "My boss is French."),
        ({"boss": "Bo Lee"}, "My boss is Swedish."),
        ({"city": "Faro"}, "My city is great."),
        ({"city": "Faro"}, "My city is Paris, Texas."),
        ({"city": "Faro"}, "My city was Paris."),
        ({"city": "Faro"}, "Is my city Paris?"),
        ({"city": "Faro"}, "My city is Paris?"),
        ({"weight": 70}, "My weight is 150 lb."),
        ({"age": 33}, "My age is Secret."),
        ({"age": 33}, "My age is -5."),
        ({"birthday": "1990-05-02"}, "My birthday is tomorrow."),
        ({"city": "Faro"}, "My city is Amazing."),
        ({"boss": "Bo Lee"}, "My boss is Leaving."),
        ({"boss": "Bo Lee"}, "My boss is Happy."),
        ({"diet": "vegan"}, "My diet is terrible."),
        ({"rent": "$900"}, "My rent is $900 a week."),
        ({"city": "Faro"}, "My town is Paris."),
    ],
)
def test_my_x_is_y_says_nothing_where_it_could_mean_something_else(
    memory: Memory, known: dict[str, Any], text: str
) -> None:
    memory.observe("ana", known, type="Profile", at="2024-01-01")
    state = said(memory, text)
    assert state.as_record(state.profile) == known


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("I live in Paris.", "I meant Bern-Bümpliz."),
        ("I live in Paris.", "I never said that."),
        ("I live in Paris.", "Just kidding!"),
        ("I live in Paris.", "I no longer live there."),
        ("I live in Paris.", "I moved to Zernez."),
        ("I live in Paris.", "That was a joke"),
        ("My employer is Initech.", "I quit."),
        ("My employer is Initech.", "I was let go, actually."),
    ],
)
def test_what_was_read_by_a_pattern_is_in_doubt_once_the_subject_takes_it_back(
    memory: Memory, first: str, then: str
) -> None:
    memory.observe("ana", {"employer": "Acme", "x": 1}, type="Profile", at="2020-01-01")
    said(memory, first)
    memory.observe("ana", "The weather is nice.", speaker="Bo", at="2025-04-08")
    memory.observe("ana", then, at="2025-04-09")
    state = memory.checkpoint("ana")
    field = "employer" if "employer" in first else "city"
    assert getattr(state.profile, field) is None
    assert len(state.profile.history[field]) == (3 if field == "employer" else 2)
    before = memory.state("ana", as_of="2025-04-08").profile
    assert getattr(before, field) in ("Paris", "Initech")


def test_what_others_say_puts_nothing_in_doubt(memory: Memory) -> None:
    said(memory, "I live in Paris.", speaker="Ana")
    said(memory, "I never said that.", speaker="Bo")
    assert said(memory, "I love Paris in spring.", speaker="Ana").profile.city == "Paris"


@pytest.mark.parametrize(
    ("then", "left"),
    [
        ("Oops, lunch was $14.", 0),
        ("I did not buy lunch after all.", 0),
        ("That was dinner, not lunch.", 0),
        ("Never mind, forget that.", 0),
        ("Lunch was great!", 1),
        ("I never liked tea.", 1),
    ],
)
def test_an_amount_that_was_read_is_gone_once_the_subject_takes_it_back(
    memory: Memory, then: str, left: int
) -> None:
    memory.observe("ana", {"amount": "$40", "what": "lunch"}, type="Expense")
    said(memory, "I spent $40 on lunch.")
    assert len(memory.state("ana").expenses) == 2
    assert len(said(memory, then).expenses) == 1 + left  # what was observed as a record stays
    assert len(memory.checkpoint("ana", rebuild=True).expenses) == 1 + left


def test_traces_keep_who_speaks(memory: Memory) -> None:
    with memory.record("order") as recorder:
        recorder.said("user", "Cancel it.", speaker="Ana", addressee="shop")
    (message,) = memory.log.read(kinds="message")
    assert message.body is not None
    assert (message.body["speaker"], message.body["addressee"]) == ("Ana", "shop")
