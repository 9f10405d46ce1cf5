"""The same task again: each successful run, compiled two ways and run two ways."""

from collections.abc import Iterator

from bench.figure import Figure
from bench.right.shelf import SOURCES, Shelf
from bench.right.suite import Suite
from bench.right.verdict import Tally, Verdict, judge, share, zero
from bench.right.world import World

LISTS = "lists"
ORDERS = ("as is", "keys", LISTS)


def same_task(shelf: Shelf, suite: Suite, *, verbose: bool) -> Iterator[Figure]:
    """Run each routine with its recorded input, on a fresh database."""
    what = f"{suite.title}, same task"
    tally = Tally(f"{what}: compiled from | run | order", verbose=verbose)
    for order in ORDERS:
        for source in SOURCES:
            for journalled in (True, False):
                how = "journalled" if journalled else "without a journal"
                _one_way(shelf, suite, tally, source, f"{source} | {how} | {order}")
    tally.show()
    # A list in another order may be another question, so a routine may ask there.
    right, runs = (tally.count(*kinds, without=LISTS) for kinds in (["right"], []))
    yield share(f"{what}: right, in every way of compiling and running", right, runs)
    yield zero(f"{what}: wrong or partial", tally.count("wrong", "partial"), tally.count())


def _one_way(shelf: Shelf, suite: Suite, tally: Tally, source: str, row: str) -> None:
    order = next(order for order in ORDERS if row.endswith(order))
    for run in suite.runs:
        made = shelf.compiled(run, source)
        if isinstance(made, str):
            tally.add(row, run.name, Verdict("not compiled", made))
            continue
        world = World(suite.domain, order, f"{run.name} {row}")
        ended = shelf.run(made, made.input, world, journalled="| journalled" in row)
        tally.add(row, run.name, judge(world, ended, suite.aims[run.name]))
