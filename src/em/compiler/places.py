"""Places: where values stand in inputs and results, as paths in which every element is alike.

The place of `order["items"][2]["id"]` is `("items", ELEMENT, "id")`. A mapping from ids to records
counts as a list of records; the ids are then values at the place `(…, RECORD, KEY)`.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from em.redaction.redactor import MARKER
from em.values.canonical import same
from em.values.leaves import is_by_id
from em.values.times import is_clock, is_date, is_month


class Mark(Enum):
    """A step of a place that is not the name of a field."""

    ELEMENT = "any element of a list"
    RECORD = "any record of a mapping from ids to records"
    KEY = "the id under which that record stands"
    POSITION = "the number of an element in its list, from 1 on"
    TEXT = "the text that a structure was read from"

    def __repr__(self) -> str:
        return self.name


class Over(NamedTuple):
    """The first step of the place of a list that a read returned, where a loop goes over it.

    field, value: only over the elements with this value, as the request says.
    """

    role: Any
    place: "Place"
    field: str = ""
    value: Any = None


ELEMENT, RECORD, KEY, POSITION = Mark.ELEMENT, Mark.RECORD, Mark.KEY, Mark.POSITION
TEXT = Mark.TEXT
Place = tuple[str | Mark | Over, ...]
Path = tuple[str | int | Mark, ...]
Key = tuple[str, Any]
"""A value as a key of mappings: texts in any case and spacing, numbers by value."""


class Missing:
    """What stands at a place that a value lacks."""


MISSING = Missing()


def is_scalar(value: Any) -> bool:
    """Return whether a value is neither a list nor a mapping."""
    return not isinstance(value, dict | list)


def is_number(value: Any) -> bool:
    """Return whether a value is a number and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def folded(text: str) -> str:
    """Return a text as selections compare it: in lower case, with single spaces."""
    return " ".join(text.lower().split())


def key_of(value: Any) -> Key:
    """Return the key under which equal values are found."""
    if isinstance(value, str):
        return "text", folded(value)
    if isinstance(value, bool) or value is None:
        return "word", value
    if isinstance(value, int | float):
        return "number", value
    if value is MISSING:
        return "missing", None
    return "json", msgspec.json.encode(value, order="sorted")


def is_exactly(one: Any, other: Any) -> bool:
    """Return whether two values are equal to the letter, so that one can stand for the other."""
    if isinstance(one, str) or isinstance(other, str):
        return bool(one == other)
    return is_scalar(one) == is_scalar(other) and key_of(one) == key_of(other)


def is_code(value: Any) -> bool:
    """Return whether a value looks like an id: a text with digits, or an address of mail."""
    return isinstance(value, str) and (any(map(str.isdigit, value)) or "@" in value)


def is_word(value: Any) -> bool:
    """Return whether a value can be a state: a flag, or a few words that are no id."""
    if isinstance(value, bool):
        return True
    is_short = isinstance(value, str) and 0 < len(value.split()) <= 4
    return is_short and not is_code(value) and not MARKER.search(value)


def covers(record: Any, wanted: Any) -> bool:
    """Return whether a record has every field of another one, with that value."""
    return (
        isinstance(record, dict)
        and isinstance(wanted, dict)
        and all(name in record and same(record[name], one) for name, one in wanted.items())
    )


def is_flat(value: Any) -> bool:
    """Return whether a value is a record of scalars that has fields."""
    return isinstance(value, dict) and bool(value) and all(map(is_scalar, value.values()))


def walk(value: Any, place: Place = (), path: Path = ()) -> Iterator[tuple[Place, Path, Any]]:
    """Yield every scalar of a value with its place and its path; also the ids of mappings."""
    if isinstance(value, dict):
        by_id = is_by_id(value)
        for name, one in value.items():
            if by_id:
                yield (*place, RECORD, KEY), (*path, name, KEY), name
            yield from walk(one, (*place, RECORD if by_id else name), (*path, name))
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from walk(one, (*place, ELEMENT), (*path, number))
    else:
        yield place, path, value


def wholes(value: Any, place: Place = (), path: Path = ()) -> Iterator[tuple[Place, Path, Any]]:
    """Yield a value and the lists and records in it; of a list only what its one element has."""
    if is_scalar(value) or not value:
        return
    yield place, path, value
    if isinstance(value, dict) and not is_by_id(value):
        for name, one in value.items():
            yield from wholes(one, (*place, name), (*path, name))
    elif isinstance(value, list) and len(value) == 1:
        yield from wholes(value[0], (*place, ELEMENT), (*path, 0))


def empty_in(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the empty lists and records inside a record, which no list separates from it."""
    if isinstance(value, dict):
        for name, one in value.items():
            if one in ([], {}):
                yield (*place, name), one
            yield from empty_in(one, (*place, name))


def records(value: Any, place: Place = ()) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Yield the records inside a value that no list separates from it."""
    if isinstance(value, dict):
        if place:
            yield place, value
        if not is_by_id(value):
            for name, one in value.items():
                yield from records(one, (*place, name))


def plain(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield the scalars inside a value that no list separates from it."""
    if isinstance(value, dict):
        if not is_by_id(value):
            for name, one in value.items():
                yield from plain(one, (*place, name))
    elif is_scalar(value):
        yield place, value


def at(value: Any, place: Place, turn: int | None = None) -> Any:
    """Return what stands at a place, or MISSING. ELEMENT is the element of this turn."""
    for step in place:
        if step is ELEMENT:
            if not isinstance(value, list) or turn is None or turn >= len(value):
                return MISSING
            value = value[turn]
        elif step is POSITION:
            return MISSING if turn is None else turn + 1
        elif isinstance(value, Mapping) and step in value:
            value = value[step]
        else:
            return MISSING
    return value


def follow(value: Any, path: Path) -> Any:
    """Return what stands at a path that the value has; KEY is the id before it."""
    for number, step in enumerate(path):
        if number + 1 < len(path) and path[number + 1] is KEY:
            return step
        value = value[step]
    return value


def elements(value: Any, mark: Mark) -> list[tuple[Any, Any]]:
    """Return the elements of a list, or the records of a mapping, with their positions or ids."""
    if mark is ELEMENT:
        return list(enumerate(value)) if isinstance(value, list) else []
    return list(value.items()) if isinstance(value, dict) else []


def lists_in(value: Any, place: Place = ()) -> Iterator[tuple[Place, list[Any]]]:
    """Yield the lists of inputs that stand in no other list."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from lists_in(one, (*place, name))
    elif isinstance(value, list):
        yield place, value


def input_places(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield every scalar and list of inputs with its place."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from input_places(one, (*place, name))
    elif isinstance(value, list):
        yield place, value
        for one in value:
            yield from input_places(one, (*place, ELEMENT))
    else:
        yield place, value


def marks_in(place: Place) -> list[int]:
    """Return the positions in a place at which one element of several is chosen."""
    return [number for number, step in enumerate(place) if step in (ELEMENT, RECORD)]


def last_name(place: Place) -> str:
    """Return the last name of a field in a place, or an empty text."""
    return next((step for step in reversed(place) if isinstance(step, str)), "")


def are_comparable(one: Any, other: Any) -> bool:
    """Return whether two values have an order: numbers, dates, months, times of day."""
    kinds = (is_number, is_date, is_month, is_clock)
    return any(is_kind(one) and is_kind(other) for is_kind in kinds)


def overlap(one: Place, other: Place) -> bool:
    """Return whether two places are the same, or one stands in the other."""
    common = min(len(one), len(other))
    return one[:common] == other[:common]
