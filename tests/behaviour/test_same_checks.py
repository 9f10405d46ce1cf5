"""What no recording showed is written neither by a routine nor by a behaviour."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from em import Check, Engine, Memory, recorded_tool

Rows = dict[str, Any]
NAMES = ("Ada Moss", "Ben Ruiz", "Cora Vale", "Dov Katz", "Ela Norn", "Finn Hart")


def rows_of(n: int) -> Rows:
    """Return a sitter, and what is to be paid to him."""
    return {
        "sitter": {
            "sitter": f"S{40 + n}", "name": NAMES[n], "account": f"AC{7000 + 13 * n}",
            "cat": ["Tom", "Minka", "Felix"][n % 3], "gone": False,
        },
        "visits": {
            "sitter": f"S{40 + n}", "currency": "EUR", "total": 30.5 + 11 * n,
            "visits": [
                {"day": f"2026-05-0{1 + k}", "sitter": f"S{40 + n}", "pay": 9.5 + n + k}
                for k in range(2 + n % 2)
            ],
            "barred": [f"S{80 + n}", f"S{60 + n}"],
        },
    }  # fmt: skip


class World:
    """The rows of one task, and what was written."""

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        self.rows: Rows = {}
        self.made: list[Any] = []

        def get_sitter(sitter: str) -> Any:
            return deepcopy(self.rows["sitter"])

        def list_visits(sitter: str) -> Any:
            return deepcopy(self.rows["visits"])

        def pay(account: str, amount: float, text: str) -> Any:
            self.made.append((account, amount, text))
            return {"ok": True}

        self.tools = {one.__name__: one for one in (get_sitter, list_visits, pay)}
        self._do = {name: wrap(one) for name, one in self.tools.items()}

    def agent(self, sitter: str, note: str) -> str:
        """Pay a sitter for his visits."""
        person = self._do["get_sitter"](sitter=sitter)
        visits = self._do["list_visits"](sitter=sitter)
        text = f"{note}: {person['name']}"
        self._do["pay"](account=person["account"], amount=visits["total"], text=text)
        return "paid"


def given(n: int) -> Rows:
    return {"sitter": f"S{40 + n}", "note": f"Care in week {n + 1}"}


def by_routine(rows: Rows, inputs: Rows) -> list[Any]:
    with Memory(":memory:") as memory:
        world = World(recorded_tool)
        for n in range(4):
            world.rows = rows_of(n)
            with memory.record("pay", given(n)):
                world.agent(**given(n))
        memory.compile([one.id for one in memory.traces()], name="pay")
        world.rows, world.made = rows, []
        memory.run("pay", inputs, world.tools)
        return world.made


def by_behaviour(rows: Rows, inputs: Rows) -> list[Any]:
    engine = Engine(name="sitting")
    world = World(engine.function())
    is_there = True

    def agent(sitter: str, note: str) -> str:
        return world.agent(sitter, note) if is_there else ""

    engine.set_agent(agent)
    for n in range(4):
        world.rows = rows_of(n)
        engine(*given(n).values(), params=[*given(n)])
    is_there, world.rows, world.made = False, rows, []
    engine(*inputs.values(), params=[*inputs])
    return world.made


def put(*path: Any, to: Any) -> Callable[[Rows, Rows], None]:
    def change(rows: Rows, inputs: Rows) -> None:
        *holders, last = path
        at: Any = {"given": inputs, **rows}
        for one in holders:
            at = at[one]
        at[last] = to

    return change


HARMFUL = {
    "a line break in a name": put("sitter", "name", to="Finn\nBcc: all"),
    "another direction in a name": put("sitter", "name", to="Finn \u202eHart"),
    "a look-alike letter in an account": put("sitter", "account", to="\u0410C7065"),
    "a line break in an input": put("given", "note", to="Care\nBcc: all"),
    "an empty input": put("given", "note", to=""),
    "a space around an id": put("given", "sitter", to=" S45"),
    "another currency": put("visits", "currency", to="USD"),
    "a huge number": put("visits", "total", to=4e9),
    "a negative number": put("visits", "total", to=-85.5),
    "a text for a number": put("visits", "total", to="85.5"),
    "a new field": put("visits", "on_hold", to=True),
    "a new field of the person": put("sitter", "garnished", to=True),
    "an element of somebody else": put("visits", "visits", 1, "sitter", to="S41"),
    "an id where none of its form stood": put("visits", "barred", to=["S45", "S61"]),
}
HARMLESS = {
    "nothing": lambda rows, inputs: None,
    "another name": put("sitter", "name", to="Zoë Müller"),
    "a name with a sign": put("sitter", "name", to="Mary O'Brien"),
    "another account": put("sitter", "account", to="AC7990"),
    "another total": put("visits", "total", to=61.25),
    "another note": put("given", "note", to="Care in week 31"),
    "others barred": put("visits", "barred", to=["S91", "S92"]),
}


@pytest.mark.parametrize("way", [by_routine, by_behaviour])
@pytest.mark.parametrize("change", HARMFUL.values(), ids=HARMFUL)
def test_what_no_recording_had_is_not_written(way: Any, change: Any) -> None:
    rows, inputs = rows_of(5), given(5)
    change(rows, inputs)
    assert way(rows, inputs) == []


@pytest.mark.parametrize("way", [by_routine, by_behaviour])
@pytest.mark.parametrize("change", HARMLESS.values(), ids=HARMLESS)
def test_what_may_differ_is_written(way: Any, change: Any) -> None:
    rows, inputs = rows_of(5), given(5)
    change(rows, inputs)
    world = World(lambda tool: tool)
    world.rows = rows
    world.agent(**inputs)
    assert way(rows, inputs) == world.made


def test_few_recordings_let_no_write_without_a_check_follow_what_is_new() -> None:
    owed, paid, asked = {"ana": 30, "bo": 45, "cy": 20, "di": 75, "eve": 60}, list[Any](), []

    def made(*, check: Check[Any] | None = None) -> Engine:
        engine = Engine()
        account = engine.function(name="account", effect="read")(lambda who: {"owed": owed[who]})
        pay = engine.function(name="pay", pre_check=check)(
            lambda who, sum: paid.append((who, sum))  # noqa: A006 - as the bank calls it
        )

        def agent(who: str) -> None:
            asked.append(who)
            pay(who, account(who)["owed"])

        return engine.set_agent(agent)

    engine = made()
    for who in owed:
        engine(who, params=["who"])
    assert paid == [*owed.items()]
    assert asked == ["ana", "bo", "cy", "di"]  # four recordings tell what is read from chance
    asked.clear()
    checked = made(check=Check(lambda: True, lambda now, then: now == then))
    for who in owed:
        checked(who, params=["who"])
    assert asked == ["ana"]
