"""Record facts: what all recorded results of one read had in common, and must have again.

A record that reports an error, says that it is another one, or has a flag, a state or a number
that none of the recorded ones had, is not acted on. The same holds in every form of a routine.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.evidence import ENOUGH, information
from em.compiler.guards import describes, fact
from em.compiler.sources import is_collection, quoted, reference
from em.runner.expressions.functions import ANY, KEYS, error_of, every, kind_of, shape_of
from em.values.canonical import identical

DEEPEST = 2
"""Mappings within each other whose facts are looked at."""
FEWEST_SHARED = 1 / 2
"""Share of the keys that all results have, if keys are names of fields and no data."""
_PLAIN = frozenset({"e-mail", "date", "time", "number", "code", "word"})

Way = tuple[str, ...]


class Shown(NamedTuple):
    """The result of a read, and by expression the values that it was made with."""

    given: Mapping[str, Any]
    result: Any


def record_facts(text: str, seen: Sequence[Shown]) -> Iterator[str]:
    """Yield what was so of all results of a read. text: the expression of the result."""
    results = [one.result for one in seen]
    if not results or any(one is None for one in results):
        return
    if all(error_of(one) is None for one in results):
        yield f"error_of({text}) == none"
    shapes = {shape_of(one) for one in results}
    if len(shapes) == 1:
        yield f"shape_of({text}) == {quoted(shapes.pop())}"
    yield from _same_as_given(text, seen)
    yield from _keys(text, results)
    if len(seen) > 1:
        yield from states(text, results)
    for way in fixed_ways(results):
        values = [value_at(one, way) for one in results]
        if all(map(is_number, values)) and sign_of(values):
            yield f"{reference(text, way)} {sign_of(values)}"


def states(text: str, results: Sequence[Any]) -> Iterator[str]:
    """Yield the flags and states that all results had which had them."""
    for way in fixed_ways(results):
        held = [every(one, ".".join(way)) for one in results]
        allowed = allowed_values(way[-1], [one[0] for one in held if one])
        if allowed and all(held):
            yield f"{reference(text, way)} in {quoted(allowed)}"
        elif allowed:
            may = [[], *([one] for one in allowed)]
            yield f"every({text}, {quoted('.'.join(way))}) in {quoted(may)}"


def _same_as_given(text: str, seen: Sequence[Shown]) -> Iterator[str]:
    """Yield that a record names what it was asked for by, as all recorded ones did."""
    for expression, first in seen[0].given.items():
        values = [one.given.get(expression) for one in seen]
        if isinstance(first, dict | list | bool) or first is None:
            continue
        if len(distinct(values)) == 1 and information(first) < ENOUGH:
            continue
        for way in fixed_ways([one.result for one in seen]):
            held = [value_at(one.result, way) for one in seen]
            if all(identical(a, b) for a, b in zip(held, values, strict=True)):
                yield f"{reference(text, way)} == {expression}"


def _keys(text: str, results: Sequence[Any], way: Way = ()) -> Iterator[str]:
    """Yield that a record has no flag, number or word of state under another key."""
    maps = [one for one in results if isinstance(one, dict) and not is_collection(one)]
    if not maps or len(maps) < len(results) or len(way) >= DEEPEST:
        return
    known = list(dict.fromkeys(str(key) for one in maps for key in one))
    shared = [key for key in known if all(key in one for one in maps)]
    if not shared or len(shared) < len(known) * FEWEST_SHARED:
        return
    # What was always empty is as new as what was not there.
    used = [key for key in known if any(one.get(key) not in (None, "") for one in maps)]
    names = "".join(f", {quoted(key)}" for key in used)
    yield f"strange_keys({reference(text, way)}{names}) == none"
    for key in shared:
        if not describes(key):
            yield from _keys(text, [one[key] for one in maps], (*way, key))


def value_facts(name: str, values: Sequence[Any]) -> Iterator[str]:
    """Yield how the values of an argument looked that a read gave: an e-mail, a number above 0."""
    shapes = {shape_of(one) for one in values}
    if len(shapes) != 1 or not name.isidentifier():
        return
    shape = shapes.pop()
    if shape == "number":
        yield f'shape_of({name}) == "number"'
        if sign_of(values):
            yield f"{name} {sign_of(values)}"
    elif shape == "boolean":
        yield f'shape_of({name}) == "boolean"'
    elif shape == "text":
        kinds = {kind_of(one) for one in values}
        # A name may have one word or two.
        names = any(kind_of(one) == "word" and one[:1].isupper() for one in values)
        if len(kinds) == 1 and kinds <= _PLAIN and not names:
            yield f"kind_of({name}) == {quoted(kinds.pop())}"
        else:
            yield f'shape_of({name}) == "text"'
            if all(values):
                yield f'{name} != ""'


def sign_of(values: Sequence[Any]) -> str:
    """Return the sign that all numbers had, as the end of a comparison; empty if they differ."""
    if all(one > 0 for one in values):
        return "> 0"
    if all(one == 0 for one in values):
        return "== 0"
    if all(one >= 0 for one in values):
        return ">= 0"
    if all(one < 0 for one in values):
        return "< 0"
    return "<= 0" if all(one <= 0 for one in values) else ""


def allowed_values(field: str, values: Sequence[Any]) -> list[Any]:
    """Return the values that a flag or a state had, if it always had one of a few."""
    if not values or not all(isinstance(v, bool | str) and fact("x", field, v) for v in values):
        return []
    found = distinct(values)
    few = len(found) <= len(values) / 2 and not isinstance(found[0], bool)
    return found if len(found) == 1 or few else []


def fixed_ways(results: Sequence[Any]) -> list[Way]:
    """Return the ways to the values of results that keys alone lead to."""
    return list(dict.fromkeys(way for one in results for way in _fixed(one)))


def _fixed(result: Any, parts: Way = ()) -> Iterator[Way]:
    if isinstance(result, dict) and not is_collection(result):
        for key, value in result.items():
            is_name = isinstance(key, str) and "." not in key and key not in (ANY, KEYS)
            is_fact = is_name and not (isinstance(value, dict) and describes(key))
            if len(parts) < DEEPEST and is_fact:
                yield from _fixed(value, (*parts, key))
    elif parts and not isinstance(result, list | dict):
        yield parts


def value_at(result: Any, way: Sequence[str]) -> Any:
    """Return the value of a result on a way; None if there is none."""
    found = every(result, ".".join(way))
    return found[0] if found else None


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return the different ones of some values."""
    return list({quoted(value): value for value in values}.values())


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and no flag."""
    return isinstance(value, int | float) and not isinstance(value, bool)
