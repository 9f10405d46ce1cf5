"""The bench `right` can tell a wrong write from a right one; its databases are made up here."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from bench.right import constants, insurer, stranger, town_hall
from bench.right.recording import Aim, Recording, recorded_aim
from bench.right.verdict import Ended, judge
from bench.right.world import Domain, World, digest

OK = Ended("ok")


class Cancel:
    @staticmethod
    def invoke(data: Mapping[str, Any], order_id: str, reason: str) -> str:
        order = data["orders"][order_id]
        if order["status"] != "pending":
            return "Error: the order is not pending"
        order["status"] = "cancelled"
        order["reason"] = reason
        return json.dumps(order)


class Look:
    @staticmethod
    def invoke(data: Mapping[str, Any], order_id: str) -> str:
        return json.dumps(data["orders"][order_id])


@pytest.fixture
def shop() -> Domain:
    items = [{"id": number} for number in range(20)]
    orders = {f"W{n}": {"status": "pending", "by": "Ann", "items": items} for n in range(3)}
    tools = {"cancel_pending_order": Cancel, "get_order_details": Look}
    return Domain("retail", tools, {"orders": orders}, {})


def cancel(world: World, *orders: str) -> World:
    for order in orders:
        world.say("cancel_pending_order", {"order_id": order, "reason": "late"})
    return world


@pytest.fixture
def aim(shop: Domain) -> Aim:
    """Orders W0 and W1 are cancelled; a third call failed when it was recorded."""
    args = [{"order_id": order, "reason": "late"} for order in ("W0", "W1", "W1")]
    calls = [("cancel_pending_order", one) for one in args]
    return recorded_aim(Recording("run", 0, 1.0, b"", calls, []), shop)


def test_the_writes_of_the_recording_are_right(shop: Domain, aim: Aim) -> None:
    assert aim.writes.total() == 2
    assert judge(cancel(World(shop), "W0", "W1"), OK, aim).kind == "right"
    assert judge(cancel(World(shop), "W1", "W0"), OK, aim).kind == "right"


@pytest.mark.parametrize("ended", [OK, Ended("failed"), Ended("needs_input")])
def test_another_write_is_wrong_however_the_run_ended(shop: Domain, aim: Aim, ended: Ended) -> None:
    verdict = judge(cancel(World(shop), "W0", "W2"), ended, aim)
    assert verdict.kind == "wrong"
    assert "order_id is 'W2'" in verdict.why


def test_ending_ok_without_the_writes_is_wrong(shop: Domain, aim: Aim) -> None:
    assert judge(World(shop), OK, aim).kind == "wrong"
    assert judge(cancel(World(shop), "W0"), OK, aim).kind == "wrong"


def test_some_writes_and_then_a_stop_are_partial(shop: Domain, aim: Aim) -> None:
    for status in ("failed", "needs_input", "raised"):
        assert judge(cancel(World(shop), "W0"), Ended(status), aim).kind == "partial"
        assert judge(cancel(World(shop), "W0", "W1"), Ended(status), aim).kind == "partial"


def test_stopping_before_any_write_is_asked_or_refused(shop: Domain, aim: Aim) -> None:
    assert judge(World(shop), Ended("needs_input"), aim).kind == "asked"
    assert judge(World(shop), Ended("failed"), aim).kind == "refused"
    assert judge(World(shop), Ended("raised"), aim).kind == "refused"


def test_a_world_does_not_change_the_records_that_all_share(shop: Domain) -> None:
    before = digest(shop)
    assert cancel(World(shop), "W0").changes()
    assert digest(shop) == before
    assert not World(shop).changes()


def test_a_shuffled_world_gives_equal_results_in_another_order(shop: Domain) -> None:
    plain = World(shop).tools()["get_order_details"](order_id="W0")
    keys = World(shop, "keys", "seed").tools()["get_order_details"](order_id="W0")
    lists = World(shop, "lists", "seed").tools()["get_order_details"](order_id="W0")
    assert keys == plain
    assert lists["items"] != plain["items"]
    assert sorted(one["id"] for one in lists["items"]) == list(range(20))


def test_the_worlds_of_the_constant_cases_differ_in_every_mark() -> None:
    for name, case in constants.CASES.items():
        first, second, third = (constants.marks(names) for names in case.names)
        assert not set(third) & {*first, *second}, name


@pytest.mark.parametrize("kind", [*insurer.KINDS, *town_hall.KINDS], ids=lambda kind: kind.title)
def test_a_stranger_changes_what_is_there(kind: stranger.Kind) -> None:
    for change in [*stranger.changes(kind.harmful), *stranger.changes(kind.harmless)]:
        tables, given = kind.tables(stranger.NEXT), kind.given(stranger.NEXT)
        before = json.dumps([tables, given])
        stranger.changed(change, tables, given)
        assert json.dumps([tables, given]) != before, change


def test_a_stranger_counts_a_write_that_nobody_should_make() -> None:
    kind = insurer.EXTEND._replace(harmful='members.city = "Rome"', harmless="")
    wrong, _ = stranger.figures([kind], verbose=False)
    assert wrong.ours == 1
