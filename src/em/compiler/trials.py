"""Trials: a kind of task is learnt from all traces but some, and tried on those.

The world of a trial is the recording: a read answers what was recorded, and one that was never
made ends the trial as a hand-over. What the plan would do is compared with what was done.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from em.compiler.calls import TracedCall
from em.compiler.homes import Example
from em.compiler.sources import quoted
from em.errors import EmError, RoutineError
from em.runner.planner import planner_of
from em.runner.task_plan import EARLIER, EffectCall, NeedsRead, Plan, Results
from em.runner.trial import Trial, Trials, Verdict
from em.values.canonical import Json, digest_unordered

REQUEST = "request"
"""The name of the input that holds a request in words."""

MOST_FOLDS = 20
"""Groups of traces that are left out in turn. With fewer traces, each is a group of its own."""


Learn = Callable[[Sequence[Example]], Plan | None]
"""Learn a plan from some of the traces."""


def trials(
    examples: Mapping[str, Example],
    learn: Learn,
    names: Sequence[str] | None = None,
    blamed: set[str] | None = None,
) -> Trials:
    """Leave each trace out once, and try what the others teach on it.

    names: the traces to try it on; all unless they are given.
    blamed: takes the sources of a form that gave a wrong value, as `effect.value:source`.
    """
    made: dict[str, Trial] = {}
    chosen = list(examples) if names is None else names
    for left_out, _ in folds_of(chosen):
        plan = learn([one for name, one in examples.items() if name not in left_out])
        for name in left_out:
            made[name] = Trial(name, *tried(plan, examples[name], blamed))
    return Trials([made[name] for name in chosen])


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


def tried(
    plan: Plan | None, example: Example, blamed: set[str] | None = None
) -> tuple[Verdict, str]:
    """Return how a plan does on a recording, and why."""
    if plan is None:
        return "handed over", "the other traces teach nothing"
    results = Results()
    scope = {REQUEST: example.said, EARLIER: example.earlier}
    while True:
        planner = planner_of(plan, results)
        try:
            planned = planner.plan(REQUEST, scope)
        except NeedsRead as need:
            found = _answer(need, example)
            if found is None:
                return "handed over", f"{need.tool} was not recorded with these arguments"
            results.add(need, found.result)
        except EmError as error:
            return "handed over", error.message
        else:
            verdict, reason = _compared(plan, planned, example)
            if verdict == "wrong" and blamed is not None:
                blamed |= {*_blamed(plan, planned, example, planner.sources)}
            return verdict, reason


def _answer(need: NeedsRead, example: Example) -> TracedCall | None:
    """Return the first recorded call of a read: before anything was changed."""
    wanted = quoted(need.arguments)
    for call in example.calls:
        if call.effect == "read" and call.name == need.tool and quoted(call.args) == wanted:
            return call
    return None


def _compared(plan: Plan, planned: Sequence[EffectCall], example: Example) -> tuple[Verdict, str]:
    answers = {effect.tool for effect in plan.effects.values() if effect.reads}
    secret = {n for one in plan.effects.values() for n, slot in one.slots.items() if slot.secret}

    def known(tool: str, args: Json) -> str:
        # A recording does not show what a secret was.
        return written(tool, {name: v for name, v in args.items() if name not in secret})

    done = sorted(
        known(call.name, call.args)
        for call in example.calls
        if call.effect == "write" or call.name in answers
    )
    now = sorted(known(plan.effects[one.effect].tool, one.args) for one in planned)
    if done == now:
        return "right", ""
    return "wrong", f"it would do {now}; {done} was done"


def _blamed(
    plan: Plan, planned: Sequence[EffectCall], example: Example, sources: Mapping[str, str]
) -> Iterator[str]:
    """Yield the sources that gave another value than the recorded one."""
    seen: Counter[str] = Counter()
    for one in planned:
        effect = plan.effects[one.effect]
        calls = [call for call in example.calls if call.name == effect.tool]
        number = seen[effect.tool]
        seen[effect.tool] += 1
        done = calls[number].args if number < len(calls) else {}
        for name, slot in effect.slots.items():
            if not slot.secret and quoted(one.args.get(name)) != quoted(done.get(name)):
                blank = slot.same or f"{one.effect}.{name}"
                yield f"{blank}:{sources.get(blank, '')}"


def written(tool: str, args: Json) -> str:
    """Return a call as text, in which the order of lists that belong together does not count."""
    lists = {name: value for name, value in args.items() if isinstance(value, list)}
    lengths = {len(value) for value in lists.values()}
    plain: dict[str, Any] = dict(args)
    if len(lists) > 1 and len(lengths) == 1:
        rows = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        plain = {name: value for name, value in args.items() if name not in lists} | {"": rows}
    return f"{tool} {digest_unordered(plain)}"
