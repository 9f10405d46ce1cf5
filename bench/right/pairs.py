"""Another task of the same kind: the routine of one run with the inputs of another."""

import random
from collections.abc import Iterator

from bench.figure import Figure
from bench.right.recording import Recording
from bench.right.shelf import Shelf
from bench.right.suite import Suite, by_kind
from bench.right.verdict import Tally, Verdict, judge, zero
from bench.right.world import World

SOURCE = "a file"


def other_task(shelf: Shelf, suite: Suite, limit: int, *, verbose: bool) -> Iterator[Figure]:
    """Run the first's routine with the second's inputs that it declares; the rest is missing."""
    what = f"{suite.title}, another task of the same kind"
    tally = Tally(what, verbose=verbose)
    chosen = _pairs(suite, limit)
    for first, second in chosen:
        tally.add(
            "inputs by name", f"{first.name} → {second.name}", _one(shelf, suite, first, second)
        )
    tally.show()
    yield zero(f"{what}: wrong or partial", tally.count("wrong", "partial"), len(chosen))


def _one(shelf: Shelf, suite: Suite, first: Recording, second: Recording) -> Verdict:
    made, other = shelf.compiled(first, SOURCE), shelf.compiled(second, SOURCE)
    if isinstance(made, str) or isinstance(other, str):
        return Verdict("not compiled", made if isinstance(made, str) else str(other))
    given = {name: value for name, value in other.input.items() if name in made.declared}
    world = World(suite.domain)
    ended = shelf.run(made, given, world, journalled=False)
    return judge(world, ended, suite.aims[second.name])


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
