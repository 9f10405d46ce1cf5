"""What belonged to the one who asked in all recordings is not taken from somebody else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorded_world import World

Shown = Callable[[int], Any]

USERS: dict[str, tuple[Shown, Shown]] = {
    "an id": (lambda n: f"U-{n}31", lambda n: f"U-{n}31"),
    "a number": (lambda n: 310 + n, lambda n: 310 + n),
    "a small number": (lambda n: 10 + n, lambda n: 10 + n),
    "a number as a text": (lambda n: 310 + n, lambda n: str(310 + n)),
    "a text as a number": (lambda n: str(317 + n), lambda n: 317 + n),
    "an address in another case": (lambda n: f"ann{n}@x.example", lambda n: f"ANN{n}@X.EXAMPLE"),
    "a name": (lambda n: f"{'ABCDEFGHI'[n]}nn Lee", lambda n: f"{'ABCDEFGHI'[n]}nn Lee"),
}
HELD: dict[str, Callable[[Any], dict[str, Any]]] = {
    "beside": lambda owner: {"user_id": owner},
    "inside": lambda owner: {"customer": {"id": owner, "since": 2019}},
    "deep inside": lambda owner: {"meta": {"customer": {"ref": {"id": owner}}}},
    "in a list": lambda owner: {"parties": [{"role": "buyer", "id": owner}]},
    "in a bare list": lambda owner: {"owners": [owner]},
}


class Till(World):
    """Orders are paid for: the write takes nothing from an order but how and how much."""

    def __init__(self, path: Path, own: Shown, shown: Shown, held: Callable[[Any], Any]) -> None:
        super().__init__(path)
        self.owners = {f"W-{n}0{n}": n for n in range(1, 9)}
        self.own, self.shown, self.held = own, shown, held
        self.read("get_user", ("user",), lambda user, _: self.user(user))
        self.read("get_order", ("order",), lambda order, _: self.order(order))
        self.read("list_orders", ("day",), lambda day, _: [self.order(o) for o in self.owners])
        self.write("pay", ("method", "amount"))

    def user(self, user: str) -> Any:
        number = int(user[-1])
        return {"login": user, "id": self.own(number), "year": 1980 + number}

    def order(self, order: str) -> Any:
        number = int(order[2])
        owner = self.held(self.shown(self.owners[order]))
        return {"order": order, **owner, "method": f"card_{order[2]}88", "total": 10.5 + number}

    def record(self, *, listed: bool, count: int) -> None:
        tasks = []
        for order in [*self.owners][:count]:
            number = int(order[2])
            given = {"user": f"login{number}", "order": order}
            look = ("list_orders", "today") if listed else ("get_order", order)
            paid = ("pay", f"card_{number}88", 10.5 + number)
            tasks.append((given, [("get_user", given["user"]), look, paid]))
        self.learn(tasks)


# That small numbers are equal once, or stand in a list, says nothing.
CASES = [
    (user, held, count)
    for user in USERS
    for held in HELD
    for count in (1, 2, 5)
    if count > 1 or user != "a small number"
]


@pytest.mark.parametrize("listed", [False, True], ids=["read", "listed"])
@pytest.mark.parametrize(("user", "held", "count"), CASES)
def test_what_is_somebody_elses_is_not_paid(
    tmp_path: Path, user: str, held: str, listed: bool, count: int
) -> None:
    till = Till(tmp_path, *USERS[user], HELD[held])
    till.record(listed=listed, count=count)
    given = {"user": "login8", "order": "W-808"}
    till.owners["W-808"] = 7
    till.refuses(given)
    till.owners["W-808"] = 8
    till.does(given, ("card_888", 18.5))
