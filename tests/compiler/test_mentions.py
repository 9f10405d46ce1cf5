"""What is known elsewhere and stood in every text that was read stands in the next one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorded_world import World

Change = Callable[[str], str]

BAD: dict[str, Change] = {
    "another id in one place": lambda text: text.replace("?of=PC-17", "?of=PC-71"),
    "another id in the other place": lambda text: text.replace("Parcel PC-17", "Parcel PC-19"),
    "a longer id": lambda text: text.replace("?of=PC-17", "?of=PC-171"),
    "ten times as much": lambda text: text.replace("weight=76.5", "weight=765"),
    "more digits": lambda text: text.replace("weight=76.5", "weight=76.51"),
    "another name": lambda text: text.replace("Gate-17", "Gate-18"),
}
GOOD: dict[str, Change] = {
    "as recorded": lambda text: text,
    "a number in another writing": lambda text: text.replace("weight=76.5", "weight=76.50"),
    "another number that nothing knows": lambda text: text.replace("slot 1017", "slot 5511"),
}


class Depot(World):
    """A parcel is handed out where a notice says so; the notice is only looked at."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read("get_parcel", ("parcel",), lambda parcel, _: self.parcel(int(parcel[3:])))
        self.read("get_notice", ("notice",), self.notice)
        self.write("hand_out", ("parcel", "weight"))
        self.learn((self.given(n), [*self.calls(n)]) for n in range(11, 16))

    @staticmethod
    def given(number: int) -> dict[str, Any]:
        return {"parcel": f"PC-{number}", "notice": f"N-{number * 31}"}

    def calls(self, number: int) -> Any:
        given = self.given(number)
        yield "get_parcel", given["parcel"]
        yield "get_notice", given["notice"]
        yield "hand_out", given["parcel"], self.parcel(number)["weight"]

    @staticmethod
    def parcel(number: int) -> Any:
        return {"parcel": f"PC-{number}", "weight": number * 4.5, "door": f"Gate-{number}"}

    @staticmethod
    def notice(notice: str, change: Any) -> Any:
        number = int(notice[2:]) // 31
        text = f"Parcel PC-{number} waits at Gate-{number} in slot {1000 + number}: "
        text += f"https://depot.example/out?of=PC-{number}&weight={number * 4.5} ."
        return {"notice": notice, "text": change(text) if change else text}


@pytest.mark.parametrize("change", BAD.values(), ids=BAD)
def test_a_text_that_says_another_value_hands_over(tmp_path: Path, change: Change) -> None:
    depot = Depot(tmp_path)
    depot.refuses(depot.given(17), changed=change)


@pytest.mark.parametrize("change", GOOD.values(), ids=GOOD)
def test_a_text_that_says_the_same_values_does(tmp_path: Path, change: Change) -> None:
    depot = Depot(tmp_path)
    depot.does(depot.given(17), ("PC-17", 76.5), changed=change)
