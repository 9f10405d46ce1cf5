"""`all items`, `everything`, `all except …`, `the others`: where traces showed what they mean."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corner_shop import GOODS, Shop, cancelled, customer, exchanged, returned
from em import Memory
from em.compiler.compile_trace import compile_several
from em.runner.run import RunResult
from em.runner.version_change import changes
from em.traces.trace import Trace

ALL = tuple(GOODS)
LAMP, BOTTLE, MAT = ALL


def sent_back(number: int, products: Any, words: str) -> Trace:
    """A customer returned things, in these words."""
    shop = Shop()
    user, email, delivered, _ = customer(shop, number)
    (card,) = shop.users[user]["cards"]
    return returned(shop, number, products, words.format(email=email, order=delivered, card=card))


def others() -> list[Trace]:
    shop = Shop()
    return [
        cancelled(shop, 0, "too late"),
        returned(shop, 1, [LAMP]),
        returned(shop, 2, [BOTTLE, MAT]),
        exchanged(shop, 3, LAMP, color="black"),
        exchanged(shop, 4, MAT, material="rubber"),
    ]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


class Clerk:
    """A routine that has learnt from these traces, and how it serves a customer."""

    def __init__(self, memory: Memory, *traces: Trace) -> None:
        every = [*others(), *traces]
        self._memory = memory
        self._routine = memory.compile([memory.add_trace(trace) for trace in every], name="serve")

    def run(self, words: str, shop: Shop | None = None) -> tuple[RunResult, Any]:
        where = shop or Shop()
        user, email, delivered, pending = customer(where, 5)
        (card,) = where.users[user]["cards"]
        request = words.format(email=email, order=delivered, card=card, pending=pending)
        given = {"request": request}
        result = self._memory.run(self._routine, given, where.tools(), remember=False)
        return result, where.done


@pytest.fixture(scope="module")
def clerk(new_memory: Callable[[], Memory]) -> Clerk:
    """It has seen twice each what `all`, `everything`, `all except` and `all others` mean."""
    kept = "My mail is {email}. I keep the Desk Lamp. Return all the others of {order} to {card}."
    return Clerk(
        new_memory(),
        sent_back(0, ALL, "I am {email}. Return all items of {order} to {card}."),
        sent_back(1, ALL, "My mail is {email}. Please return all the items of {order} to {card}."),
        sent_back(2, ALL, "I am {email}. Return everything in {order} to {card}."),
        sent_back(3, ALL, "I am {email}. I want to return everything from {order} to {card}."),
        sent_back(0, (BOTTLE, MAT), "{email}. Return all except the Desk Lamp of {order} to"
                  " {card}."),
        sent_back(1, (LAMP, MAT), "{email}. Return all items except the Water Bottle of {order} to"
                  " {card}."),
        sent_back(2, (BOTTLE, MAT), kept),
        sent_back(3, (BOTTLE, MAT), kept),
    )  # fmt: skip


def items(*products: str) -> list[str]:
    shop = Shop()
    order = shop.orders[customer(shop, 5)[2]]
    return [one["item_id"] for one in order["items"] if one["product_id"] in products]


@pytest.mark.parametrize(
    ("words", "products"),
    [
        ("I am {email}. Return all items of {order} to {card}.", ALL),
        ("I am {email}. Could you please refund all of my items from {order} to {card}?", ALL),
        ("I am {email}. Return everything in order {order} to {card}, please.", ALL),
        ("I am {email}. Return all except the Yoga Mat of {order} to {card}.", (LAMP, BOTTLE)),
        ("I am {email}. Return all items of {order} except the Desk Lamp and the Yoga Mat to"
         " {card}.", (BOTTLE,)),
        ("I am {email}. I want to keep the Water Bottle and the Yoga Mat. Return all the others of"
         " {order} to {card}.", (LAMP,)),
        ("I am {email}. I keep the Water Bottle. Return all the others of {order} to {card}.",
         (LAMP, MAT)),
    ],
)  # fmt: skip
def test_words_for_all_mean_what_traces_showed(
    clerk: Clerk, words: str, products: tuple[str, ...]
) -> None:
    result, done = clerk.run(words)
    assert result.status == "ok", result
    assert [(name, args["item_ids"]) for name, args in done] == [("return_items", items(*products))]


def test_the_others_are_those_that_no_effect_before_names(clerk: Clerk) -> None:
    result, done = clerk.run(
        "I am {email}. For {order}, exchange the Desk Lamp to black. Return all the others of"
        " {order} to {card}.",
    )
    assert result.status == "ok", result
    assert [(name, args["item_ids"]) for name, args in done] == [
        ("exchange_items", items(LAMP)),
        ("return_items", items(BOTTLE, MAT)),
    ]


@pytest.mark.parametrize(
    "words",
    [
        "I am {email}. Return all black items of {order} to {card}.",
        "I am {email}. Return all items I got for him of {order} to {card}.",
        "I am {email}. Return all items that I like of {order} to {card}.",
        "I am {email}. Return all items of color in {order} to {card}.",
        "I am {email}. Return all options of {order} to {card}.",
        "I am {email}. Return all my orders, {order} to {card}.",
        "I am {email}. Return almost all items of {order} to {card}.",
        "I am {email}. Return not all items of {order} to {card}.",
        "I am {email}. Don't return all items of {order} to {card}.",
        "I am {email}. Return all items of {order} to {card} if you can.",
        "I am {email}. Return all items but one of {order} to {card}.",
        "I am {email}. Return all items but the Desk Lamp of {order} to {card}.",
        "I am {email}. Return all items of {order} but keep the Desk Lamp, to {card}.",
        "I am {email}. Return all items of {order} and {pending} to {card}.",
        "I am {email}. Return all items, the Desk Lamp of {order} to {card}.",
        "I am {email}. Return the Desk Lamp of {order} to {card}, that is all.",
        "I am {email}. Return the Desk Lamp, all except that of {order} to {card}.",
        "I am {email}. Return all except the Toaster of {order} to {card}.",
        "I am {email}. Return all the others of {order} to {card}.",
        "I am {email}. Return all the others of {order} to {card}. I keep the Desk Lamp.",
        "I am {email}. Return the rest of {order} to {card}.",
        "I am {email}. Return every item of {order} to {card}.",
        "I am {email}. Return both items of {order} to {card}.",
        "I am {email}. All items of {order} were returned to {card}.",
        "I am {email}. Return all items of {order} to {card}?",
        "I am {email}. Return all items of {pending} to {card}.",
        "I am {email}. For {order}, exchange all items to black.",
        "I am {email}. Return all items.",
        "I am {email}. I keep the Desk Lamp. Return all items of {order} to {card}.",
        "I am {email}. I keep the lamp. Return all items of {order} to {card}.",
        "I am {email}. I keep the Yoga Mat. Return all except the Desk Lamp of {order} to {card}.",
        "I am {email}. I keep the lamp and the Yoga Mat. Return all the others of {order} to"
        " {card}.",
        "I am {email}. I keep the Desk Lamp and the Toaster. Return all the others of {order} to"
        " {card}.",
        "I am {email}. You may have the Desk Lamp too. Return all the others of {order} to {card}.",
        "I am {email}. The Desk Lamp. Return all the others of {order} to {card}.",
        "I am {email}. I keep the Desk Lamp and I'd like the Yoga Mat. Return all the others of"
        " {order} to {card}.",
        "I am {email}. Do I keep the Desk Lamp? Return all the others of {order} to {card}.",
        "I am {email}. He may keep the Desk Lamp. Return all the others of {order} to {card}.",
        "I am {email}. I got the Desk Lamp. Return all the others of {order} to {card}.",
        "I am {email}. The black ones are fine. Return everything in {order} to {card}.",
        "I am {email}. Return all items of {order} to {card}. The Desk Lamp is fine.",
        "I am {email}. Return all items of {order} to {card}. Keep the lamp.",
        "I am {email}. Return all the others of {order} to {card}. Return the Desk Lamp of {order}"
        " to {card}.",
    ],
)
def test_words_for_all_that_are_restricted_or_were_never_shown_are_asked_about(
    clerk: Clerk, words: str
) -> None:
    result, done = clerk.run(words)
    assert (result.status, done) == ("needs_input", []), result


def test_the_others_of_one_order_are_not_those_of_another(clerk: Clerk) -> None:
    shop = Shop()
    user, _, delivered, _ = customer(shop, 5)
    shop.orders["#W79999"] = {**shop.orders[delivered], "order_id": "#W79999"}
    shop.users[user]["orders"][1] = "#W79999"
    words = (
        "I am {email}. For #W79999, exchange the Desk Lamp to black. Return all the others of"
        " {order} to {card}."
    )
    result, done = clerk.run(words, shop)
    assert (result.status, done) == ("needs_input", []), result


def test_all_is_asked_about_where_a_list_has_the_same_thing_twice(clerk: Clerk) -> None:
    shop = Shop()
    held = shop.orders[customer(shop, 5)[2]]["items"]
    held.append(dict(held[0]))
    words = "I am {email}. Return all items of {order} to {card}."
    result, done = clerk.run(words, shop)
    assert (result.status, done) == ("needs_input", []), result


def test_one_trace_does_not_show_what_all_means(memory: Memory) -> None:
    words = "I am {email}. Return all items of {order} to {card}."
    result, done = Clerk(memory, sent_back(0, ALL, words)).run(words)
    assert (result.status, done) == ("needs_input", []), result


def test_all_is_asked_about_if_it_meant_something_else_in_a_trace(memory: Memory) -> None:
    words = "I am {email}. Return all items of {order} to {card}."
    traces = [
        sent_back(0, ALL, words),
        sent_back(1, ALL, words),
        sent_back(2, (LAMP, MAT), words),
    ]
    result, done = Clerk(memory, *traces).run(words)
    assert (result.status, done) == ("needs_input", []), result


def test_a_new_version_says_which_words_it_has_learnt(memory: Memory) -> None:
    words = "I am {email}. Return all items of {order} to {card}."
    for trace in others():
        memory.add_trace(trace)
    old = compile_several(memory.traces())
    for number in (0, 1):
        memory.add_trace(sent_back(number, ALL, words))
    said = changes(old.draft.routine, compile_several(memory.traces()).draft.routine)
    assert 'return_items: item_ids may be said as "all"' in said
