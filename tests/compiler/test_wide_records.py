"""Records of many fields are learnt from in time that grows as they do."""

import random
import sys
from typing import Any

import pytest

from em.compiler.evidence import BY_PERSON, CONSTANTS_SHOWN, Caution
from em.compiler.example import Call, Example
from em.compiler.learner import learn
from em.values.canonical import Json


def record(task: int, tag: str, width: int) -> Json:
    """Return a record with fields of every kind, which differ from task to task."""
    chance = random.Random(f"{task} {tag}")
    makers: list[Any] = [
        lambda: chance.randrange(10**6),
        lambda: f"{tag}-{chance.randrange(10**5)}",
        lambda: chance.choice(["open", "shut", "half"]),
        lambda: chance.random() * 1000,
        lambda: f"2026-0{chance.randrange(1, 9)}-1{chance.randrange(9)}",
        lambda: f"some words {chance.randrange(999)} about it",
        lambda: [f"x{chance.randrange(99)}" for _ in range(3)],
    ]
    return {f"{tag}_{n}": makers[n % len(makers)]() for n in range(width)}


def recorded(task: int, width: int) -> Example:
    order = record(task, "order", width) | {"owner": f"U-{900 + task}", "price": 3 + task}
    order["count"] = 2 + 3 * task
    user = record(task, "user", width) | {"user": f"U-{900 + task}", "name": f"Name {task} B"}
    text = f"Hi {user['name']}, it is about {order['order_1']}"
    args = {"to": user["user"], "sum": order["price"] * order["count"], "text": text}
    given = {"id": f"A-{task + 10}"}
    calls = [
        Call("get_order", given, order),
        Call("get_user", {"id": order["owner"]}, user),
        Call("pay", args, {"ok": True}, None, "write"),
    ]
    return Example(given, calls)


def work(width: int, caution: Caution, tasks: range) -> int:
    """Return how many functions are called to learn from records of so many fields."""
    examples = [recorded(task, width) for task in tasks]
    called = 0

    def count(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal called
        called += event == "call"

    sys.setprofile(count)
    try:
        learn("task", examples, caution=caution)
    finally:
        sys.setprofile(None)
    return called


@pytest.mark.parametrize(("caution", "recordings"), [(CONSTANTS_SHOWN, 2), (BY_PERSON, 1)])
def test_ten_times_the_fields_are_about_ten_times_the_work(
    caution: Caution, recordings: int
) -> None:
    work(10, caution, range(90, 90 + recordings))  # what is made once for all
    few = work(30, caution, range(recordings))
    assert work(300, caution, range(10, 10 + recordings)) <= 14 * few
