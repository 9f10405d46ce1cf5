"""Ten kinds of task in three worlds, learnt from few recordings; and traps in which nobody acts.

The worlds were written by somebody who had not seen the learner. They are development data since
their first run: their figures say what was reached here, not what to expect elsewhere.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bench.figure import Figure
from bench.learn.learner import Runnable, TypedLearner
from bench.learn.report import Report
from bench.right.verdict import Verdict, zero
from bench.worlds.catalogue import KINDS, LATER, TESTED, as_trace
from bench.worlds.world import Kind

if TYPE_CHECKING:
    from em.traces.trace import Trace

SIZES = (2, 3, 5, 8, 12, 20)
BARS = {5: 0.9, 12: 0.97}
TRAPS_ACTED = 2
"""Traps that may be acted on; each is named."""
ALL = KINDS | LATER
COLUMNS = ("right", "handed over", "wrong", "not learnt", "held", "acted")


def tasks(
    learner: TypedLearner,
    sizes: Sequence[int],
    *,
    verbose: bool,
    name: str = "worlds",
    kinds: Mapping[str, Kind] = KINDS,
) -> Iterator[Figure]:
    """Learn each kind from so many recordings, then do its unseen tasks and its traps."""
    before = 0
    for size in sizes:
        report = Report(f"{name}, learnt from {size}", columns=COLUMNS, verbose=verbose)
        for kind in kinds:
            _score(report, kind, _learnt(learner, kind, size))
        report.show()
        right, every = report.count("right"), len(kinds) * len([*TESTED])
        what = f"{name}, learnt from {size}"
        share = right / every
        yield Figure(f"{what}: right", right, "of", every, "", share, BARS.get(size), True)
        yield zero(f"{what}: wrong", report.count("wrong"), every)
        yield zero(f"{what}: right with fewer, not any more", max(0, before - right), every)
        acted, traps = report.count("acted"), sum(len(one.traps) for one in kinds.values())
        limit = TRAPS_ACTED / traps
        yield Figure(f"{what}: traps", acted, "of", traps, "", acted / traps, limit, False)
        before = right


def _learnt(learner: TypedLearner, kind: str, size: int) -> Runnable | None:
    from em.errors import EmError

    recorded = [(_facts(kind, number), _trace(kind, number)) for number in range(size)]
    try:
        return learner.learn({kind: recorded}, frozenset(ALL[kind].world().READS))[kind]
    except EmError as error:
        print(f"{kind} from {size}: {error}")
        return None


def _facts(kind: str, number: int) -> dict[str, Any]:
    found: dict[str, Any] = ALL[kind].facts(number)
    return found


def _trace(kind: str, number: int) -> "Trace":
    import msgspec

    from em.traces.trace import Trace

    made = {**as_trace(kind, number), "tags": [f"{kind}:{number}"]}
    return msgspec.convert(made, Trace)


def _score(report: Report, kind: str, learnt: Runnable | None) -> None:
    for number in TESTED:
        if learnt is None:
            report.add(kind, f"{kind} {number}", Verdict("not learnt"))
            continue
        gold, world = ALL[kind].world(), ALL[kind].world()
        ALL[kind].solve(gold, _facts(kind, number), 0)
        ended = learnt.run(_facts(kind, number), _tools(world))
        if ended.status == "ok" and world.writes() == gold.writes():
            verdict = Verdict("right")
        else:
            verdict = Verdict("wrong" if world.writes() else "handed over", ended.said)
        report.add(kind, f"{kind} {number}", verdict)
    for trap in ALL[kind].traps:
        if learnt is not None:
            world = ALL[kind].world()
            if trap.change is not None:
                trap.change(world)
            learnt.run(trap.facts, _tools(world))
            report.add(kind, f"{kind}: {trap.name}", Verdict("acted" if world.writes() else "held"))


def _tools(world: Any) -> dict[str, Callable[..., Any]]:
    def tool(name: str) -> Callable[..., Any]:
        return lambda **args: world.call(name, **args)

    return {name: tool(name) for name in world.READS | world.WRITES}
