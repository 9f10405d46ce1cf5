"""Selections: the functions with which a plain routine chooses and compares records.

`fields` describe a record: `name="Lamp"` is the value of its field; a record as value must be
covered by the field; a list must be equal. A mapping before them takes names that are no
identifiers, and paths: `only(orders, {"ship-to.city": city}, status="open")`. A description stands
for the whole element, or for a part of it: `only(orders, {"items": holding(items)})`.

Values are compared as a clerk would (`same`), so a lamp is a "LAMP" and 1 is 1.0. Whatever is not
clear fails: no element fits, several do, a field is missing. Nothing is chosen by its position.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Union

from em.values.canonical import same, short

MOST_SHOWN = 8
"""Candidates that an error lists."""
ABSENT = object()
"""What `given` gets for a name or a part that is not there."""
OMITTED = "omitted"
"""The name for an argument that is left out: `{{ note if given(note) else omitted }}`."""
LONGEST_KEPT = 300
"""Longer texts are not kept as they are compared."""
WHOLE = ""
"""The path of an element itself."""
_NUMBERS = (int, float)

Fields = Mapping[str, Any]
Described = Union[Fields, "Holding", None]


def given(*values: Any) -> bool:
    """Return whether all of these are given: names of values, or parts of them.

    The evaluators pass ABSENT for what is not there, so this never fails. A null was given.
    """
    return all(value is not ABSENT for value in values)


def fits(value: Any, wanted: Any) -> bool:
    """Return whether a value is the wanted one; a record has every field of a description."""
    if type(value) is str and type(wanted) is str and len(value) < LONGEST_KEPT:
        return value == wanted or _as_read(value) == _as_read(wanted)  # most of them
    if isinstance(wanted, Bound | Holding):
        return wanted.holds(value)
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and all(
            name in value and fits(value[name], one) for name, one in wanted.items()
        )
    return same(value, wanted)


@lru_cache(maxsize=10_000)
def _as_read(text: str) -> str:
    """Return a text as `same` compares it. A list is often searched for one thing after another."""
    return " ".join(text.split()).casefold()


def only(items: Any, more: Described = None, /, **fields: Any) -> Any:
    """Return the one element of a list, or the one value of a mapping, that fits; else fail."""
    found = where(items, more, **fields)
    if len(found) != 1:
        raise _misfit("only", items, len(found), more, fields)
    return found[0]


def only_key(items: Any, more: Described = None, /, **fields: Any) -> Any:
    """Return the key of the one value of a mapping that fits; else fail."""
    if not isinstance(items, Mapping):
        raise TypeError(f"only_key() needs a mapping, got a {type(items).__name__}")
    wanted = _all_fields(more, fields)
    found = [key for key, value in items.items() if not wanted or _is_described(value, wanted)]
    if len(found) != 1:
        raise _misfit("only_key", items, len(found), more, fields)
    return found[0]


def where(items: Any, more: Described = None, /, **fields: Any) -> list[Any]:
    """Return all elements of a list, or all values of a mapping, that fit."""
    wanted = _all_fields(more, fields)
    held = items_of(items)
    return [item for item in held if _is_described(item, wanted)] if wanted else held


def smallest(items: Any, path: str, more: Described = None, /, **fields: Any) -> Any:
    """Return the one element with the smallest value at a path, among those that fit.

    Fail if none fits, if one of them has no such value, and if two share the smallest.
    """
    return _farthest("smallest", min, items, path, more, fields)


def largest(items: Any, path: str, more: Described = None, /, **fields: Any) -> Any:
    """Return the one element with the largest value at a path, among those that fit."""
    return _farthest("largest", max, items, path, more, fields)


def _farthest(
    name: str,
    choose: Callable[[Sequence[Any]], Any],
    items: Any,
    path: str,
    more: Described,
    fields: Fields,
) -> Any:
    held = where(items, more, **fields)
    values = [_value_on(item, path) for item in held]
    if not values:
        raise _misfit(name, items, 0, more, fields)
    is_text = isinstance(values[0], str)
    for value in values:
        is_number = isinstance(value, _NUMBERS) and not isinstance(value, bool)
        if isinstance(value, str) is not is_text or not (is_text or is_number):
            shown = "nothing" if value is ABSENT else short(value)
            raise ValueError(f"{name}() can't compare the values at {path!r}: one is {shown}")
    best = choose(values)
    found = [item for item, value in zip(held, values, strict=True) if value == best]
    if len(found) != 1:
        raise ValueError(f"{len(found)} elements share the {name} {path!r}, {short(best)}")
    return found[0]


def common(items: Any, path: str, more: Described = None, /, **fields: Any) -> Any:
    """Return the value at a path that all elements which fit have in common; else fail."""
    values = [_value_on(item, path) for item in where(items, more, **fields)]
    if not values:
        raise _misfit("common", items, 0, more, fields)
    if any(not same(value, values[0]) for value in values):
        raise ValueError(f"the elements differ at {path!r}: {', '.join(map(short, values))}")
    return values[0]


class Bound(NamedTuple):
    """A limit that a field of a selection must keep to."""

    limit: Any
    is_least: bool

    def holds(self, value: Any) -> bool:
        """Return whether a value keeps to the limit; one that can't be compared does not."""
        try:
            return bool(value >= self.limit if self.is_least else value <= self.limit)
        except TypeError:
            return False


def at_least(limit: Any) -> Bound:
    """Return, for a field of a selection, that it must not be below a limit."""
    return Bound(limit, True)


def at_most(limit: Any) -> Bound:
    """Return, for a field of a selection, that it must not be above a limit."""
    return Bound(limit, False)


class Holding(NamedTuple):
    """A description that a field of a selection must hold."""

    description: Any

    def holds(self, value: Any) -> bool:
        """Return whether a value is as described."""
        return is_held(self.description, value)


def holding(description: Any) -> Holding:
    """Return, for a field of a selection, that a description is found in it.

    A record has every field of the description. A list has an element for each one of a list of
    descriptions, or one for a single description. Fail if nothing is described.
    """
    every = description if isinstance(description, list | tuple) else [description]
    if not every or not all(map(is_telling, every)):
        raise ValueError("a description needs at least one property")
    return Holding(description)


def is_telling(description: Any) -> bool:
    """Return whether a description has at least one property."""
    return not isinstance(description, Mapping | list | tuple) or any(
        map(is_telling, items_of(description))
    )


def is_held(description: Any, value: Any) -> bool:
    """Return whether a description is found in a value; see `holding`."""
    if isinstance(description, list | tuple):
        return isinstance(value, list | tuple) and all(
            sum(is_held(one, held) for held in value)
            >= sum(same(one, other) for other in description)
            for one in description
        )
    if isinstance(value, list | tuple):
        return any(is_held(description, held) for held in value)
    if isinstance(description, Mapping):
        return isinstance(value, Mapping) and all(
            name in value and is_held(one, value[name]) for name, one in description.items()
        )
    return same(value, description)


def merge(old: Any, new: Any) -> Any:
    """Return the old record with the fields of the new one; fail if the old one lacks a field."""
    for record in (old, new):
        if not isinstance(record, Mapping):
            raise TypeError(f"merge() needs two records, got a {type(record).__name__}")
    lost = [name for name in new if name not in old]
    if lost:
        raise ValueError(f"the record has no field {lost[0]!r}; it has: {', '.join(map(str, old))}")
    return {**old, **new}


def distinct(values: Any) -> bool:
    """Return whether no value of a list is there twice, by `same`."""
    held = items_of(values)
    return len({_identity(value) for value in held}) == len(held)


def _identity(value: Any) -> Any:
    """Return a key that is equal for two values that are the same."""
    if isinstance(value, str):
        return " ".join(value.split()).casefold()
    if isinstance(value, Mapping):
        return dict, frozenset((name, _identity(held)) for name, held in value.items())
    if isinstance(value, list | tuple):
        return list, tuple(map(_identity, value))
    return type(value) is bool, value


def items_of(items: Any) -> list[Any]:
    """Return the items of a list, or the values of a mapping."""
    if isinstance(items, Mapping):
        return list(items.values())
    if isinstance(items, Iterable) and not isinstance(items, str):
        return list(items)
    raise ValueError(f"a {type(items).__name__} has no items")


def _all_fields(more: Described, fields: Fields) -> Fields:
    """Return all conditions; one that is omitted is none."""
    if isinstance(more, Holding):
        more = {WHOLE: more}
    if more is not None and not isinstance(more, Mapping):
        raise TypeError(f"fields must be a mapping of names to values, got {short(more)}")
    every = {**more, **fields} if more else fields
    return {name: one for name, one in every.items() if one is not ABSENT}


def _is_described(item: Any, fields: Fields) -> bool:
    """Return whether a record fits a description whose names may be paths."""
    if type(item) is not dict and not isinstance(item, Mapping):
        return False
    for name, wanted in fields.items():
        value = item[name] if name in item else _found_on(item, name)
        if value is ABSENT or not fits(value, wanted):
            return False
    return True


def _found_on(item: Any, path: str) -> Any:
    """Return the value at a path, all values at `items.*.name`, or the item itself."""
    if path == WHOLE:
        return item
    before, star, after = path.partition(".*")
    if not star:
        return _value_on(item, path)
    held = _value_on(item, before)
    if not isinstance(held, list | tuple | Mapping):
        return ABSENT
    found = [_value_on(one, after[1:]) if after else one for one in items_of(held)]
    return [one for one in found if one is not ABSENT]


def _value_on(item: Any, path: str) -> Any:
    """Return the value at a path such as `options.size`; ABSENT if there is none."""
    for part in path.split("."):
        if not isinstance(item, Mapping) or part not in item:
            return ABSENT
        item = item[part]
    return item


def _misfit(name: str, items: Any, count: int, more: Described, fields: Fields) -> ValueError:
    """Return the error of a selection that found none or several."""
    wanted = _all_fields(more, fields)
    held = items_of(items)
    asked = ", ".join(_shown(key, value) for key, value in wanted.items())
    if not wanted:
        return ValueError(f"{name}() needs exactly one item, there are {len(held)}")
    message = f"{name}({asked}) needs exactly one item, {count} of {len(held)} fit"
    if count == 0:
        rows = [
            {key: value for key in wanted if (value := _found_on(item, key)) is not ABSENT}
            for item in held[:MOST_SHOWN]
        ]
        message += f"; there are {', '.join(map(short, rows))}" if rows else ""
    return ValueError(message)


def _shown(name: str, wanted: Any) -> str:
    if isinstance(wanted, Holding):
        wanted = wanted.description
    return f"{name}={short(wanted)}" if name else short(wanted)
