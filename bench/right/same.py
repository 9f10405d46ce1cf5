"""The same task again: each successful run, compiled two ways and run two ways."""

from collections.abc import Iterator, Sequence

from bench.figure import Figure
from bench.right.recording import Aim, Recording, gold_aim, recorded_aim
from bench.right.shelf import SOURCES, Shelf
from bench.right.verdict import Tally, Verdict, judge
from bench.right.world import Domain, World

LISTS = "lists"
ORDERS = ("as is", "keys", LISTS)


def aims(runs: Sequence[Recording], of: Domain, split: str) -> dict[str, Aim]:
    """Where each run should lead: where it led, which tau-bench's own actions confirm."""
    found: dict[str, Aim] = {}
    differ = 0
    for run in runs:
        found[run.name] = recorded_aim(run, of)
        differ += found[run.name].changes != gold_aim(of.tasks[split][run.task], of).changes
    print(f"{len(runs)} runs; {differ} of them led to another database than the gold actions")
    return found


def same_task(
    shelf: Shelf, runs: Sequence[Recording], wanted: dict[str, Aim], of: Domain, *, verbose: bool
) -> Tally:
    """Run each routine with its recorded input, on a fresh database."""
    tally = Tally("same task: compiled from | run | order", verbose=verbose)
    for order in ORDERS:
        for source in SOURCES:
            for journalled in (True, False):
                how = "journalled" if journalled else "without a journal"
                row = f"{source} | {how} | {order}"
                for run in runs:
                    made = shelf.compiled(run, source)
                    if isinstance(made, str):
                        tally.add(row, run.name, Verdict("not compiled", made))
                        continue
                    world = World(of, order, f"{run.name} {row}")
                    ended = shelf.run(made, made.input, world, journalled=journalled)
                    tally.add(row, run.name, judge(world, ended, wanted[run.name]))
    tally.show()
    return tally


def figures(tally: Tally, what: str) -> Iterator[Figure]:
    # A list in another order may be another question, so a routine may ask there.
    right, runs = (tally.count(*kinds, without=LISTS) for kinds in (["right"], []))
    yield share(f"{what}: right, in every way of compiling and running", right, runs)
    yield zero(f"{what}: wrong or partial", tally.count("wrong", "partial"), tally.count())


def share(what: str, part: int, whole: int) -> Figure:
    return Figure(what, part, "of", whole, "", part / max(whole, 1), 1.0, True)


def zero(what: str, found: int, whole: int) -> Figure:
    return Figure(what, found, "of", whole, "", found, 0, False)
