"""A record that comes as a text is checked as a record: its state must be as it was."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorded_world import World

Shown = Callable[[str, str, float], Any]
"""What is read of an order, by its id, its status and its total."""


def _json(order: str, status: str, total: float) -> str:
    return json.dumps({"order": order, "status": status, "total": total})


def _lines(order: str, status: str, total: float) -> str:
    return f"order: {order}\nstatus: {status}\ntotal: {total:.2f}"


TEXTS: dict[str, Shown] = {
    "JSON": _json,
    "a list of JSON": lambda *order: f"[{_json(*order)}]",
    "lines": _lines,
    "a table of Markdown": lambda order, status, total: (
        f"| order | status | total |\n|---|---|---|\n| {order} | {status} | {total:.2f} |"
    ),
    "CSV": lambda order, status, total: f"order,status,total\n{order},{status},{total:.2f}\n",
    "columns": lambda order, status, total: (
        f"order    status       total\n{order:8} {status:12} {total:.2f}"
    ),
    "JSON in a fence": lambda *order: f"```json\n{_json(*order)}\n```",
    "lines in a fence": lambda *order: f"```\n{_lines(*order)}\n```",
    "JSON in a block": lambda *order: [{"type": "text", "text": _json(*order)}],
    "JSON in content": lambda *order: {"content": [{"type": "text", "text": _json(*order)}]},
    "lines in a block": lambda *order: [{"type": "text", "text": _lines(*order)}],
    "a sentence in a block": lambda order, status, total: [
        {"type": "text", "text": f"Order {order} is {status}, total {total:.2f}."}
    ],
    "a fence in a text": lambda *order: f"Here it is:\n\n```json\n{_json(*order)}\n```\n",
    "XML": lambda order, status, total: (
        f'<?xml version="1.0"?>\n<order id="{order}">\n  <status>{status}</status>\n'
        f"  <total>{total:.2f}</total>\n</order>"
    ),
    "an attribute of XML": lambda order, status, total: (
        f'<order id="{order}" status="{status}" total="{total:.2f}"/>'
    ),
    "a sentence": lambda order, status, total: f"Order {order} is {status}, total {total:.2f}.",
    "sentences": lambda order, status, total: (
        f"This is order {order}.\nIt was placed by phone, and at the moment it is {status}. "
        f"The customer pays {total:.2f} EUR for it, in 2 parts.\n"
    ),
    "a field of a record": lambda order, status, total: {
        "order": order, "text": f"The order is {status} and costs {total:.2f} EUR."
    },
    "one line of fields": lambda order, status, total: f"{order} | {status} | {total:.2f}",
    "a list of one": lambda order, status, total: [
        {"order": order, "status": status, "total": total}
    ],
}  # fmt: skip


def depot(path: Path, shown: Shown, count: int) -> World:
    """Return a world in which pending orders get another address."""
    world = World(path)

    def result(order: str, new: Any) -> Any:
        return shown(order, new or "pending", 12.5 + 7 * int(order[2]))

    world.read("get_order", ("order",), result)
    world.write("change_address", ("order", "street"))
    tasks = []
    for number in range(1, count + 1):
        given = {"order": f"W-{number}0{number}", "street": f"{number + 3} Mill Lane"}
        look = ("get_order", given["order"])
        tasks.append((given, [look, ("change_address", *given.values())]))
    world.learn(tasks)
    return world


NEXT = {"order": "W-808", "street": "9 Mill Lane"}


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("text", TEXTS)
def test_the_state_in_a_text_must_be_as_it_was(tmp_path: Path, text: str, count: int) -> None:
    world = depot(tmp_path, TEXTS[text], count)
    world.refuses(NEXT, changed="delivered")
    world.does(NEXT, ("W-808", "9 Mill Lane"))


LETTERS = (
    "Hello, my street changed when I moved in with my sister. Please send it there.",
    "We are away for a week, and the neighbours take everything in. Thanks a lot!",
    "Could the parcel go to the office? Nobody opens the door at home before six.",
    "I typed the wrong number. Sorry about that, and thank you for your help.",
    "The flat is being painted until Friday, so leave it with Mr. Ono instead.",
)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_text_that_is_another_one_each_time_may_be_another_one(
    tmp_path: Path, count: int
) -> None:
    def letter(order: str, _status: str, _total: float) -> Any:
        other = "Dear shop, a friend will collect my parcels from now on. Best, Vera"
        text = other if order == "W-808" else LETTERS[int(order[2]) - 1]
        return {"order": order, "letter": text}

    world = depot(tmp_path, letter, count)
    world.does(NEXT, ("W-808", "9 Mill Lane"))


def test_words_that_a_text_had_often_are_all_that_it_may_have(tmp_path: Path) -> None:
    def sentence(order: str, status: str, _total: float) -> Any:
        is_new = order == "W-808"
        state = status if is_new else ("pending", "packed")[int(order[2]) % 2]
        return f"Order {order} is {state} now."

    world = depot(tmp_path, sentence, 6)
    world.refuses(NEXT, changed="delivered")
    world.does(NEXT, ("W-808", "9 Mill Lane"), changed="packed")


def test_nothing_may_be_said_beside_what_texts_had(tmp_path: Path) -> None:
    def sentence(order: str, status: str, total: float) -> Any:
        more = "" if status == "pending" else " (on hold)"
        return f"Order {order} is pending, total {total:.2f}{more}"

    world = depot(tmp_path, sentence, 3)
    world.refuses(NEXT, changed="on hold")
    world.does(NEXT, ("W-808", "9 Mill Lane"))
