"""Two records with a key that are one: the history has both, and they can be parted again."""

from pathlib import Path
from typing import Any

import pytest
from tests.careful import careful

from em import Memory
from em.cli.root import run
from em.errors import InputError, NotFound
from em.llm import ScriptedClient
from em.state.state import State


def person(text: str, event: str, **fields: str) -> dict[str, Any]:
    return {"op": "add", "type": "Person", "record": fields, "evidence": [text], "events": [event]}


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    memory = Memory(f"{tmp_path}/em.db")
    memory.observe("ana", "My sister lives in Rome.", at="2024-01-01")
    memory.observe("ana", "Lia works for Acme.", at="2024-02-01")
    records = [
        person("My sister lives in Rome.", "e1", name="sister", relation="sister", city="Rome"),
        person("Lia works for Acme.", "e2", name="Lia", employer="Acme"),
    ]
    memory.checkpoint("ana", llm=careful({"facts": records}))
    return memory


def people(state: State) -> dict[str, dict[str, Any]]:
    found = [state.as_record(one) for one in state.persons]
    return {one.pop("name"): {k: v for k, v in one.items() if v is not None} for one in found}


TWO = {"sister": {"relation": "sister", "city": "Rome"}, "Lia": {"employer": "Acme"}}
ONE = {"Lia": {"relation": "sister", "city": "Rome", "employer": "Acme"}}


def test_the_fields_of_one_become_the_others_until_that_is_undone(memory: Memory) -> None:
    assert people(memory.state("ana")) == TWO
    event = memory.subjects.same("ana", ["sister"], ["Lia"])
    state = memory.checkpoint("ana")
    assert people(state) == ONE
    why = state.why("Person.city", ["Lia"])
    assert why is not None
    assert why.words == "My sister lives in Rome."
    memory.undo("ana", event)
    assert people(memory.checkpoint("ana")) == TWO
    assert people(memory.checkpoint("ana", rebuild=True)) == TWO


def test_what_is_said_later_of_either_goes_to_the_one(memory: Memory) -> None:
    memory.subjects.same("ana", ["sister"], ["Lia"])
    memory.checkpoint("ana")
    memory.observe("ana", "My sister lives in Oslo.", at="2025-01-01")
    record = person("My sister lives in Oslo.", "e1", name="sister", city="Oslo")
    state = memory.checkpoint("ana", llm=ScriptedClient([{"facts": [record]}, {"stated": ["s1"]}]))
    assert people(state) == {"Lia": {**ONE["Lia"], "city": "Oslo"}}
    (lia,) = state.persons
    assert [one.value for one in lia.history["city"]] == ["Rome", "Oslo"]
    assert people(memory.checkpoint("ana", rebuild=True)) == people(state)
    assert people(memory.state("ana", as_of="2024-06-01")) == ONE


def test_only_two_known_records_become_one(memory: Memory) -> None:
    with pytest.raises(NotFound):
        memory.subjects.same("ana", ["sister"], ["Eva"])
    with pytest.raises(NotFound):
        memory.subjects.same("ana", ["sister"], ["Lia"], type_="Trip")
    memory.subjects.same("ana", ["sister"], ["Lia"])
    memory.checkpoint("ana")
    with pytest.raises(InputError):
        memory.subjects.same("ana", ["sister"], ["Lia"])
    with pytest.raises(InputError):
        memory.subjects.same("ana", ["Lia"], ["sister"])


@pytest.mark.parametrize(
    ("text", "is_stated", "is_one"),
    [
        ("My sister is called Lia.", True, True),
        ("My sister's name is not Lia.", False, False),
        ("My sister has a name.", True, False),
    ],
)
def test_a_model_makes_two_one_if_the_words_name_both_and_it_is_stated(
    memory: Memory, text: str, is_stated: bool, is_one: bool
) -> None:
    memory.observe("ana", text, speaker="ana", at="2025-01-01")
    same = {
        "op": "same", "type": "Person", "key": ["sister"], "known": {"name": "Lia"},
        "evidence": text,
    }  # fmt: skip
    second = {"stated": ["s1"] if is_stated else []}
    model = ScriptedClient([{"facts": [{**same, "events": ["e1"]}]}, second])
    state = memory.checkpoint("ana", llm=model)
    assert people(state) == (ONE if is_one else TWO)


def test_the_command_makes_two_one(memory: Memory, tmp_path: Path) -> None:
    memory.close()
    assert run(["--db", f"{tmp_path}/em.db", "state", "same", "ana", "sister", "Lia"]) == 0
    assert people(Memory(f"{tmp_path}/em.db").state("ana")) == ONE
