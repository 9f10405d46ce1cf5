"""A blank of a template that had a few words only takes these; it takes no word for a value."""

import pytest

from test_signs import Learnt, learnt


@pytest.fixture
def lights() -> Learnt:
    rooms = {"kitchen": "off", "bedroom": "off", "office": "off", "garage": "on", "cellar": "on"}
    return learnt(
        "switch_light",
        {
            f"Turn {state} the light in the {room}.": {"room": room, "state": state}
            for room, state in rooms.items()
        },
    )


@pytest.mark.parametrize("state", ["down", "red", "later", "around", "whatever"])
def test_another_word_than_the_recorded_ones_is_asked_about(lights: Learnt, state: str) -> None:
    assert '["off","on"]' in lights.asks(f"Turn {state} the light in the hall.")


@pytest.mark.parametrize("state", ["on", "off"])
def test_a_recorded_word_is_taken_with_a_new_value_elsewhere(lights: Learnt, state: str) -> None:
    assert lights.does(f"Turn {state} the light in the hall.") == [{"room": "hall", "state": state}]


@pytest.mark.parametrize("room", ["all", "unknown", "tbd", "anywhere", '"hall"'])
def test_a_word_that_stands_for_a_value_fills_no_blank(lights: Learnt, room: str) -> None:
    lights.asks(f"Turn off the light in the {room}.")


def test_a_word_of_recorded_values_is_no_value_alone() -> None:
    tasks = ("wash all dishes", "feed the cat", "water the roses")
    todo = learnt("add_task", {f"Add {one} to my list.": {"task": one} for one in tasks})
    todo.asks("Add all to my list.")
    assert todo.does("Add paint the door to my list.") == [{"task": "paint the door"}]
