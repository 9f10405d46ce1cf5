"""The one element of a list that a task is about is checked as a record of a read of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorded_world import World

Rows = list[dict[str, Any]]
Change = Callable[[Rows], Any]

OWN, BESIDE = "BT-17", "BT-55"


def _own(rows: Rows) -> dict[str, Any]:
    return next(row for row in rows if row.get("boat") == OWN or row.get("duty") == "on")


def _survey(boat: str, verdict: str, leaks: int) -> dict[str, Any]:
    return {"survey": "SV-999", "boat": boat, "verdict": verdict, "leaks": leaks, "by": "Ute"}


BAD_LISTS: dict[str, Change] = {
    "a second one": lambda rows: rows.append(_survey(OWN, "sound", 0)),
    "a second one that differs": lambda rows: rows.insert(0, _survey(OWN, "rotten", 3)),
    "another word": lambda rows: _own(rows).update(verdict="rotten"),
    "no longer nothing": lambda rows: _own(rows).update(leaks=2),
    "a new flag": lambda rows: _own(rows).update(sealed=True),
    "none": lambda rows: rows.remove(_own(rows)),
}
GOOD_LISTS: dict[str, Change] = {
    "as recorded": lambda rows: None,
    "another order": lambda rows: rows.reverse(),
    "another content": lambda rows: _own(rows).update(by="Ole", survey="SV-4711"),
    "another one's trouble": lambda rows: rows.append(_survey(BESIDE, "rotten", 9)),
    "only its own": lambda rows: rows.__setitem__(slice(None), [_own(rows)]),
}


class Harbour(World):
    """A boat goes to water; the list of surveys of its berth is only looked at."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read("get_boat", ("boat",), lambda boat, _: self.boat(boat))
        self.read("list_surveys", ("berth",), self.surveys)
        self.write("launch", ("boat", "keel"))
        boats = [f"BT-{n}" for n in range(11, 16)]
        self.learn(
            (
                {"boat": boat},
                [
                    ("get_boat", boat),
                    ("list_surveys", self.boat(boat)["berth"]),
                    ("launch", boat, self.boat(boat)["keel"]),
                ],
            )
            for boat in boats
        )

    @staticmethod
    def boat(boat: str) -> Any:
        number = int(boat[-2:])
        return {"boat": boat, "berth": f"P{number}-north", "keel": 200 + number * number}

    @staticmethod
    def surveys(berth: str, change: Any) -> Rows:
        number = int(berth[1:3])
        own = {"survey": f"SV-{700 + number}", "boat": f"BT-{number}", "verdict": "sound"}
        own |= {"leaks": 0, "by": ("Kai", "Ann", "Jan", "Liv")[number % 4]}
        old = {"survey": f"SV-{300 + number}", "boat": f"BT-{40 + number}", "by": "Kai"}
        old |= {"verdict": ("sound", "rotten")[number % 2], "leaks": 4 * (number % 2)}
        rows = [[old, own], [own], [own, old]][number % 3]
        if change:
            change(rows)
        return rows


@pytest.mark.parametrize("change", BAD_LISTS.values(), ids=BAD_LISTS)
def test_the_one_that_fits_must_be_one_and_as_it_always_was(tmp_path: Path, change: Change) -> None:
    Harbour(tmp_path).refuses({"boat": OWN}, changed=change)


@pytest.mark.parametrize("change", GOOD_LISTS.values(), ids=GOOD_LISTS)
def test_what_others_of_the_list_are_does_not_matter(tmp_path: Path, change: Change) -> None:
    harbour = Harbour(tmp_path)
    harbour.does({"boat": OWN}, (OWN, 489), changed=change)


BAD_CHOICES: dict[str, Change] = {
    "a new flag": lambda rows: _own(rows).update(is_ill=True),
    "no longer a text": lambda rows: _own(rows).update(phone=None),
    "no longer more than nothing": lambda rows: _own(rows).update(seats=0),
    "a field less": lambda rows: _own(rows).pop("seats"),
}
GOOD_CHOICES: dict[str, Change] = {
    "as recorded": lambda rows: None,
    "another order": lambda rows: rows.reverse(),
    "another number": lambda rows: _own(rows).update(seats=7),
    "another one's trouble": lambda rows: next(row for row in rows if row["duty"] == "off").update(
        is_ill=True
    ),
}


class Rank(World):
    """The driver who is on duty at a stand is called."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read("list_drivers", ("stand",), self.drivers)
        self.write("call_driver", ("phone", "stand"))
        stands = [f"ST-{n}" for n in range(21, 26)]
        self.learn(
            (
                {"stand": stand},
                [("list_drivers", stand), ("call_driver", self.phone(stand), stand)],
            )
            for stand in stands
        )

    @staticmethod
    def phone(stand: str) -> str:
        return f"+47-{int(stand[3:]) * 7919}"

    def drivers(self, stand: str, change: Any) -> Rows:
        number = int(stand[3:])
        on = {"driver": f"D-{number}1", "duty": "on", "phone": self.phone(stand)}
        on["seats"] = 4 + number % 3
        off = {"driver": f"D-{number}2", "duty": "off", "phone": f"+47-{number}000", "seats": 5}
        gone = {"driver": f"D-{number}3", "duty": "off", "phone": f"+47-{number}111", "seats": 4}
        rows = [[off, on, gone], [on, gone, off], [gone, off, on]][number % 3]
        if change:
            change(rows)
        return rows


@pytest.mark.parametrize("change", BAD_CHOICES.values(), ids=BAD_CHOICES)
def test_a_chosen_element_is_as_they_always_were(tmp_path: Path, change: Change) -> None:
    Rank(tmp_path).refuses({"stand": "ST-27"}, changed=change)


@pytest.mark.parametrize("change", GOOD_CHOICES.values(), ids=GOOD_CHOICES)
def test_a_chosen_element_may_have_other_contents(tmp_path: Path, change: Change) -> None:
    rank = Rank(tmp_path)
    rank.does({"stand": "ST-27"}, (rank.phone("ST-27"), "ST-27"), changed=change)
