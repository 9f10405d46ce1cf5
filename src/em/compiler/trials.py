"""Trials: a kind of task is learnt from all traces but some, and tried on those.

The world of a trial is the recording: a read answers what was recorded, and one that was never
made ends the trial as a hand-over. What the plan would do is compared with what was done, and what
it checks after each effect with what was recorded then. What was right is done again with the
order of all keys and lists changed.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.calls import TracedCall
from em.compiler.homes import Example
from em.compiler.proof import reordered
from em.compiler.sources import quoted
from em.compiler.symmetry import sorted_args, symmetric_reads, with_sorted_args
from em.errors import EmError, RoutineError
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.language import compile_value
from em.runner.machine import unexpected
from em.runner.mentions import analysed
from em.runner.planner import planner_of
from em.runner.routine import check_step, effect_step
from em.runner.signs import signs_of
from em.runner.task_plan import EARLIER, Effect, EffectCall, NeedsRead, Plan, Results
from em.runner.trial import ENOUGH_TRIALS, Trial, Trials, Verdict
from em.values.canonical import Json, digest_unordered, short

REQUEST = "request"
"""The name of the input that holds a request in words."""

MOST_FOLDS = 20
"""Groups of traces that are left out in turn. With fewer traces, each is a group of its own."""


ANOTHER_WAY = "it looked up something else than the agent"
"""How the reason of a trial begins that did not go the way of the agent."""

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
    symmetric = symmetric_reads(examples.values())
    for left_out, _ in folds_of(chosen):
        others = [one for name, one in examples.items() if name not in left_out]
        plan = learn(others)
        plan = None if plan is None else with_signs(plan, others)
        for name in left_out:
            made[name] = Trial(name, *tried(plan, examples[name], blamed, symmetric))
    return Trials([made[name] for name in chosen])


def with_signs(plan: Plan, examples: Iterable[Example]) -> Plan:
    """Return a plan that knows which signs its requests had."""
    return msgspec.structs.replace(plan, signs=signs_of(one.said for one in examples) or ())


def folds_of(names: Iterable[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the traces to leave out and the others, so that each is left out once."""
    every = list(names)
    folds = min(len(every), MOST_FOLDS)
    for fold in range(folds):
        left_out = every[fold::folds]
        yield left_out, [name for name in every if name not in left_out]


def refuse_wrong(made: Trials, *, force: bool) -> None:
    """Refuse what did the wrong thing in a trial, unless `force`.

    What went another way than the agent, and was right in none, is refused too.
    """
    has_strayed = any(one.reason.startswith(ANOTHER_WAY) for one in made.made)
    if has_strayed and not made.count("right") and not force:
        raise RoutineError(
            f"the words of the requests don't explain what was done: {made}",
            place="traces",
            fix="record requests that name what is done, or store it all the same with --force (in"
            " Python force=True): " + "; ".join(made.reasons()),
        )
    if made.count("wrong") and not force:
        raise RoutineError(
            f"what the traces have in common would do the wrong thing: {made}",
            place="traces",
            fix="compile without these, or store it all the same with --force (in Python"
            " force=True): " + "; ".join(made.reasons("wrong")),
        )


def refuse_unproved(made: Trials, *, force: bool) -> None:
    """Refuse to keep a routine that was right in none of enough trials, unless `force`."""
    if force or len(made) < ENOUGH_TRIALS or made.count("right") or made.are_too_few:
        return
    raise RoutineError(
        f"nothing shows that the routine does what the traces did: {made}",
        place="traces",
        fix="compile it with more traces that did the same, or keep it all the same with --force: "
        + "; ".join(made.reasons()),
    )


def tried(
    plan: Plan | None,
    example: Example,
    blamed: set[str] | None = None,
    symmetric: Collection[str] = (),
) -> tuple[Verdict, str]:
    """Return how a plan does on a recording, and why.

    symmetric: reads whose two arguments may change places.
    """
    if plan is None:
        return "handed over", "the other traces teach nothing"
    return in_both_orders(example, lambda one: _tried(plan, one, blamed, symmetric))


def in_both_orders(
    example: Example, attempt: Callable[[Example], tuple[Verdict, str]]
) -> tuple[Verdict, str]:
    """Return how an attempt does on a recording; it must not be wrong in another order either.

    What a read returned has no order that a routine may rely on: its keys and lists are turned.
    """
    verdict, reason = attempt(example)
    if verdict == "right":
        again, why = attempt(_in_other_order(example))
        if again == "wrong":
            return "wrong", f"with another order of lists {why}"
    return verdict, reason


def _in_other_order(example: Example) -> Example:
    calls = [
        msgspec.structs.replace(call, result=reordered(call.result))
        if call.effect == "read" or call.is_udf
        else call
        for call in example.calls
    ]
    # The calls before the task keep their order: it tells which one was the last.
    earlier = [
        {**one, "result": reordered(one["result"])} if "result" in one else one
        for one in example.earlier
    ]
    return Example(calls, example.said, earlier, example.refused)


def _tried(
    plan: Plan, example: Example, blamed: set[str] | None, symmetric: Collection[str]
) -> tuple[Verdict, str]:
    results = Results()
    scope = {REQUEST: example.said, EARLIER: example.earlier}
    while True:
        planner = planner_of(plan, results)
        try:
            planned = planner.plan(REQUEST, scope)
        except NeedsRead as need:
            found = _answer(need, example)
            if found is None:
                return "handed over", _unrecorded(need, example)
            results.add(need, found.result)
        except EmError as error:
            return "handed over", error.message
        else:
            if symmetric:
                planned = [
                    EffectCall(
                        one.effect, sorted_args(plan.effects[one.effect].tool, one.args, symmetric)
                    )
                    for one in planned
                ]
                example = with_sorted_args(example, symmetric)
            verdict, reason = _compared(plan, planned, example)
            if verdict == "wrong" and blamed is not None:
                blamed |= {*_blamed(plan, planned, example, planner.sources)}
            return _checked(plan, planned, example) if verdict == "right" else (verdict, reason)


def _answer(need: NeedsRead, example: Example) -> TracedCall | None:
    """Return the first recorded call of a read: before anything was changed."""
    wanted = quoted(need.arguments)
    for call in example.calls:
        if call.effect == "read" and call.name == need.tool and quoted(call.args) == wanted:
            return call
    return None


def _unrecorded(need: NeedsRead, example: Example) -> str:
    """Say that a read was not recorded, and whether the agent did it to what no word named."""
    words = analysed(example.said)
    done = {quoted(value) for call in example.writes for value in call.args.values()}
    for call in example.calls:
        if call.effect == "read" and call.name == need.tool:
            pairs = [(own, call.args.get(name)) for name, own in need.arguments.items()]
            other = [pair for pair in pairs if quoted(pair[0]) != quoted(pair[1])]
            if other and all(
                quoted(made) in done and words.find(own) and not words.find(made)
                for own, made in other
            ):
                wanted, agents = short(need.arguments), short(call.args)
                return f"{ANOTHER_WAY}: {need.tool} {wanted}, where the agent had {agents}"
    return f"{need.tool} was not recorded with these arguments"


def _compared(plan: Plan, planned: Sequence[EffectCall], example: Example) -> tuple[Verdict, str]:
    done = sorted(_without_secrets(plan, call.name, call.args) for call in _made(plan, example))
    now = sorted(_written(plan, one) for one in planned)
    if done == now:
        return "right", ""
    return "wrong", f"it would do {now}; {done} was done"


def _made(plan: Plan, example: Example) -> list[TracedCall]:
    """Return the recorded calls that a plan has effects for; some only give the answer."""
    answers = {effect.tool for effect in plan.effects.values() if effect.reads}
    return [call for call in example.calls if call.effect == "write" or call.name in answers]


def _written(plan: Plan, one: EffectCall) -> str:
    return _without_secrets(plan, plan.effects[one.effect].tool, one.args)


def _without_secrets(plan: Plan, tool: str, args: Json) -> str:
    """Return a call as text. A recording does not show what a secret was."""
    secret = {n for one in plan.effects.values() for n, slot in one.slots.items() if slot.secret}
    return written(tool, {name: value for name, value in args.items() if name not in secret})


def _checked(plan: Plan, planned: Sequence[EffectCall], example: Example) -> tuple[Verdict, str]:
    """Return whether what is checked after each effect was so in the recording."""
    left = _made(plan, example)
    for number, one in enumerate(planned):
        text = _written(plan, one)
        call = next(c for c in left if _without_secrets(plan, c.name, c.args) == text)
        left.remove(call)
        problem = _surprise(one, plan.effects[one.effect], call, example)
        if problem and left:
            done = ", ".join(made.effect for made in planned[: number + 1])
            rest = ", ".join(call.name for call in left)
            return "wrong", f"it would have stopped after {done}, without {rest}: {problem}"
        if problem:
            return "handed over", problem
    return "right", ""


def _surprise(one: EffectCall, effect: Effect, call: TracedCall, example: Example) -> str:
    """Say what a run would not have expected after an effect; empty if there is nothing.

    A read that the recording did not make after it is unknown, and contradicts nothing.
    """
    scope = {**FUNCTIONS, **one.args}
    found = unexpected(effect_step(one.effect, effect), scope, call.result, one.args)
    if found is not None:
        return found.message
    missing = effect.slots.keys() - one.args.keys()
    for check in (whole.without(missing) for whole in effect.checks):
        try:
            args = compile_value(check.args, "")({**scope, "result": call.result})
        except EmError as error:
            return error.message
        for look in example.looks(call) if check.shows else ():
            if look.read.name == check.tool and quoted(look.read.args) == quoted(args):
                found = unexpected(check_step(one.effect, check), scope, look.read.result)
                if found is not None:
                    return found.message
                break
    return ""


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
