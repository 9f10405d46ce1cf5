"""Trials: a kind of task is learnt from all traces but some, and tried on those.

The world of a trial is the recording: a read answers what was recorded, and one that was never
made ends the trial as a hand-over. What the plan would do is compared with what was done.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from em.compiler.calls import TracedCall
from em.compiler.homes import Example, Kind
from em.compiler.sources import quoted
from em.errors import EmError, RoutineError
from em.runner.plan import EffectCall, NeedsRead, Plan, Results
from em.runner.planner import planner_of
from em.runner.trial import Trial, Trials, Verdict
from em.values.canonical import Json, digest_unordered

REQUEST = "request"
"""The name of the input that holds a request in words."""

MOST_FOLDS = 20
"""Groups of traces that are left out in turn. With fewer traces, each is a group of its own."""


def trials(examples: Mapping[str, Example]) -> Trials:
    """Leave each trace out once, and try what the others teach on it."""
    made: dict[str, Trial] = {}
    for left_out, others in folds_of(examples):
        plan = Kind([examples[name] for name in others]).plan()
        for name in left_out:
            made[name] = Trial(name, *tried(plan, examples[name]))
    return Trials([made[name] for name in examples])


def folds_of(names: Iterable[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the traces to leave out and the others, so that each is left out once."""
    every = list(names)
    folds = min(len(every), MOST_FOLDS)
    for fold in range(folds):
        left_out = every[fold::folds]
        yield left_out, [name for name in every if name not in left_out]


def refuse_wrong(made: Trials, *, force: bool) -> None:
    """Refuse what did the wrong thing in a trial, unless `force`."""
    if made.count("wrong") and not force:
        raise RoutineError(
            f"what the traces have in common would do the wrong thing: {made}",
            place="traces",
            fix="compile without these, or store it all the same with --force (in Python"
            " force=True): " + "; ".join(made.reasons("wrong")),
        )


def tried(plan: Plan, example: Example) -> tuple[Verdict, str]:
    """Return how a plan does on a recording, and why."""
    results = Results()
    while True:
        try:
            planned = planner_of(plan, results).plan(REQUEST, {REQUEST: example.said})
        except NeedsRead as need:
            found = _answer(need, example)
            if found is None:
                return "handed over", f"{need.tool} was not recorded with these arguments"
            results.add(need, found.result)
        except EmError as error:
            return "handed over", error.message
        else:
            return _compared(planned, example)


def _answer(need: NeedsRead, example: Example) -> TracedCall | None:
    """Return the first recorded call of a read: before anything was changed."""
    wanted = quoted(need.arguments)
    for call in example.calls:
        if call.effect == "read" and call.name == need.tool and quoted(call.args) == wanted:
            return call
    return None


def _compared(planned: Sequence[EffectCall], example: Example) -> tuple[Verdict, str]:
    done = sorted(written(call.name, call.args) for call in example.calls if call.effect == "write")
    now = sorted(written(one.effect, one.args) for one in planned)
    if done == now:
        return "right", ""
    return "wrong", f"it would do {now}; {done} was done"


def written(tool: str, args: Json) -> str:
    """Return a call as text, in which the order of lists that belong together does not count."""
    lists = {name: value for name, value in args.items() if isinstance(value, list)}
    lengths = {len(value) for value in lists.values()}
    plain: dict[str, Any] = dict(args)
    if len(lists) > 1 and len(lengths) == 1:
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        plain = {name: value for name, value in args.items() if name not in lists} | {"": rows}
    return f"{tool} {digest_unordered(plain)}"
