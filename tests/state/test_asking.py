"""Questions: code in the sandbox or of a kept shape, else what was said; answers say which."""

from contextlib import suppress
from typing import Any

import pytest

from em import Memory
from em.errors import BadQuestion, InputError, UsageError
from em.llm import ScriptedClient

SPENT = """
def used(state, year):
    return [t for t in state.trips if t.date.year == year]

def answer(state, year):
    return sum(t.cost_usd for t in used(state, year))
"""
QUESTION = "How much did I spend on trips in 2024?"


@pytest.fixture
def trips(memory: Memory) -> list[str]:
    ids = [
        memory.observe("ana", {"to": to, "date": f"{year}-05-02", "cost_usd": cost}, type="Trip")
        for to, year, cost in (("Lisbon", 2024, 840.5), ("Rome", 2024, 10.0), ("Oslo", 2023, 5.0))
    ]
    memory.checkpoint("ana")
    return ids


def reply(code: str, **parameters: Any) -> dict[str, Any]:
    return {"route": "code", "code": code, "parameters": parameters}


def test_the_answer_comes_with_its_code_and_the_records_it_rests_on(
    memory: Memory, trips: list[str]
) -> None:
    model = ScriptedClient([reply(SPENT, year=2024)])
    answer = memory.ask("ana", QUESTION, llm=model)
    assert (answer.value, answer.route, answer.code) == (850.5, "code", SPENT)
    assert (answer.records, answer.event_ids) == (2, tuple(trips[:2]))


def test_the_model_sees_the_types_and_no_record(memory: Memory, trips: list[str]) -> None:
    model = ScriptedClient([reply(SPENT, year=2024)])
    memory.ask("ana", QUESTION, llm=model)
    assert "cost_usd: float" in model.requests[0].prompt
    for value in ("Lisbon", "840.5", "2024-05-02"):
        assert value not in model.requests[0].prompt


def test_the_next_question_of_that_shape_needs_no_model(memory: Memory, trips: list[str]) -> None:
    memory.ask("ana", QUESTION, llm=ScriptedClient([reply(SPENT, year=2024)]))
    again = memory.ask("ana", "how much did I spend on trips in 2023")
    assert (again.value, again.kept, again.event_ids) == (5.0, True, (trips[2],))
    other = memory.ask("ana", "How much did I spend on trips in 2024 and 2023?")
    assert (other.route, other.kept) == ("recall", False)
    assert "no model" in other.note


def test_a_text_parameter_must_be_one_that_the_records_hold(
    memory: Memory, trips: list[str]
) -> None:
    chosen = "[t for t in state.trips if t.to.lower() == to.lower()]"
    code = f"def answer(state, to):\n    return len({chosen})"
    memory.ask("ana", "How often was I in Rome?", llm=ScriptedClient([reply(code, to="Rome")]))
    assert memory.ask("ana", "How often was I in Oslo?").value == 1
    assert memory.ask("ana", "How often was I in Oslo in May?").route == "recall"


def test_an_error_goes_back_to_the_model_twice(memory: Memory, trips: list[str]) -> None:
    model = ScriptedClient(
        [reply("def answer(state):\n    return state.tripz"), reply("x ="), reply(SPENT, year=2024)]
    )
    assert memory.ask("ana", QUESTION, llm=model).value == 850.5
    assert "no attribute 'tripz'" in model.requests[1].prompt
    bad = ScriptedClient([reply("def answer(state):\n    return 1 / 0")] * 3)
    with pytest.raises(BadQuestion, match=r"3 times.*division"):
        memory.ask("ana", "Something else?", llm=bad)


@pytest.mark.parametrize(
    "code",
    [
        "def answer(state):\n    return open('/etc/passwd').read()",
        "import os\ndef answer(state):\n    return os.listdir('/')",
        "def answer(state):\n    return state.__class__.__init__.__globals__",
    ],
)
def test_what_a_model_wrote_reaches_nothing_but_the_collections(
    memory: Memory, trips: list[str], code: str
) -> None:
    with pytest.raises(BadQuestion):
        memory.ask("ana", "What is on this machine?", llm=ScriptedClient([reply(code)] * 3))


def test_what_was_said_goes_to_recall(memory: Memory) -> None:
    event = memory.observe("ana", "The dentist was expensive.")
    memory.checkpoint("ana")
    said = ScriptedClient([{"route": "recall", "code": "", "parameters": {}}])
    assert memory.ask("ana", "dentist, opinion?", llm=said).event_ids == (event,)


def test_one_subject_never_sees_anothers_records(memory: Memory, trips: list[str]) -> None:
    memory.observe("bea", {"to": "Paris", "date": "2024-05-02", "cost_usd": 1.0}, type="Trip")
    memory.checkpoint("bea")
    memory.ask("ana", QUESTION, llm=ScriptedClient([reply(SPENT, year=2024)]))
    assert memory.ask("bea", QUESTION).route == "recall"  # nor its questions
    assert memory.ask("bea", code="len(trips)").value == 1


def test_forgetting_a_subject_forgets_its_questions(memory: Memory, trips: list[str]) -> None:
    memory.ask("ana", QUESTION, llm=ScriptedClient([reply(SPENT, year=2024)]))
    memory.forget(subject="ana")
    assert memory.subjects.questions("ana") == []


def test_own_code_runs_in_the_sandbox(memory: Memory, trips: list[str]) -> None:
    answer = memory.ask(
        "ana", code="dear = [t for t in trips if t.cost_usd > 9]\n[t.to for t in dear]"
    )
    assert (answer.value, answer.records) == (["Lisbon", "Rome"], 3)
    assert memory.ask("ana", code="[max(t.date for t in trips)]").value == ["2024-05-02"]
    code = "def answer(state):\n    return state.trips[0]"
    assert memory.ask("ana", code=code).value["to"] == "Lisbon"
    with pytest.raises(InputError):
        memory.ask("ana", code="open('/etc/passwd').read()")
    with pytest.raises(InputError):
        memory.ask("ana", code="x = 1")
    with pytest.raises(UsageError):
        memory.ask("ana")


@pytest.mark.parametrize(
    "question",
    [
        "How much did I spend on trips to Lisbon in 2023?",
        "How much did I spend on trips not in 2023?",
        "How much did I not spend on trips in 2023?",
        "How much did I spend on flights in 2023?",
        "How much did Bea spend on trips in 2023?",
        "How much did I spend on trips in 2023 in Rome?",
        "How much did I spend on trips before 2023?",
        "How much did I spend on trips in May 2023?",
        "How much did I spend on trips in 20233?",
        "How much did I spend on trips in twenty?",
        "How many trips in 2023?",
        "in 2023",
        "",
    ],
)
def test_a_question_of_another_shape_is_never_answered_by_it(
    memory: Memory, trips: list[str], question: str
) -> None:
    memory.ask("ana", QUESTION, llm=ScriptedClient([reply(SPENT, year=2024)]))
    answer = memory.ask("ana", question)
    assert (answer.kept, answer.code == SPENT) == (False, False)
    assert answer.route == "recall"


def test_a_text_takes_the_place_of_one_of_its_own_field_and_as_it_is_written(
    memory: Memory,
) -> None:
    for to, by in (("Rome", "car"), ("São Paulo", "train"), ("OSLO", "car"), ("Oslo", "car")):
        memory.observe("ana", {"to": to, "by": by}, type="Trip")
    memory.checkpoint("ana")
    code = "def answer(state, to):\n    return len([t for t in state.trips if t.to == to])"
    model = ScriptedClient([reply(code, to="Rome")])
    assert memory.ask("ana", "How often was I in Rome?", llm=model).value == 1
    again = memory.ask("ana", "how often was I in são paulo?")
    assert (again.value, again.kept, again.parameters) == (1, True, {"to": "São Paulo"})
    assert memory.ask("ana", "How often was I in rome").parameters == {"to": "Rome"}
    for other in ("car", "Paris", "Rome or São Paulo", "oslo"):  # of another field, unknown, two
        assert memory.ask("ana", f"How often was I in {other}?").route == "recall"


@pytest.mark.parametrize("name", ["the year", "x)|(?P<y", "\0", "jahr\N{SUPERSCRIPT TWO}"])
def test_parameters_with_strange_names_make_no_shape(
    memory: Memory, trips: list[str], name: str
) -> None:
    code = "def answer(state, **given):\n    return len(state.trips)"
    model = ScriptedClient([reply(code, **{name: 2024})] * 3)
    with suppress(BadQuestion):  # the sandbox knows no such names
        memory.ask("ana", QUESTION, llm=model)
    assert memory.subjects.questions("ana") == []
    assert not memory.ask("ana", QUESTION.replace("2024", "2023")).kept


def test_the_past_is_asked_with_what_was_known_of_it(memory: Memory) -> None:
    memory.observe("ana", {"n": 1}, type="Thing", at="2024-01-01")
    early = memory.observe("ana", "The dentist was cheap.", at="2024-01-01")
    late = memory.observe("ana", "The dentist was expensive.", at="2025-01-01")
    memory.checkpoint("ana")
    asked = "What did I say about the dentist?"
    assert {early, late} <= {*memory.ask("ana", asked).event_ids}
    then = memory.ask("ana", asked, as_of="2024-06-01").event_ids
    assert (then[0], late in then) == (early, False)
    assert memory.ask("ana", code="len(things)", as_of="2023-06-01").value == 0


def test_what_was_said_about_one_is_not_found_by_asking_about_another(memory: Memory) -> None:
    memory.observe("ana", "The dentist was expensive.")
    memory.observe("bea", "I like the sea.")
    for name in ("ana", "bea"):
        memory.checkpoint(name)
    answer = memory.ask("bea", "What did I say about the dentist?")
    assert (answer.route, answer.event_ids, answer.value) == ("recall", (), [])


@pytest.mark.parametrize("code", ["len(", "trips[99]", "1 / 0", "nothing", "x = " + "(" * 500])
def test_own_code_that_fails_is_told_as_such(memory: Memory, trips: list[str], code: str) -> None:
    with pytest.raises(InputError, match="the code failed"):
        memory.ask("ana", code=code)


def test_a_collection_reached_by_a_name_made_up_at_run_time_is_not_empty(
    memory: Memory, trips: list[str]
) -> None:
    memory.observe("ana", {"n": 1}, type="Pet")
    memory.checkpoint("ana")
    code = "def answer(state):\n    return [len(state.trips), len(getattr(state, 'pe' + 'ts'))]"
    answer = memory.ask("ana", "How many?", llm=ScriptedClient([reply(code)]))
    assert (answer.value, answer.records) == ([3, 1], 4)


def test_a_plain_value_tells_which_events_it_came_from(memory: Memory) -> None:
    city = memory.observe("ana", {"city": "Porto"}, type="Profile", at="2024-01-01")
    moved = memory.observe("ana", {"city": "Faro"}, type="Profile", at="2025-01-01")
    job = memory.observe("ana", {"job": "nurse"}, type="Profile")
    trip = memory.observe("ana", {"cost": 3}, type="Trip")
    memory.checkpoint("ana")
    for code, events in (
        ("profile.city", {moved}),
        ("[profile.city, profile.job]", {moved, job}),
        ("profile.job == 'nurse' and len(trips)", {job, trip}),
        ("len(trips)", {trip}),
        ("1 + 1", set[str]()),
    ):
        answer = memory.ask("ana", code=code)
        assert set(answer.event_ids) == events, code
    assert city not in answer.event_ids
