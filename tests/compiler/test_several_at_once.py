"""One task for several things: one call for each id of a list."""

from collections.abc import Callable
from typing import Any

import pytest

from corner_shop import Shop
from em import Memory
from em.runner.run import RunResult
from em.traces.trace import Trace

LATE, MISTAKE = "too late", "ordered by mistake"


def open_orders(shop: Shop, number: int) -> tuple[str, str, list[str]]:
    """Give a customer three pending orders: user id, e-mail address, and the orders."""
    user = list(shop.users)[number]
    held = shop.users[user]["orders"]
    for more in (f"#W8{number}301", f"#W8{number}302"):
        if more not in shop.orders:
            shop.orders[more] = {**shop.orders[held[1]], "order_id": more}
            held.append(more)
    return user, shop.users[user]["email"], held[1:]


def cancelled_together(number: int, reason: str, count: int) -> Trace:
    """A customer cancelled several orders at once."""
    shop = Shop()
    user, email, orders = open_orders(shop, number)
    chosen = orders[:count]
    return shop.trace(
        "",
        ("find_user", {"email": email}),
        ("get_user", {"user_id": user}),
        *(("get_order", {"order_id": one}) for one in chosen),
        *(("cancel_order", {"order_id": one, "reason": reason}) for one in chosen),
        given={"email": email, "orders": chosen, "reason": reason},
    )


class Learnt:
    """A routine learnt from some traces, and run for another customer."""

    def __init__(self, memory: Memory, *traces: Trace) -> None:
        self._memory = memory
        self._routine = memory.compile([memory.add_trace(one) for one in traces], name="serve")

    @property
    def memory(self) -> Memory:
        return self._memory

    def run(self, orders: Any, shop: Shop | None = None) -> tuple[RunResult, Any]:
        where = shop or Shop()
        _, email, _ = open_orders(where, 4)
        given = {"email": email, "orders": orders, "reason": LATE}
        return self._memory.run(self._routine, given, where.tools()), where.done


@pytest.fixture(scope="module")
def canceller(new_memory: Callable[[], Memory]) -> Learnt:
    """It has seen one, two and three orders."""
    made = [
        cancelled_together(n, (LATE, MISTAKE)[n % 2], count) for n, count in enumerate((2, 3, 1, 2))
    ]
    return Learnt(new_memory(), *made)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_order_of_the_list_is_one_call(canceller: Learnt, count: int) -> None:
    wanted = open_orders(Shop(), 4)[2][:count]
    result, done = canceller.run(wanted)
    assert result.status == "ok", result
    assert done == [("cancel_order", {"order_id": one, "reason": LATE}) for one in wanted]


FIRST = "#W80204"
ODD = {
    "none": [],
    "one of them twice": [FIRST, "#W84301", FIRST],
    "somebody else's": [FIRST, "#W80205"],
    "one that was delivered": [FIRST, "#W70104"],
    "one that is not there": [FIRST, "#W99999"],
    "nothing": [FIRST, None],
    "a text": FIRST,
    "another list": [[FIRST]],
}


@pytest.mark.parametrize("odd", ODD)
def test_one_order_that_may_not_be_cancelled_stops_all(canceller: Learnt, odd: str) -> None:
    result, done = canceller.run(ODD[odd])
    assert done == []
    assert result.status in ("needs_input", "failed")


def test_an_order_of_the_list_that_has_another_state_stops_all(canceller: Learnt) -> None:
    shop = Shop()
    orders = open_orders(shop, 4)[2]
    shop.orders[orders[1]]["status"] = "sent"
    result, done = canceller.run(orders[:2], shop)
    assert (result.status, done) == ("needs_input", []), result


def test_a_run_that_was_killed_between_two_effects_goes_on_without_repeating_one(
    canceller: Learnt,
) -> None:
    shop = Shop()
    _, email, orders = open_orders(shop, 4)
    given = {"email": email, "orders": orders[:2], "reason": LATE}
    written = shop.tools()["cancel_order"]

    def cancel_order(**args: Any) -> Any:
        if shop.done and not shop.dies_at:
            raise KeyboardInterrupt
        return written(**args)

    tools = shop.tools() | {"cancel_order": cancel_order}
    with pytest.raises(KeyboardInterrupt):
        canceller.memory.run("serve", given, tools, run_id="killed")
    assert [args["order_id"] for _, args in shop.done] == orders[:1]
    shop.dies_at = "nothing"
    result = canceller.memory.resume("killed", tools)
    assert result.pending_prompt is not None, "nobody knows whether the second was cancelled"
    answer = {result.pending_prompt.step_id: {"happened": False}}
    result = canceller.memory.resume("killed", tools, answers=answer)
    assert result.status == "ok", result
    assert [args["order_id"] for _, args in shop.done] == orders[:2]
