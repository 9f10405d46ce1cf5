"""Branches: ways that traces of one kind parted in, and what decides between them.

Traces that begin alike and then do different things were in different states. Whatever was known
where they part, and separates all of them, may be the reason: a field that had one value in these
and another one in those, or a number that was small or large. All such conditions are kept. A run
goes a way only if every one of them says so. It hands over otherwise: in a state that no trace had,
and where two reasons disagree.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import Names, result_name
from em.compiler.differences import recorded_scope
from em.compiler.draft import Draft, names_used
from em.compiler.evidence import ENOUGH, of_constant, of_separation
from em.compiler.sources import places, quoted, reference
from em.errors import RoutineError
from em.runner.agreement import names_in_expression
from em.runner.routine import AssertStep, Step, ToolStep, UdfStep
from em.values.canonical import Json

MOST_REASONS = 8
"""Conditions that separate the traces; with more of them it is not clear which one decides."""
LEAST_NUMBERS = 3
"""Different numbers that are compared by size; fewer are kinds."""


class NothingDecides(RoutineError):
    """Traces were asked for the same in the same state, and did different things."""


class Way(NamedTuple):
    """Traces that made the same calls: what holds in all of them, and the draft of each."""

    draft: Draft
    traces: Sequence[Draft]


def parted(ways: Sequence[Way]) -> Draft | None:
    """Return one routine for several ways; None if it is not clear which of them to go.

    Raise NothingDecides if nothing can make it clear: no words are left that could say it.
    """
    shared = _shared([way.draft for way in ways])
    ways = _with_names(ways, shared)
    known = list(ways[0].draft.routine.steps[:shared])
    found = list(_reasons(ways, known))
    if max((reason.bits for reason in found), default=0.0) < ENOUGH:
        if any(way.draft.routine.asks for way in ways):
            return None  # words that nothing uses may decide
        why = "too few traces show why" if found else "nothing that was said or read shows why"
        raise NothingDecides(
            f"the traces went {len(ways)} ways, and {why}",
            place="traces",
            fix="compile those together that do the same, or record more of each way, with the"
            " read that decides",
        )
    if len(found) > MOST_REASONS:
        return None
    reasons = [reason.conditions for reason in found]
    steps: list[Step] = [*known, _agreed(reasons)]
    ids = Names()
    for step in steps:
        ids.free(step.id)
    named: dict[tuple[int, str], str] = {}
    for number, way in enumerate(ways):
        for step in way.draft.routine.steps[shared:]:
            named[number, step.id] = own = ids.free(step.id)
            when = _when(step, reasons[0][number])
            steps.append(msgspec.structs.replace(step, id=own, when=when))
    draft = _joined(ways, steps, named)
    return draft if _asks_nothing(ways, draft, reasons) else None


def _asks_nothing(ways: Sequence[Way], draft: Draft, reasons: Sequence[Sequence[str]]) -> bool:
    """Return whether every input that is asked for in one way is used in another, or decides."""
    used = names_used(draft.routine)
    used |= {name for texts in reasons for text in texts for name in names_in_expression(text)}
    return all(
        asked.is_unused and name in used
        for way in ways
        for name, asked in way.draft.routine.asks.items()
    )


def _with_names(ways: Sequence[Way], shared: int) -> list[Way]:
    """Return ways in which what was read before they part has a name."""
    names = Names()
    for way in ways:
        for step in way.draft.routine.steps:
            names.free(step.save_as or "")
        for name in way.draft.input:
            names.free(name)
    saved = {
        step.id: step.save_as or names.free(result_name(_target(step), is_write=False))
        for step in ways[0].draft.routine.steps[:shared]
        if isinstance(step, ToolStep | UdfStep)
    }
    made = []
    for way in ways:
        steps = [
            msgspec.structs.replace(step, save_as=saved[step.id]) if number < shared else step
            for number, step in enumerate(way.draft.routine.steps)
        ]
        routine = msgspec.structs.replace(way.draft.routine, steps=steps)
        made.append(Way(msgspec.structs.replace(way.draft, routine=routine), way.traces))
    return made


def _target(step: ToolStep | UdfStep) -> str:
    return step.tool if isinstance(step, ToolStep) else step.function


def _shared(drafts: Sequence[Draft]) -> int:
    """Return how many first steps all drafts have in common. Only reads: an effect is no state."""
    count = 0
    for steps in zip(*(draft.routine.steps for draft in drafts), strict=False):
        if not all(isinstance(step, ToolStep | UdfStep) for step in steps):
            break
        first, *others = (msgspec.structs.replace(step, save_as=None) for step in steps)
        if any(step != first for step in others) or _target(first) in _written(drafts[0]):
            break
        count += 1
    return count


def _written(draft: Draft) -> set[str]:
    return {tool.name for tool in draft.routine.tools if tool.effect != "read"}


def _when(step: Step, condition: str) -> str:
    return condition if step.when is None else f"({condition}) and ({step.when})"


def _agreed(reasons: Sequence[Sequence[str]]) -> AssertStep:
    """Return the check that all reasons say the same way."""
    ways = [" and ".join(f"({text})" for text in texts) for texts in zip(*reasons, strict=True)]
    return AssertStep(
        id="which_way",
        check=" or ".join(f"({way})" for way in ways),
        message="in none of the recordings it was like this, so it is not clear what to do",
    )


def _joined(ways: Sequence[Way], steps: Sequence[Step], ids: dict[tuple[int, str], str]) -> Draft:
    """Return the draft of the first way, with the steps and inputs of all."""
    first = ways[0].draft
    tools = {tool.name: tool for way in ways for tool in way.draft.routine.tools}
    given: Json = {}
    properties: Json = {}
    for way in reversed(ways):
        given |= way.draft.input
        properties |= (way.draft.routine.input_schema or {}).get("properties", {})
    schema = {
        **(first.routine.input_schema or {}),
        "properties": properties,
        "required": list(properties),
    }
    routine = msgspec.structs.replace(
        first.routine,
        asks={},
        steps=steps,
        tools=list(tools.values()),
        input_schema=schema,
        output_schema=None,
    )
    recording = [
        msgspec.structs.replace(item, step=ids.get((0, item.step), item.step))
        for item in first.recording
    ]
    comments = {ids.get((0, step), step): notes for step, notes in first.comments.items()}
    return msgspec.structs.replace(
        first, routine=routine, input=given, recording=recording, comments=comments
    )


# --- reasons --------------------------------------------------------------------------------------


class Reason(NamedTuple):
    """Something that separates all traces: the condition of each way, and the evidence in bits."""

    conditions: Sequence[str]
    bits: float


def _reasons(ways: Sequence[Way], known: Sequence[Step]) -> Iterator[Reason]:
    """Yield everything that separates the traces of all ways."""
    saved = {step.save_as for step in known if step.save_as is not None}
    features = [[_features(way.draft, one, saved) for one in way.traces] for way in ways]
    shared = set.intersection(*(set(one) for way in features for one in way))
    columns = {name: [[one[name] for one in way] for way in features] for name in sorted(shared)}
    varying = [
        name for name, own in columns.items() if len({quoted(v) for c in own for v in c}) > 1
    ]
    for name in varying:
        found = _by_value(name, columns[name]) or _by_size(name, columns[name])
        if found is not None:
            conditions, kinds = found
            bits = of_separation([len(way.traces) for way in ways], kinds, len(varying))
            yield Reason(conditions, bits)


def _features(draft: Draft, trace: Draft, saved: set[str]) -> Json:
    """Return what is known about a task by the expression for it: single values, and lengths."""
    scope, found = recorded_scope(draft, trace), {}
    for name in (saved | set(trace.input)) & scope.keys():
        value = scope[name]
        for place in places(0, value):
            if place.is_fixed:
                found[reference(name, place.parts)] = place.value
        if isinstance(value, list):
            found[f"len({name})"] = len(value)
    return found


def _by_value(name: str, columns: Sequence[Sequence[Any]]) -> tuple[list[str], int] | None:
    """Return the conditions that a field has a value of a way, and how many values there are."""
    held = [set(map(quoted, column)) for column in columns]
    kinds = len(set().union(*held))
    if kinds < sum(map(len, held)):
        return None
    counts = Counter(quoted(one) for column in columns for one in column)
    if of_constant(min(counts.values())) < ENOUGH:
        return None  # an id, or a value that may be an accident
    return [f"{name} in [{', '.join(sorted(own))}]" for own in held], kinds


def _by_size(name: str, columns: Sequence[Sequence[Any]]) -> tuple[list[str], int] | None:
    """Return the conditions that a number is as small or as large as in the traces of a way."""
    numbers = [one for column in columns for one in column]
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in numbers):
        return None
    if len(columns) != 2 or len(set(numbers)) < LEAST_NUMBERS:
        return None
    low, high = sorted(columns, key=min)
    if max(low) >= min(high):
        return None
    small, large = f"{name} <= {max(low)}", f"{name} >= {min(high)}"
    return [small if column is low else large for column in columns], 2
