"""Refusals: calls that failed and did nothing teach what must be so before they are made.

A fact of the records that were read before becomes a guard if it tells all failures with one error
from all successes: a balance below the amount, a flag that no success had.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from em.compiler.evidence import ENOUGH, of_separation
from em.compiler.guards import fact
from em.compiler.sources import Place, places, quoted, reference
from em.runner.expressions.functions import every
from em.values.canonical import Json, short

FEWEST = 2
"""Failures from which a fact that separates them is believed, whatever the evidence."""
_VALUE = re.compile(r"[\w#@.-]*\d[\w@.-]*|'[^']*'|\"[^\"]*\"")

T = TypeVar("T")


class Seen(NamedTuple):
    """The arguments of a call, and a record that was read before it."""

    args: Json
    record: Any


def by_error(failed: Iterable[tuple[Any, T]]) -> dict[str, list[T]]:
    """Return what failed by its error, without ids and numbers: they are those of one task."""
    found: dict[str, list[T]] = {}
    for error, one in failed:
        text = error if isinstance(error, str) else short(error)
        found.setdefault(_VALUE.sub("…", text), []).append(one)
    return found


def separating(
    text: str, done: Sequence[Seen], failed: Sequence[Seen], names: Sequence[str]
) -> Iterator[str]:
    """Yield checks that held in all successes, and in no failure.

    text: the expression of the record. names: arguments that its numbers are compared with.
    """
    ways = [place.parts for place in places(0, failed[0].record) if _is_field(place)]
    evidence = of_separation([len(done), len(failed)], 2, len(ways))
    if len(failed) < FEWEST and evidence < ENOUGH:
        return
    for way in ways:
        good, bad = [_at(one, way) for one in done], [_at(one, way) for one in failed]
        if all(map(_is_number, [*good, *bad])):
            yield from _compared(reference(text, way), way, done, failed, names)
        elif all(isinstance(v, bool | str) and fact("x", str(way[-1]), v) for v in bad):
            different = {quoted(value) for value in bad}
            if different.isdisjoint(map(quoted, good)) and len(different) <= len(bad) / FEWEST:
                path = quoted(".".join(map(str, way)))
                yield from (f"{value} not in every({text}, {path})" for value in sorted(different))


def _compared(
    here: str,
    way: Sequence[Any],
    done: Sequence[Seen],
    failed: Sequence[Seen],
    names: Sequence[str],
) -> Iterator[str]:
    """Yield how a number of the record and an argument compare."""
    for name in names:
        if not all(_is_number(one.args.get(name)) for one in (*done, *failed)):
            continue
        good = [_at(one, way) - one.args[name] for one in done]
        bad = [_at(one, way) - one.args[name] for one in failed]
        if min(good) >= 0 > max(bad):
            yield f"{here} >= {name}"
        elif max(good) <= 0 < min(bad):
            yield f"{here} <= {name}"


def _is_field(place: Place) -> bool:
    return place.is_fixed and bool(place.parts)


def _at(one: Seen, way: Sequence[Any]) -> Any:
    found = every(one.record, ".".join(map(str, way)))
    return found[0] if found else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
