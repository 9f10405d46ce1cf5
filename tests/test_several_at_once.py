"""One sentence for several things: one call for each id."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corner_shop import Shop, cancelled
from em import Memory
from em.compiler.compile_trace import compile_several
from em.runner.run import RunResult
from em.runner.version_change import changes
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


def cancelled_together(number: int, reason: str, words: str, count: int = 2) -> Trace:
    """A customer cancelled several orders in one sentence."""
    shop = Shop()
    user, email, orders = open_orders(shop, number)
    chosen = orders[:count]
    return shop.trace(
        words.format(*chosen, email=email, reason=reason),
        ("find_user", {"email": email}),
        ("get_user", {"user_id": user}),
        *(("get_order", {"order_id": one}) for one in chosen),
        *(("cancel_order", {"order_id": one, "reason": reason}) for one in chosen),
    )


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


class Learnt:
    """A routine learnt from some traces, and run for another customer."""

    def __init__(self, memory: Memory, *traces: Trace) -> None:
        self._memory = memory
        self._routine = memory.compile([memory.add_trace(one) for one in traces], name="serve")

    def run(self, words: str, shop: Shop | None = None) -> tuple[RunResult, Any]:
        where = shop or Shop()
        _, email, orders = open_orders(where, 4)
        request = words.format(*orders, email=email, other="#W80205", sent="#W70104")
        given = {"request": request}
        result = self._memory.run(self._routine, given, where.tools(), remember=False)
        return result, where.done


def one_by_one() -> list[Trace]:
    shop = Shop()
    other = "Bo here, bo.larsen1@shop.example: cancel #W80201, it was ordered by mistake."
    return [
        cancelled(shop, 0, LATE),
        cancelled(shop, 1, MISTAKE, other),
        cancelled(shop, 2, LATE, "cleo.okoye2@shop.example. Please cancel #W80202, too late!"),
    ]


@pytest.fixture(scope="module")
def canceller(new_memory: Callable[[], Memory]) -> Learnt:
    """It has seen one sentence with two orders."""
    words = "I am {email}. Cancel {0} and {1} because {reason}."
    return Learnt(new_memory(), *one_by_one(), cancelled_together(3, LATE, words))


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("I am {email}. Cancel {0} and {1} because too late.", 2),
        ("I am {email}. Please cancel my orders {0}, {1} and {2}: too late.", 3),
        ("I am {email}. I want to cancel {0}, {1}, and {2} because too late.", 3),
        ("I am {email}. Cancel {0}, {1} because it is too late.", 2),
        ("I am {email}. Cancel orders {0} and {1}, please, too late!", 2),
        ("I am {email}. Cancel {1} because too late.", 1),
    ],
)
def test_several_ids_in_one_sentence_are_one_call_each(
    canceller: Learnt, words: str, count: int
) -> None:
    result, done = canceller.run(words)
    orders = open_orders(Shop(), 4)[2]
    wanted = orders[:count] if count > 1 else [orders[1]]
    assert result.status == "ok", result
    assert done == [("cancel_order", {"order_id": one, "reason": LATE}) for one in wanted]


@pytest.mark.parametrize(
    "words",
    [
        "I am {email}. Cancel {0} or {1} because too late.",
        "I am {email}. Cancel {0}, {1} or {2} because too late.",
        "I am {email}. Cancel {0}, not {1} and {2} because too late.",
        "I am {email}. Cancel {0} and {1} because too late and ordered by mistake.",
        "I am {email}. Cancel {0} and {1} because too late and {2} because ordered by mistake.",
        "I am {email}. Cancel {0} and {1} because too late and {2}.",
        "I am {email}. Cancel {0} and {0} because too late.",
        "I am {email}. Cancel {0} and {other} because too late.",
        "I am {email}. Cancel {0} and {sent} because too late.",
        "I am {email}. Cancel {0} and {1}.",
        "I am {email}. Cancel {0} and {1} if it is too late.",
        "I am {email}. Cancel neither {0} nor {1} because too late.",
        "I am {email}. Cancel one of {0} and {1} because too late.",
        "I am {email}. Cancel whichever of {0} and {1} because too late.",
        "I am {email}. Don't cancel {0} and {1} because too late.",
        "I am {email}. For {0}, {1} is to cancel because too late.",
        "I am {email}. Cancel what was made of {0} and {1} because too late.",
        "I am {email}. Cancel {0} and {1} and 500 because too late.",
        "I am {email}. Cancel {0} and {1} because too late, but only {2}.",
        "I am {email}. Cancel {0} and {1} is too late.",
        "I am {email}. Cancel {0}, {1} was too late.",
        "I am {email}. Cancel {0}, and {1} too is too late.",
        "I am {email}. Cancel {0}, and {1} please have, too late.",
        "I am {email}. Cancel {0} and {1} I want, too late.",
        "I am {email}. Cancel {0}, and {1} they have, because too late.",
    ],
)
def test_several_ids_that_are_not_clearly_meant_are_asked_about(
    canceller: Learnt, words: str
) -> None:
    result, done = canceller.run(words)
    assert (result.status, done) == ("needs_input", []), result


def test_an_order_of_the_list_that_may_not_be_cancelled_stops_all(
    canceller: Learnt,
) -> None:
    shop = Shop()
    orders = open_orders(shop, 4)[2]
    shop.orders[orders[1]]["status"] = "sent"
    result, done = canceller.run("I am {email}. Cancel {0} and {1} because too late.", shop)
    assert (result.status, done) == ("needs_input", []), result


def test_several_ids_are_asked_about_if_no_trace_had_them_in_one_sentence(memory: Memory) -> None:
    words = "I am {email}. Cancel {0} because {reason}. Cancel {1} because {reason}."
    routine = Learnt(memory, *one_by_one(), cancelled_together(3, LATE, words))
    result, done = routine.run("I am {email}. Cancel {0} and {1} because too late.")
    assert (result.status, done) == ("needs_input", []), result


def test_a_trace_that_did_one_of_two_named_ones_teaches_no_list(memory: Memory) -> None:
    words = "I am {email}. Cancel {0} and #W83301 because {reason}."
    odd = cancelled_together(3, LATE, words, count=1)
    routine = Learnt(memory, *one_by_one(), odd)
    result, done = routine.run("I am {email}. Cancel {0} and {1} because too late.")
    assert (result.status, done) == ("needs_input", []), result


def test_a_list_of_which_a_trace_did_only_one_is_asked_about_though_another_did_all(
    memory: Memory,
) -> None:
    both = cancelled_together(3, LATE, "I am {email}. Cancel {0} and {1} because {reason}.")
    words = "I am {email}. Cancel {0} and #W80301 because {reason}."
    routine = Learnt(memory, *one_by_one(), both, cancelled_together(0, LATE, words, count=1))
    result, done = routine.run("I am {email}. Cancel {0} and {1} because too late.")
    assert (result.status, done) == ("needs_input", []), result


def test_a_new_version_says_that_a_sentence_may_have_several(memory: Memory) -> None:
    for trace in one_by_one():
        memory.add_trace(trace)
    old = compile_several(memory.traces())
    words = "I am {email}. Cancel {0} and {1} because {reason}."
    memory.add_trace(cancelled_together(3, LATE, words))
    said = changes(old.draft.routine, compile_several(memory.traces()).draft.routine)
    assert "cancel_order: one sentence may name several order_id" in said
