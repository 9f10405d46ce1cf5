"""Contradictions between a trace's final output and its calls: an id or number no call returned.

Only clear cases are reported: the value occurs nowhere in the trace, and a call returned another
value of the same kind under the same name, either as the only one or in a record that otherwise
equals the one in the output. Values that an agent may have computed (a sum, a count, a rounding,
another unit) are not contradictions.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.calls import TracedCall
from em.values.canonical import Json
from em.values.leaves import is_informative, leaves, mentioned_in

MIN_ALIKE = 2
"""Fields that must agree for a record of the output and one of a result to be the same."""


class Contradiction(msgspec.Struct, frozen=True):
    """A value of the output that differs from what a call returned."""

    place: str
    says: Any
    call: int
    tool: str
    returned: Any

    def __str__(self) -> str:
        return (
            f"{self.place}: the output says {self.says!r},"
            f" call {self.call + 1} ({self.tool}) returned {self.returned!r}"
        )


class _Source(NamedTuple):
    call: TracedCall
    record: Mapping[str, Any]
    value: Any


def contradictions(
    output: Any, calls: Sequence[TracedCall], mission: Json, said: str
) -> list[Contradiction]:
    """Return the values of an output that its calls contradict."""
    return _Search(calls, mission, said).of(output)


class _Search:
    def __init__(self, calls: Sequence[TracedCall], mission: Json, said: str) -> None:
        self._sources: dict[str, list[_Source]] = {}
        self._returned: dict[str, set[float | str]] = {}
        self._said = said
        seen: list[Any] = [mission]
        for call in calls:
            seen += [call.args, call.result, call.error]
            if not call.failed:
                for record in _records(call.result):
                    for key, value in record.items():
                        if _is_specific(value):
                            self._sources.setdefault(key, []).append(_Source(call, record, value))
                            self._returned.setdefault(key, set()).add(_plain(value))
        self._seen = [value for part in seen for _, value in leaves(part)]

    def of(self, output: Any) -> list[Contradiction]:
        """Return the contradictions in the records of an output."""
        found = []
        for place, record in _placed_records(output, "output"):
            for key, value in record.items():
                source = self._contradicted(record, key, value)
                if source is not None:
                    call = source.call
                    where = f"{place}.{key}"
                    found.append(Contradiction(where, value, call.index, call.name, source.value))
        return found

    def _contradicted(self, record: Json, key: str, value: Any) -> _Source | None:
        if not _is_specific(value):
            return None
        sources = self._sources.get(key, ())
        if not sources or _plain(value) in self._returned[key]:
            return None
        others = [source.value for source in sources]
        if self._occurs(value) or _may_be_computed(value, others):
            return None
        best = max(sources, key=lambda source: (_alike(record, source.record), source.call.index))
        alone = all(_same(best.value, other) for other in others)
        if not alone and _alike(record, best.record) < MIN_ALIKE:
            return None
        return best if _of_one_kind(value, best.value) else None

    def _occurs(self, value: Any) -> bool:
        """Return whether the value occurs elsewhere in the trace, and so may come from there."""
        if not is_informative(value):
            return False
        if mentioned_in(value, self._said):
            return True
        return any(
            _same(value, other) or (isinstance(other, str) and mentioned_in(value, other))
            for other in self._seen
        )


def _placed_records(value: Any, place: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        yield place, value
        for key, part in value.items():
            yield from _placed_records(part, f"{place}.{key}")
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _placed_records(item, f"{place}[{number}]")


def _records(value: Any) -> Iterator[Json]:
    return (record for _, record in _placed_records(value, ""))


def _is_specific(value: Any) -> bool:
    """Return whether a value is a number, or one word with a digit: an id, a date, an amount."""
    if isinstance(value, str):
        return bool(re.fullmatch(r"\S*\d\S*", value))
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _plain(value: Any) -> float | str:
    """Return what equal values share: a number, or a text without regard to case."""
    number = _number(value)
    return str(value).strip().lower() if number is None else number


def _same(one: Any, other: Any) -> bool:
    return _plain(one) == _plain(other)


def _may_be_computed(value: Any, others: Sequence[Any]) -> bool:
    """Return whether the agent may have computed a value: rounded, converted, summed, counted."""
    number = _number(value)
    numbers = [other for other in map(_number, others) if other is not None]
    if number is None or not numbers:
        return False
    if number in (len(others), len(set(numbers))) or math.isclose(number, sum(numbers)):
        return len(numbers) > 1 or number == numbers[0]
    return any(_close(number, other) for other in numbers)


def _close(number: float, other: float) -> bool:
    decimals = len(repr(number).partition(".")[2].rstrip("0"))
    if abs(number - other) < 10.0**-decimals:
        return True  # rounded up or down
    if number == 0 or other == 0:
        return False
    if number == -other:
        return True
    power = math.log10(abs(number)) - math.log10(abs(other))  # the quotient may be 0 or infinite
    return abs(power - round(power)) < 1e-9


def _of_one_kind(one: Any, other: Any) -> bool:
    """Return whether two values are both numbers, or texts of one shape: `#W1001`, `#W1002`."""
    if isinstance(one, str) and isinstance(other, str):
        return _shape(one) == _shape(other)
    return not isinstance(one, str) and not isinstance(other, str)


def _shape(text: str) -> str:
    return re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "0", text))


def _alike(one: Json, other: Mapping[str, Any]) -> int:
    """Count the informative fields in which two records agree."""
    return sum(
        key in other and is_informative(value) and _same(value, other[key])
        for key, value in one.items()
        if not isinstance(value, dict | list)
    )
