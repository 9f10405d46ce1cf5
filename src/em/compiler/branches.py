"""Branches: ways that traces of one kind parted in, and what decides between them.

Traces that begin alike and then do different things were in different states. Whatever was known
where they part, and separates all of them, may be the reason: a field that had one value in these
and another one in those, or a number that was small or large. All such conditions are kept. A run
goes a way only if every one of them says so. It hands over otherwise: in a state that no trace had,
and where two reasons disagree.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.argument_facts import FAR
from em.compiler.calls import Names, result_name
from em.compiler.differences import recorded_scope
from em.compiler.draft import Draft, names_used
from em.compiler.evidence import ENOUGH, of_separation
from em.compiler.sources import places, quoted, reference
from em.errors import RoutineError
from em.runner.agreement import names_in_expression
from em.runner.routine import AssertStep, Step, ToolStep, UdfStep
from em.values.canonical import Json

MOST_REASONS = 8
"""Conditions that separate the traces; with more of them it is not clear which one decides."""
LEAST_NUMBERS = 3
"""Different numbers that are compared by size; fewer are kinds."""


FEWEST_OF_A_VALUE = 3
"""Times that each value of a field must have been seen: an id is another one each time."""
MOST_COMPARED = 12
"""Numbers that are compared with each other."""
FIRST_TIME = 1_000_000_000
"""Numbers from here on may be times, in seconds since 1970."""


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
    """Something that separates all traces: the condition of each way, and the evidence in bits.

    name: the expression that decides. tests: by way, what `select` may ask of it; none if it can't.
    held: by way, the values that it had, if it has one of a few. rarest: how often the rarest of
    them was seen.
    """

    conditions: Sequence[str]
    bits: float = 0.0
    name: str = ""
    tests: Sequence[str] = ()
    held: Sequence[Sequence[Any]] = ()
    rarest: int = 0


def _reasons(ways: Sequence[Way], known: Sequence[Step]) -> Iterator[Reason]:
    """Yield everything that separates the traces of all ways."""
    saved = {step.save_as for step in known if step.save_as is not None}
    features = [[_features(way.draft, one, saved) for one in way.traces] for way in ways]
    yield from reasons_of(columns_of(features))


def columns_of(features: Sequence[Sequence[Json]]) -> dict[str, list[list[Any]]]:
    """Return the values by name and way, of the names that all examples of all ways have.

    features: by way, the values of each example by name.
    """
    shared = set.intersection(*(set(one) for way in features for one in way))
    return {name: [[one[name] for one in way] for way in features] for name in sorted(shared)}


def reasons_of(
    columns: Mapping[str, Sequence[Sequence[Any]]], fewest: int = FEWEST_OF_A_VALUE
) -> Iterator[Reason]:
    """Yield everything that separates ways: a value of a field, its size, or which one is larger.

    columns: by expression, its values by way. fewest: how often each text must have been seen.
    """
    varying = {
        name: own for name, own in columns.items() if len({quoted(v) for c in own for v in c}) > 1
    }
    sizes = [len(column) for column in next(iter(varying.values()), ())]
    for name, own in varying.items():
        found = _by_value(name, own, fewest) or _by_size(name, own)
        if found is not None:
            kinds = len(sizes) if not found.held else sum(map(len, found.held))
            yield found._replace(bits=of_separation(sizes, kinds, len(varying)))
    yield from _comparisons(varying, sizes)


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


def _by_value(name: str, columns: Sequence[Sequence[Any]], fewest: int) -> Reason | None:
    """Return the conditions that a field has a value of a way."""
    held = [{quoted(one): one for one in column} for column in columns]
    if len(set().union(*held)) < sum(map(len, held)):
        return None
    values = [one for column in columns for one in column]
    counts = Counter(map(quoted, values))
    rarest = min(counts.values())
    is_number = any(isinstance(one, int | float) and not isinstance(one, bool) for one in values)
    if rarest < (max(fewest, FEWEST_OF_A_VALUE) if is_number else fewest):
        return None  # a value that may be an accident
    if len(counts) > len(values) / 2:
        return None  # an id
    texts = [f"[{', '.join(sorted(own))}]" for own in held]
    return Reason(
        [f"{name} in {text}" for text in texts],
        name=name,
        tests=[
            next(iter(own)) if len(own) == 1 else f'{{"in": {text}}}'
            for own, text in zip(held, texts, strict=True)
        ],
        held=[list(own.values()) for own in held],
        rarest=rarest,
    )


def _by_size(name: str, columns: Sequence[Sequence[Any]]) -> Reason | None:
    """Return the conditions that a number is as small or as large as in the traces of a way.

    Between the largest of one way and the smallest of the next, no condition holds. Nor does one
    far beyond all of them: there the unit is in doubt.
    """
    found = _numbers(columns)
    if found is None:
        return None
    numbers, is_text = found
    if len({one for column in numbers for one in column}) < LEAST_NUMBERS:
        return None
    order = sorted(range(len(numbers)), key=lambda way: min(numbers[way]))
    pairs = itertools.pairwise(order)
    if any(max(numbers[low]) >= min(numbers[high]) for low, high in pairs):
        return None
    value = f"float({name})" if is_text else name
    conditions, tests = [""] * len(numbers), [""] * len(numbers)
    for at, way in enumerate(order):
        least, most = min(numbers[way]), max(numbers[way])
        bounds: dict[str, float] = {}
        if at or least > 0:
            bounds["at_least"] = least if at else least / FAR
        if at < len(order) - 1 or most > 0:
            bounds["at_most"] = most * FAR if at == len(order) - 1 else most
        signs = {"at_least": ">=", "at_most": "<="}
        conditions[way] = " and ".join(f"{value} {signs[k]} {v}" for k, v in bounds.items())
        tests[way] = quoted(bounds)
    return Reason(conditions, name=name, tests=() if is_text else tests)


def _numbers(columns: Sequence[Sequence[Any]]) -> tuple[list[list[float]], bool] | None:
    """Return the values as numbers, and whether they are texts; None if one is no number.

    What counts seconds since 1970 is a time, and what was decided by it depends on the day.
    """
    values = [one for column in columns for one in column]
    is_text = all(isinstance(one, str) and _NUMBER.fullmatch(one) for one in values)
    if not is_text and any(
        isinstance(one, bool) or not isinstance(one, int | float) for one in values
    ):
        return None
    read = [[_read_number(one) for one in column] for column in columns]
    return None if min(min(column) for column in read) >= FIRST_TIME else (read, is_text)


def _read_number(value: Any) -> float:
    if not isinstance(value, str):
        return float(value) if isinstance(value, float) else value
    return float(value) if "." in value else int(value)


def _comparisons(
    columns: Mapping[str, Sequence[Sequence[Any]]], sizes: Sequence[int]
) -> Iterator[Reason]:
    """Yield that one number is never larger than another in one way, and always in the other."""
    if len(sizes) != 2:
        return
    numbers = {name: found for name, own in columns.items() if (found := _numbers(own)) is not None}
    pairs = list(itertools.combinations([*numbers][:MOST_COMPARED], 2))
    for one, other in pairs:
        (ours, is_text), (theirs, other_is_text) = numbers[one], numbers[other]
        signs = [
            {(a > b) - (a < b) for a, b in zip(mine, yours, strict=True)}
            for mine, yours in zip(ours, theirs, strict=True)
        ]
        if len(signs[0] | signs[1]) < 2 or signs[0] & signs[1] or max(map(len, signs)) > 2:
            continue
        left = f"float({one})" if is_text else one
        right = f"float({other})" if other_is_text else other
        texts = [_RELATIONS.get(frozenset(sign)) for sign in signs]
        if all(texts):
            conditions = [f"{left} {text} {right}" for text in texts]
            yield Reason(conditions, of_separation(sizes, 2, len(pairs) * 2))


_RELATIONS = {
    frozenset({-1}): "<",
    frozenset({0}): "==",
    frozenset({1}): ">",
    frozenset({-1, 0}): "<=",
    frozenset({0, 1}): ">=",
}
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
