"""Argument facts: what was so of the arguments of all recorded calls, and must be so again.

A time is a time of the day, an amount is not 0, nobody gives to himself, and a stay ends after it
begins, where all recorded calls were so.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from em.compiler.evidence import ENOUGH, information
from em.compiler.record_facts import is_number, sign_of
from em.compiler.sources import quoted
from em.redaction.redactor import MARKER
from em.runner.expressions.functions import kind_of
from em.values.canonical import identical

FAR = 20
"""How many times the largest recorded number another one may be: beyond, the unit is in doubt."""
FEWEST_DIFFERENT = 3
"""How often two plain words must have differed, so that they must differ again."""
_ORDERED = frozenset({"date", "time"})


def argument_facts(given: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield what was so of arguments. given: by expression, the values of all recorded calls.

    Of a secret nothing is recorded that could be compared.
    """
    given = {
        name: values
        for name, values in given.items()
        if not any(isinstance(one, str) and MARKER.search(one) for one in values)
    }
    for name, values in given.items():
        yield from _alone(name, values)
    for (one, first), (other, second) in combinations(given.items(), 2):
        if len(first) == len(second):
            yield from _of_two(one, first, other, second)


def _alone(name: str, values: Sequence[Any]) -> Iterator[str]:
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    kinds = {kind_of(one) if isinstance(one, str) else "" for one in flat}
    if len(kinds) == 1 and kinds <= _ORDERED:
        yield f'kind_of({name}) == "{kinds.pop()}"'
    elif values and all(map(is_number, values)):
        if sign_of(values) in ("> 0", "< 0"):
            yield f"{name} {sign_of(values)}"
        largest = max(map(abs, values))
        if largest:
            yield f"{name} <= {quoted(FAR * largest)}"


def _of_two(one: str, first: Sequence[Any], other: str, second: Sequence[Any]) -> Iterator[str]:
    kinds = {kind_of(value) for value in (*first, *second) if isinstance(value, str)}
    texts = all(isinstance(value, str) for value in (*first, *second))
    if not first or not texts or len(kinds) != 1:
        return
    pairs = list(zip(first, second, strict=True))
    if kinds <= _ORDERED:
        if len({len(value) for value in (*first, *second)}) > 1:
            return  # 9:00 and 10:00 have no order as texts
        if all(a <= b for a, b in pairs):
            yield f"{one} <= {other}"
        elif all(a >= b for a, b in pairs):
            yield f"{one} >= {other}"
    elif not any(identical(a, b) for a, b in pairs) and (
        len(pairs) >= FEWEST_DIFFERENT
        or all(min(information(a), information(b)) >= ENOUGH for a, b in pairs)
    ):
        yield f"{one} != {other}"
