"""A write that recordings made within a time is not made after it, however the times are said."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from em.runner.package import find_routine, proof_of, texts_of
from recorded_world import World

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
UNITS = {"minutes": timedelta(minutes=1), "hours": timedelta(hours=1), "days": timedelta(days=1)}
CLOCKS: dict[str, Callable[[datetime], Any]] = {
    "in UTC": lambda at: at.isoformat().replace("+00:00", "Z"),
    "without a zone": lambda at: at.replace(tzinfo=None).isoformat(),
    "in seconds": lambda at: int(at.timestamp()),
    "in milliseconds": lambda at: int(at.timestamp() * 1000),
    "a date": lambda at: at.date().isoformat(),
}
LIMITS: dict[str, Callable[[str, int], Any]] = {
    "a field": lambda unit, limit: {"refund_" + unit: limit, "contact": "desk"},
    "inside": lambda unit, limit: {"refunds": {"window": {unit: limit}}, "fee": 5},
    "a number": lambda _, limit: limit,
    "of a kind": lambda unit, limit: {
        "kinds": [{"kind": "shoes", unit: limit}, {"kind": "hats", unit: 2 * limit}]
    },
    "by a kind": lambda unit, limit: {"shoes": {unit: limit}, "hats": {unit: 2 * limit}},
    "a list of kinds": lambda unit, limit: [
        {"kind": "shoes", unit: limit},
        {"kind": "hats", unit: 2 * limit},
    ],
}
LIMIT = 30
SHARES = (0.93, 0.1, 0.5, 0.31, 0.77, 0.64)
"""How much of the time had gone by in each recording."""


class Shop(World):
    """Orders that are paid back. ages: how much of the limit has gone by, by order."""

    def __init__(self, path: Path, unit: str, clock: str, limit: Any) -> None:
        super().__init__(path)
        self.unit, self.shown = UNITS[unit], CLOCKS[clock]
        self.has_kinds = "hats" in str(limit)
        self.at, self.ages = START, {f"W-{n}01": share for n, share in enumerate(SHARES, 1)}
        self.read("get_order", ("order",), lambda order, _: self.order(order))
        self.read("get_time", (), lambda _: {"now": self.shown(self.at)})
        self.read("get_terms", (), lambda _: limit)
        self.write("pay_back", ("order", "amount"))

    def order(self, order: str) -> Mapping[str, Any]:
        number = int(order[2])
        kind = "hats" if number % 3 == 2 else "shoes"
        limit = 2 * LIMIT if kind == "hats" and self.has_kinds else LIMIT
        placed = self.at - self.unit * limit * self.ages[order]
        total = 20.5 + 7 * number
        return {"order": order, "kind": kind, "placed": self.shown(placed), "total": total}

    def record(self, *reads: str) -> None:
        """Learn from an agent that made these reads, each on another day."""
        tasks = []
        for number, order in enumerate(self.ages):
            self.at = START + timedelta(days=3, hours=5) * number
            calls = [("get_order", order), *((one,) for one in reads)]
            calls.append(("pay_back", order, self.order(order)["total"]))
            tasks.append(self.trace({"order": order}, calls))
        ids = [self.memory.add_trace(one) for one in tasks]
        self.routine = self.memory.compile(ids, name="task")
        self.at = START + timedelta(days=40)

    def left_open(self) -> list[str]:
        """Return what the recordings leave open."""
        proof = proof_of(texts_of(find_routine(self.memory.store, self.routine.ref)))
        assert proof is not None
        return [*proof.open]

    def tried(self, share: float, kind: int = 4) -> list[tuple[Any, ...]]:
        """Return what is written for an order of which so much of the limit has gone by."""
        order = f"W-{kind}77"
        self.ages[order] = share
        self.run({"order": order})
        return self.written


CASES = [
    (unit, clock, limit)
    for unit in UNITS
    for clock in CLOCKS
    for limit in LIMITS
    if unit == "days" or clock != "a date"
]


@pytest.mark.parametrize(("unit", "clock", "limit"), CASES, ids=str)
def test_a_time_that_was_kept_is_a_check(tmp_path: Path, unit: str, clock: str, limit: str) -> None:
    shop = Shop(tmp_path, unit, clock, LIMITS[limit](unit, LIMIT))
    shop.record("get_time", "get_terms")
    assert shop.tried(0.4) == [("W-477", 48.5)]
    assert shop.tried(0.97) == [("W-477", 48.5)]
    assert shop.tried(1.2) == []
    assert shop.tried(9) == []


@pytest.mark.parametrize(("unit", "clock"), [row[:2] for row in CASES if row[2] == "inside"])
def test_no_more_time_goes_by_than_ever_was_seen(tmp_path: Path, unit: str, clock: str) -> None:
    """The agent knew the limit, and read nothing but the time."""
    shop = Shop(tmp_path, unit, clock, None)
    shop.record("get_time")
    assert shop.tried(0.4) == [("W-477", 48.5)]
    assert shop.tried(1.2) == []
    assert shop.tried(9) == []


@pytest.mark.parametrize("limit", ["30 days", "P30D", {"refunds": "within 30 days"}], ids=str)
def test_what_was_read_and_can_not_be_compared_is_left_to_a_person(
    tmp_path: Path, limit: Any
) -> None:
    shop = Shop(tmp_path, "days", "in UTC", limit)
    shop.record("get_time", "get_terms")
    assert "what get_terms is read for" in shop.left_open()
    assert shop.tried(9) == []


def test_what_a_check_compares_is_not_left_open(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "days", "in UTC", {"days": LIMIT})
    shop.record("get_time", "get_terms")
    assert shop.left_open() == []


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_deadline_is_kept(tmp_path: Path, clock: str) -> None:
    class Late(Shop):
        def order(self, order: str) -> Mapping[str, Any]:
            ends = self.at + self.unit * LIMIT * (1 - self.ages[order])
            return {**super().order(order), "until": self.shown(ends)}

    shop = Late(tmp_path, "days", clock, None)
    shop.record("get_time")
    assert shop.tried(0.4) == [("W-477", 48.5)]
    assert shop.tried(1.2) == []
    assert shop.tried(9) == []
