"""Another task of the same kind: the routine of one run with the inputs of another."""

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bench.figure import Figure
from bench.right.recording import Recording
from bench.right.shelf import Shelf, Shelved
from bench.right.suite import Suite, by_kind
from bench.right.verdict import Tally, Verdict, judge, zero
from bench.right.world import World

SOURCE = "a file"
BY_NAME = "inputs by name"
BY_WRITE = "more inputs, from the gold write"


def other_task(shelf: Shelf, suite: Suite, limit: int, *, verbose: bool) -> Iterator[Figure]:
    """Run the first's routine with the second's inputs that it declares; the rest is missing.

    Where the second task is a single write, also with what that write says about missing ones.
    """
    what = f"{suite.title}, another task of the same kind"
    tally = Tally(what, verbose=verbose)
    chosen = _pairs(suite, limit)
    for first, second in chosen:
        made, other = shelf.compiled(first, SOURCE), shelf.compiled(second, SOURCE)
        case = f"{first.name} → {second.name}"
        if isinstance(made, str) or isinstance(other, str):
            why = made if isinstance(made, str) else str(other)
            tally.add(BY_NAME, case, Verdict("not compiled", why))
            continue
        given = {name: value for name, value in other.input.items() if name in made.declared}
        tally.add(BY_NAME, case, _one(shelf, suite, made, given, second))
        more = _facts(made, second, suite) | given
        if more.keys() != given.keys():
            tally.add(BY_WRITE, case, _one(shelf, suite, made, more, second))
    tally.show()
    yield zero(f"{what}: wrong or partial", tally.count("wrong", "partial"), tally.count())


def _one(
    shelf: Shelf, suite: Suite, made: Shelved, given: Mapping[str, Any], second: Recording
) -> Verdict:
    world = World(suite.domain)
    ended = shelf.run(made, given, world, journalled=False)
    return judge(world, ended, suite.aims[second.name])


def _facts(made: Shelved, second: Recording, suite: Suite) -> dict[str, Any]:
    """What the second task's customer and its only write say about declared inputs, by name.

    `item_ids_2` is the second of `item_ids`. An address is left out: is it the old or the new one?
    """
    (write, *more) = suite.aims[second.name].examples
    if more or "address1" in write.args:
        return {}
    known: dict[str, Any] = {}
    users = suite.domain.tables["users"]
    user = next((args["user_id"] for _, args in second.calls if args.get("user_id") in users), None)
    if user is not None:
        profile = users[user]
        known |= {"user_id": user, "email": profile["email"], **profile["name"]}
        known |= {"zip": profile["address"].get("zip")}
    known |= write.args
    found: dict[str, Any] = {}
    for base, value in known.items():
        # Inputs for the items of a list say all of it only if they are as many.
        names = sorted(name for name in made.declared if re.fullmatch(rf"{base}(_\d+)?", name))
        whole = names and isinstance(value, list) is isinstance(made.input.get(names[0]), list)
        values = [value] if whole or not isinstance(value, list) else value
        if len(names) == len(values):
            found |= zip(names, values, strict=True)
    return found


def _pairs(suite: Suite, limit: int) -> list[tuple[Recording, Recording]]:
    """Ordered pairs of runs of different tasks whose writes use the same tools as often."""
    found = [
        (first, second)
        for runs in by_kind(suite)
        for first in runs
        for second in runs
        if first.task != second.task
    ]
    chosen = found if len(found) <= limit else random.Random(14).sample(found, limit)
    print(f"{len(chosen)} of {len(found)} ordered pairs")
    return chosen
