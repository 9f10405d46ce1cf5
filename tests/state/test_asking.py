"""Questions: code in the sandbox or of a kept shape, else what was said; answers say which."""

from typing import Any

import pytest

from em import Memory
from em.errors import BadQuestion, UsageError
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
    answer = memory.ask("ana", "What did I say about the dentist?", llm=ScriptedClient([]))
    assert (answer.route, answer.event_ids, answer.note) == (
        "recall",
        (event,),
        "it asks for what was said",
    )
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


def test_the_owners_own_code_runs_in_the_process(memory: Memory, trips: list[str]) -> None:
    answer = memory.ask(
        "ana", code="dear = [t for t in trips if t.cost_usd > 9]\n[t.to for t in dear]"
    )
    assert (answer.value, answer.records) == (["Lisbon", "Rome"], 3)
    with pytest.raises(UsageError):
        memory.ask("ana")
