"""The steps of a block are made in turns: all of them for one item, then for the next."""

from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.runner.engine import run_routine
from em.runner.preparation import prepare_routine
from em.runner.validation import validate

ROUTINE = """
name: lights
input_schema: {type: object, properties: {rooms: {type: array}}, required: [rooms]}
tools:
  - {name: look, effect: read}
  - {name: switch_off, effect: write}
  - {name: report, effect: write}
steps:
  - {id: rooms, type: assert, for_each: "{{ rooms }}", as: room, check: "room is string"}
  - id: each
    type: for_each
    over: {room: rooms}
    save_as: lights
    steps:
      - {id: look, type: tool.call, tool: look, args: {room: "{{ room }}"}, save_as: light}
      - id: switch
        type: tool.call
        tool: switch_off
        when: light.on
        args: {room: "{{ room }}"}
  - {id: tell, type: tool.call, tool: report, args: {lights: "{{ lights }}"}}
"""


class House:
    """Rooms whose lights hang together: one switch may put out another light."""

    def __init__(self, **lights: bool) -> None:
        self.lights, self.done = lights, []
        self.together = {"hall": "stairs"}

    def look(self, room: str) -> dict[str, Any]:
        self.done.append(("look", room))
        return {"on": self.lights[room]}

    def switch_off(self, room: str) -> str:
        self.done.append(("off", room))
        self.lights[room] = False
        self.lights[self.together.get(room, room)] = False
        return "ok"

    def report(self, lights: list[Any]) -> str:
        self.done.append(("report", len(lights)))
        return "ok"

    def tools(self) -> dict[str, Any]:
        return {"look": self.look, "switch_off": self.switch_off, "report": self.report}


def written(folder: Path, text: str = ROUTINE) -> Path:
    (folder / "routine.yaml").write_text(text)
    return folder


def test_a_turn_sees_what_the_turns_before_have_done(tmp_path: Path) -> None:
    house = House(hall=True, stairs=True, attic=True)
    given = {"rooms": ["hall", "stairs", "attic"]}
    result = run_routine(written(tmp_path), given, house.tools())
    assert result.status == "ok", result.failure
    assert house.done == [
        ("look", "hall"),
        ("off", "hall"),
        ("look", "stairs"),
        ("look", "attic"),
        ("off", "attic"),
        ("report", 3),
    ]


def test_a_dry_run_shows_the_calls_of_each_turn(tmp_path: Path) -> None:
    house = House(hall=True, attic=False)
    given = {"rooms": ["hall", "attic"]}
    result = prepare_routine(written(tmp_path), given, house.tools())
    planned = [(one.tool, one.item) for one in result.planned]
    assert planned == [("switch_off", 0), ("report", None)]
    assert house.done == [("look", "hall"), ("look", "attic")]


def test_nothing_is_done_unless_every_item_passes_the_check(tmp_path: Path) -> None:
    house = House(hall=True)
    result = run_routine(written(tmp_path), {"rooms": ["hall", 7]}, house.tools())
    assert (result.status, house.done) == ("failed", [])


def test_a_routine_with_turns_is_valid(tmp_path: Path) -> None:
    assert [one for one in validate(written(tmp_path)) if one.severity == "error"] == []


def test_a_check_of_what_the_turns_saved_is_made(tmp_path: Path) -> None:
    check = '  - {id: few, type: assert, check: "len(lights) < 2"}\n'
    checked = ROUTINE.replace("  - {id: tell", f"{check}  - {{id: tell")
    house = House(hall=False, attic=False)
    result = run_routine(written(tmp_path, checked), {"rooms": ["hall", "attic"]}, house.tools())
    assert (result.status, house.done) == ("failed", [("look", "hall"), ("look", "attic")])
    assert result.failure is not None
    assert (result.failure.step_id, result.failure.error_type) == ("few", "CheckFailed")
    fine = run_routine(written(tmp_path, checked), {"rooms": ["hall"]}, house.tools())
    assert (fine.status, house.done[-1]) == ("ok", ("report", 1))


def test_a_run_that_was_killed_in_a_turn_goes_on_there(tmp_path: Path) -> None:
    house = House(hall=True, cellar=True, attic=True)
    dies = {"attic"}

    def switch_off(room: str) -> str:
        if room in dies:
            dies.clear()
            raise KeyboardInterrupt
        return house.switch_off(room)

    tools = {**house.tools(), "switch_off": switch_off}
    given = {"rooms": ["hall", "cellar", "attic"]}
    with Memory(tmp_path / "em.db") as memory:
        with pytest.raises(KeyboardInterrupt):
            memory.run(written(tmp_path), given, tools, run_id="r1")
        asked = memory.resume("r1", tools)
        assert asked.status == "needs_input", "nobody knows whether the last call was made"
        answers = {asked.pending_prompt.step_id: {"happened": False}}
        result = memory.resume("r1", tools, answers=answers)
    assert result.status == "ok", result.failure
    assert [one for one in house.done if one[0] == "off"] == [
        ("off", "hall"),
        ("off", "cellar"),
        ("off", "attic"),
    ]
