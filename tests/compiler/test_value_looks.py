"""A value that an effect is given must be of a type and look that was recorded."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from em.compiler.value_looks import look_facts
from em.memory import Memory
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.language import compile_expression
from em.runner.run import RunResult
from em.traces.recorder import recorded_tool


def fits(recorded: Sequence[Any], value: Any) -> bool:
    facts = look_facts("value", recorded)
    return all(compile_expression(one, "")({**FUNCTIONS, "value": value}) for one in facts)


@pytest.mark.parametrize(("recorded", "same", "other"), [
    (("B-11", "B-27", "B-93"), "CC-4", ["GONE", "", None, 7, ["B-44"]]),
    (("2026-04-01", "2026-04-02", "2026-05-19"), "2027-01-01", ["2026-04-03T23:00:00Z", "soon"]),
    (("ana@a.eu", "bo@b.eu", "cy@c.eu"), "d.e@f.eu", ["nobody", ["a@b.eu"]]),
    (("3", "7", "12"), "12b", ["４", "north"]),
    ((True, False, True), False, ["maybe", 1]),
    (("red roof", "Mia", "old"), "anything at all", [5, ["red"]]),
])  # fmt: skip
def test_the_type_and_the_look_of_a_value_are_as_recorded(
    recorded: Sequence[Any], same: Any, other: Sequence[Any]
) -> None:
    assert fits(recorded, same)
    assert not any(fits(recorded, one) for one in other)


@pytest.mark.parametrize("recorded", [["B-11", "B-27"], ["B-11"] * 5, [1, "two", 3.5]])
def test_few_or_mixed_values_show_no_look(recorded: Sequence[Any]) -> None:
    assert list(look_facts("value", recorded)) == []


class Greenhouse:
    """Beds with plants that are watered; the request is the same but for the bed."""

    def __init__(self, folder: Path) -> None:
        self.watered: list[Any] = []
        self.beds: dict[str, Any] = {
            f"BED-{bed}": [
                {"plant": f"PL-{bed}{n}", "kind": ("fern", "moss", "rose")[(bed + n) % 3],
                 "dry": (bed * 3 + n * 5) % 4 == 0}
                for n in range(3 + bed % 4)
            ]
            for bed in (10, 11, 12, 13, 14, 15, 18)
        }  # fmt: skip

        @recorded_tool(effect="read")
        def list_plants(bed: str) -> Any:
            return self.beds[bed]

        @recorded_tool(effect="write")
        def water_plant(plant: str) -> Any:
            self.watered.append(plant)
            return {"plant": plant}

        self.tools = {"list_plants": list_plants, "water_plant": water_plant}
        self.memory = Memory(folder / "memory.db")
        given: list[str] = []

        @self.memory.record(app="greenhouse")
        def agent(_request: str) -> None:
            for one in list_plants(given[0]):
                if one["kind"] == "moss":
                    water_plant(one["plant"])

        for bed in range(10, 16):
            given[:] = [f"BED-{bed}"]
            agent(f"Water all moss in BED-{bed}.")
        self.routine = self.memory.compile([one.id for one in self.memory.traces()], name="water")

    def run(self, **changed: Any) -> RunResult:
        self.watered.clear()
        moss = next(one for one in self.beds["BED-18"] if one["kind"] == "moss")
        before = dict(moss)
        moss |= changed
        try:
            request = {"request": "Water all moss in BED-18."}
            return self.memory.run(self.routine, request, self.tools, remember=False)
        finally:
            moss |= before


def test_a_member_of_a_list_with_a_value_of_another_look_is_not_acted_on(tmp_path: Path) -> None:
    greenhouse = Greenhouse(tmp_path)
    assert greenhouse.run().status == "ok"
    assert greenhouse.watered
    for changed in ({"plant": 5}, {"plant": "REMOVED"}, {"dry": "perhaps"}):
        assert greenhouse.run(**changed).status != "ok"
        assert greenhouse.watered == [], changed
