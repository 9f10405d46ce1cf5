"""Differences between traces that went the same way: what differs is not a constant.

A value that one trace alone could not explain is the recorded one when nothing else is said. If
another trace of the same task has another value there, it must be given. Traces that were asked for
different things, and did the same whatever was asked, make no routine.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from em.compiler.calls import Names, identifier
from em.compiler.draft import Draft, Recorded
from em.errors import RoutineError
from em.runner.agreement import part_at, place_parts, single_places, with_answers
from em.runner.expressions.functions import FUNCTIONS
from em.runner.routine import Routine, Step, ToolStep, UdfStep
from em.values.canonical import Json, identical
from em.values.json_schema import of_input


def told_apart(draft: Draft, others: Sequence[Draft]) -> Draft:
    """Return a draft in which what other traces of the task did differently must be given.

    others: drafts that make the same calls in the same order.
    """
    routine = draft.routine
    asks = {
        name: one
        for name, one in routine.asks.items()
        if one.is_unused or all(_has(other, name, one.recorded) for other in others)
    }
    given, steps = dict(draft.input), list(routine.steps)
    names = _names_in_use(routine)
    for number, step in enumerate(steps):
        if isinstance(step, ToolStep | UdfStep):
            steps[number] = _without_constants(draft, others, step, given, names)
    if not given:
        _check_requests([draft, *others])
    if len(asks) == len(routine.asks) and len(given) == len(draft.input):
        return draft
    request = None if routine.request is None else routine.request.input
    routine = msgspec.structs.replace(
        routine,
        steps=steps,
        asks=asks,
        input_schema=of_input(given, asked=asks, request=request),
    )
    return msgspec.structs.replace(draft, routine=routine, input=given)


def _check_requests(drafts: Sequence[Draft]) -> None:
    """Refuse a routine without inputs if the traces were asked for different things."""
    requests = {
        "" if draft.routine.request is None else " ".join(draft.routine.request.template.split())
        for draft in drafts
    }
    if len(requests) > 1:
        raise RoutineError(
            "the traces were asked for different things, and no call depends on what was asked",
            place="traces",
            fix="compile one of them, or traces of one task",
            requests=sorted(requests),
        )


def _has(draft: Draft, name: str, value: Any) -> bool:
    """Return whether another trace had the same value for an input, or needed no such input."""
    return name not in draft.input or identical(draft.input[name], value)


def _names_in_use(routine: Routine) -> Names:
    names = Names()
    saved = [step.save_as for step in routine.steps if step.save_as is not None]
    properties = (routine.input_schema or {}).get("properties", {})
    for name in dict.fromkeys([*FUNCTIONS, *properties, *saved]):
        names.free(name)
    return names


def _without_constants(
    draft: Draft, others: Sequence[Draft], step: ToolStep | UdfStep, given: Json, names: Names
) -> Step:
    """Return a step with inputs in place of constants that differ; add them to `given`."""
    number = next((n for n, item in enumerate(draft.recording) if item.step == step.id), None)
    if number is None:
        return step
    recorded = draft.recording[number]
    made: Json = {}
    for place in _differing(step, recorded, [other.recording[number] for other in others]):
        *_, last = (part for part in place_parts(place) if isinstance(part, str))
        name = names.free(identifier(last))
        given[name] = part_at(recorded.args, place)
        made[place] = f"{{{{ {name} }}}}"
    return msgspec.structs.replace(step, args=with_answers(step.args, made)) if made else step


def _differing(
    step: ToolStep | UdfStep, recorded: Recorded, others: Sequence[Recorded]
) -> Iterator[str]:
    """Yield the places of constants for which another trace had another value."""
    for place, template in single_places(step.args, step.agree):
        if isinstance(template, str) and "{{" in template:
            continue
        value = part_at(recorded.args, place)
        if any(not identical(_part(other.args, place), value) for other in others):
            yield place


def _part(args: Json, place: str) -> Any:
    try:
        return part_at(args, place)
    except (KeyError, IndexError, TypeError):
        return None
