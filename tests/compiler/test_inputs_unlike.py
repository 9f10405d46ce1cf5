"""An input unlike all recorded ones is not acted on, where recordings show what it may be."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from recorded_world import World

Given = Mapping[str, Any]
MERGES = ("squash", "rebase", "squash", "squash", "rebase", "squash", "rebase", "squash")


def merges(path: Path, count: int, values: Sequence[str] = MERGES) -> World:
    """Pull requests that are merged, of repositories that are looked at."""
    world = World(path)
    world.read(
        "get_repository",
        ("repository",),
        lambda repository, new: {
            "repository": repository, "archived": new == "archived", "stars": len(repository)
        },
    )  # fmt: skip
    world.write("merge", ("repository", "number", "merge_method"))
    tasks = []
    for n in range(count):
        given = {"repository": f"acme/app{n}", "number": 310 + 7 * n, "merge_method": values[n]}
        tasks.append((given, [("get_repository", given["repository"]), ("merge", *given.values())]))
    world.learn(tasks)
    return world


PULL = {"repository": "acme/app9", "number": 333, "merge_method": "squash"}


@pytest.mark.parametrize("count", [5, 6, 8])
def test_a_word_that_few_recordings_chose_from_few_is_one_of_them(
    tmp_path: Path, count: int
) -> None:
    world = merges(tmp_path, count)
    world.refuses(PULL | {"merge_method": "octopus"})
    world.refuses(PULL | {"merge_method": ""})
    world.does(PULL, ("acme/app9", 333, "squash"))
    world.does(PULL | {"merge_method": "rebase"}, ("acme/app9", 333, "rebase"))


def test_three_words_in_six_recordings_are_all(tmp_path: Path) -> None:
    world = merges(tmp_path, 6, ("squash", "rebase", "merge", "squash", "merge", "rebase"))
    world.refuses(PULL | {"merge_method": "octopus"})
    world.does(PULL | {"merge_method": "merge"}, ("acme/app9", 333, "merge"))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_an_archived_repository_is_not_merged_into(tmp_path: Path, count: int) -> None:
    world = merges(tmp_path, count)
    world.refuses(PULL, changed="archived")


@pytest.mark.parametrize("count", [4, 6, 8])
def test_a_text_that_is_another_one_each_time_may_be_any(tmp_path: Path, count: int) -> None:
    """Also if one of them came twice."""
    words = ("late", "too big", "broken", "late", "gift", "wrong colour", "dented", "too small")
    world = merges(tmp_path, count, words)
    world.does(PULL | {"merge_method": "no more need"}, ("acme/app9", 333, "no more need"))


def discounts(path: Path, count: int) -> World:
    world = World(path)
    world.read("get_offer", ("offer",), lambda offer, _: {"offer": offer, "state": "draft"})
    world.write("discount", ("offer", "percent", "items"))
    tasks = []
    for n in range(count):
        items = [f"I-{n}{k}0" for k in range(1 + n % 3)]
        given = {"offer": f"O-{n}71", "percent": (5, 10, 15, 10, 5, 15, 10, 15)[n], "items": items}
        tasks.append((given, [("get_offer", given["offer"]), ("discount", *given.values())]))
    world.learn(tasks)
    return world


@pytest.mark.parametrize("percent", [40, 16, 4])
def test_a_number_that_was_one_of_few_stays_in_their_range(tmp_path: Path, percent: int) -> None:
    world = discounts(tmp_path, 8)
    given = {"offer": "O-971", "percent": 12, "items": ["I-940", "I-950"]}
    world.refuses(given | {"percent": percent})
    world.does(given, ("O-971", 12, ["I-940", "I-950"]))


@pytest.mark.parametrize("count", [2, 4, 6])
@pytest.mark.parametrize(
    "odd",
    [
        {"percent": 400},
        {"percent": 0},
        {"percent": -10},
        {"percent": None},
        {"percent": "10"},
        {"items": []},
        {"items": None},
    ],
    ids=str,
)
def test_what_was_never_given_is_not_written(tmp_path: Path, count: int, odd: Given) -> None:
    world = discounts(tmp_path, count)
    given = {"offer": "O-971", "percent": 10, "items": ["I-940", "I-950"]}
    world.refuses(given | odd)
    world.does(given, ("O-971", 10, ["I-940", "I-950"]))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_an_item_is_not_exchanged_for_itself(tmp_path: Path, count: int) -> None:
    world = World(tmp_path)
    world.read("get_order", ("order",), lambda order, _: {"order": order, "state": "delivered"})
    world.write("exchange", ("order", "item", "new_item"))
    tasks = []
    for n in range(count):
        given = {"order": f"W-{n}10", "item": f"I-{n}11", "new_item": f"I-{n}77"}
        tasks.append((given, [("get_order", given["order"]), ("exchange", *given.values())]))
    world.learn(tasks)
    world.refuses({"order": "W-810", "item": "I-811", "new_item": "I-811"})
    world.does(
        {"order": "W-810", "item": "I-811", "new_item": "I-877"}, ("W-810", "I-811", "I-877")
    )


def test_an_input_that_nothing_uses_is_not_used_because_a_text_has_its_name(
    tmp_path: Path,
) -> None:
    """A recording with a lamp that is on does not show what is written for one that is off."""
    world = World(tmp_path)
    world.write("publish", ("payload",))
    world.learn([({"lamp": "L-11", "on": True}, [("publish", '{"lamp": "L-11", "on": true}')])])
    given = {"lamp": "L-73", "on": True}
    world.does(given, ('{"lamp": "L-73", "on": true}',))
    world.refuses(given | {"on": False})
