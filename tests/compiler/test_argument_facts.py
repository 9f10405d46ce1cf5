"""Inputs unlike all recorded ones are not acted on: no time, nothing, twice the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from em.compiler.facts import Inputs
from recorded_world import World


def learnt(path: Path, tool: str, tasks: Sequence[Mapping[str, Any]]) -> World:
    """One write with the inputs, by the same names."""
    world = World(path)
    world.write(tool, [*tasks[0]])
    world.learn((task, [(tool, *task.values())]) for task in tasks)
    return world


def moves(path: Path) -> World:
    times = ("10:00", "09:30", "13:15", "16:45")
    return learnt(
        path,
        "move_visit",
        [
            {"visit_id": f"VIS-50{n}", "day": f"2025-08-0{n}", "time": time}
            for n, time in enumerate(times, 1)
        ],
    )


VISIT = {"visit_id": "VIS-507", "day": "2025-08-20", "time": "23:59"}


@pytest.mark.parametrize(
    "odd",
    [
        {"time": "25:00"},
        {"time": "19:75"},
        {"time": "soon"},
        {"day": "2026-06-31"},
        {"day": "2026-13-01"},
        {"day": "tomorrow"},
        {"visit_id": "VIS-507-VIS-510"},
        {"visit_id": ""},
        {"visit_id": None},
        {"visit_id": ["VIS-507", "VIS-508"]},
    ],
    ids=str,
)
def test_no_day_no_time_and_no_id_are_refused(tmp_path: Path, odd: dict[str, Any]) -> None:
    moves(tmp_path).refuses({**VISIT, **odd})


def test_another_day_and_time_are_taken(tmp_path: Path) -> None:
    moves(tmp_path).does(VISIT, ("VIS-507", "2025-08-20", "23:59"))


@pytest.mark.parametrize(
    "odd",
    [{"target": "USR-408"}, {"points": 0}, {"points": -5}, {"points": 20_000}, {"points": "all"}],
    ids=str,
)
def test_nobody_gives_to_himself_nor_nothing_nor_a_thousand_times_as_much(
    tmp_path: Path, odd: dict[str, Any]
) -> None:
    gifts = learnt(
        tmp_path,
        "give_points",
        [{"points": n * 5, "source": f"USR-40{n}", "target": f"USR-41{n}"} for n in range(1, 5)],
    )
    given = {"points": 15, "source": "USR-408", "target": "USR-418"}
    gifts.refuses({**given, **odd})
    gifts.does(given, (15, "USR-408", "USR-418"))


def test_a_stay_does_not_end_before_it_begins(tmp_path: Path) -> None:
    stays = learnt(
        tmp_path,
        "book_room",
        [
            {"room": f"ROOM-40{n}", "start": f"2025-08-0{n}", "end": f"2025-08-1{n}"}
            for n in range(1, 5)
        ],
    )
    given = {"room": "ROOM-408", "start": "2025-08-20", "end": "2025-08-25"}
    stays.refuses({**given, "start": "2025-08-25", "end": "2025-08-20"})
    stays.does(given, ("ROOM-408", "2025-08-20", "2025-08-25"))


def test_how_many_things_are_given_has_no_limit_in_another_number(tmp_path: Path) -> None:
    things = ["bag", "bike", "boat", "sledge"]
    rents = learnt(
        tmp_path,
        "rent",
        [
            {"person": f"USR-40{n}", "days": n + 2, "items": things[:many]}
            for n, many in enumerate([2, 1, 3, 2], 1)
        ],
    )
    for days in (1, 3):
        given = {"person": "USR-408", "days": days, "items": things[:3]}
        rents.does(given, ("USR-408", days, things[:3]))


def test_a_read_may_be_called_as_its_argument(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.read("get_van", ("van",), lambda van, is_new: {"id": van, "state": "free"})
    world.write("book_van", ("van", "day"))
    world.learn(
        (
            {"van": f"VAN-47{n}", "day": f"2025-08-0{n}"},
            [("get_van", f"VAN-47{n}"), ("book_van", f"VAN-47{n}", f"2025-08-0{n}")],
        )
        for n in range(1, 5)
    )
    world.does({"van": "VAN-476", "day": "2025-08-20"}, ("VAN-476", "2025-08-20"))


def test_a_number_that_was_always_the_same_may_be_a_constant(tmp_path: Path) -> None:
    """The amount is twelve times the hours, and twelve people went along: nobody knows which."""
    tours = {f"TUR-{30 + n}": {"hours": 7 + 3 * n, "people": 12} for n in range(5)}
    world = World(tmp_path)
    world.read("get_tour", ("tour",), lambda tour, is_new: {"tour": tour, **tours[tour]})
    world.write("pay_guide", ("tour", "amount"))
    world.learn(
        (
            {"tour": tour},
            [("get_tour", tour), ("pay_guide", tour, record["hours"] * 12)],
        )
        for tour, record in tours.items()
    )
    tours["TUR-41"] = {"hours": 40, "people": 20}
    world.refuses({"tour": "TUR-41"})


@pytest.mark.parametrize(
    ("values", "least", "most"), [([30], 3, 300), ([7, 9], 1, 90), ([1], 1, 10)]
)
def test_the_limits_of_a_whole_number_are_whole_numbers(
    values: list[int], least: int, most: int
) -> None:
    schema = Inputs(["count"], unconfirmed=["count"]).schema(values, ("count",))
    assert schema == {"type": "integer", "minimum": least, "maximum": most}
    assert type(schema["minimum"]) is int
