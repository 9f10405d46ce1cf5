"""Values that stand beside the words of another input were swapped."""

from datetime import UTC, datetime
from typing import Any

import pytest

from em.runner.reading import Reading, checked
from em.runner.routine import Routine

AT = datetime(2026, 4, 20, tzinfo=UTC)
TOWN = {"enum": ["ulm", "graz", "linz"]}
SCHEMA = {
    "type": "object",
    "properties": {
        "home": TOWN,
        "goal": TOWN,
        "bags": {"type": "integer"},
        "seats": {"type": "integer"},
        "day": {"type": "string", "format": "date"},
        "until": {"type": "string", "format": "date"},
    },
}
ROUTINE = Routine(
    name="travel",
    input_schema=SCHEMA,
    requests=[
        "Go from {home} to {goal} with {bags} bags.",
        "To {goal} from {home}, {seats} seats, from {day} until {until}.",
    ],
)


def problem(text: str, inputs: dict[str, Any]) -> str:
    return checked(ROUTINE, text, Reading(True, inputs, [], []), {}, AT).problem


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("Bring us to Graz, from Ulm.", {"home": "ulm", "goal": "graz"}),
        ("3 bags, 2 seats", {"bags": 3, "seats": 2}),
        ("from 3 May 2026 until 5 May 2026", {"day": "2026-05-03", "until": "2026-05-05"}),
    ],
)
def test_two_values_that_stand_beside_the_words_of_the_other_hand_over(
    text: str, inputs: dict[str, Any]
) -> None:
    one, other = inputs
    assert not problem(text, inputs)
    assert problem(text, {one: inputs[other], other: inputs[one]})


def test_the_words_of_their_names_tell_inputs_apart_too() -> None:
    town = {"enum": ["ulm", "graz"]}
    schema = {"type": "object", "properties": {"from_town": town, "to_town": town}}
    routine = Routine(name="move", input_schema=schema)
    for inputs, is_right in [
        ({"from_town": "ulm", "to_town": "graz"}, True),
        ({"from_town": "graz", "to_town": "ulm"}, False),
    ]:
        text = "the desk has to go from Ulm to Graz"
        found = checked(routine, text, Reading(True, inputs, [], []), {}, AT)
        assert (found.problem == "") == is_right


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("Ulm is where we are, Graz is where we go", {"home": "ulm", "goal": "graz"}),
        ("Ulm to Graz", {"home": "ulm", "goal": "graz"}),
        ("4 bags and one seat", {"bags": 4, "seats": 1}),
        (
            "We leave Ulm and from Graz we go on",
            {"home": "ulm", "goal": "graz"},
        ),  # one word is little
        ("from Linz to Linz", {"home": "linz", "goal": "linz"}),
    ],
)
def test_words_that_tell_nothing_refuse_nothing(text: str, inputs: dict[str, Any]) -> None:
    assert not problem(text, inputs)
