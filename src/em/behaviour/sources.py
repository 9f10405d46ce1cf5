"""Sources: where the values of a run stand, in the task and in results, by value."""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from em.runner.expressions.functions import ANY, KEYS, every
from em.runner.expressions.selection import items_of
from em.values.leaves import Scalar, is_by_id

Parts = tuple[str | int, ...]
"""The keys and positions that lead to a value."""

MOST_ITEMS = 3
"""Places that are remembered of one list for one value; more of them say nothing new."""
MOST_WHOLES = 8
"""Places of one list or mapping that are remembered, the newest."""
MOST_NUMBERS = 24
"""Numbers that sums, differences and products are tried with."""
MOST_TEXTS = 64
SHORTEST_TEXT, LONGEST_TEXT = 5, 2_000
"""Texts of this length are searched for parts."""
MOST_TOTAL = 1e12
MOST_COMPUTED = 1e300
"""Nothing is computed with larger numbers: a whole number may be too large for a float."""
_COMMON_KEYS = frozenset({"id", "name", "key", "value", "code", "number"})
"""Keys that say little without what holds them."""


class Place(NamedTuple):
    """A place in a result: the call, the way to it, and the lists or mappings on that way.

    general: the way with `*` for every item of a collection and `@` for a key of a mapping.
    collections: for each `*` or `@`, how many parts lead to it, and the collection.
    """

    call: int
    parts: Parts
    general: tuple[str, ...]
    value: Scalar
    collections: tuple[tuple[int, Any], ...]

    @property
    def is_fixed(self) -> bool:
        """Whether keys alone lead here."""
        return not self.collections

    @property
    def key(self) -> str:
        """The last key on the way; empty for a whole result."""
        named = [part for part in self.general if part not in (ANY, KEYS)]
        return named[-1] if named else ""

    @property
    def width(self) -> int:
        """How many items the widest collection on the way has; 1 if there is none."""
        return max((len(items) for _, items in self.collections), default=1)


def text_key(value: Scalar) -> str:
    """Return the key that equal values share: a number equals the same number as a text."""
    if value is None or isinstance(value, bool):
        return f"\0{value}"
    return str(value).strip()


def is_collection(value: Any) -> bool:
    """Return whether a mapping holds items under keys that are data, not names of fields."""
    if not isinstance(value, dict) or not value:
        return False
    if is_by_id(value):
        return True
    plain = all(not isinstance(item, dict | list) for item in value.values())
    return plain and not all(str(key).isidentifier() for key in value)


def places(call: int, result: Any) -> Iterator[Place]:
    """Yield every value of a result with its place; also the keys that are data."""
    todo: list[tuple[Any, Parts, tuple[str, ...], tuple[tuple[int, Any], ...]]]
    todo = [(result, (), (), ())]
    while todo:
        value, parts, general, collections = todo.pop()
        if isinstance(value, list | tuple):
            within = (*collections, (len(parts), value))
            todo += [
                (item, (*parts, number), (*general, ANY), within)
                for number, item in reversed(list(enumerate(value)))
            ]
        elif isinstance(value, dict):
            by_key = is_collection(value)
            within = (*collections, (len(parts), value)) if by_key else collections
            for key in value if by_key else ():
                yield Place(call, (*parts, key), (*general, KEYS), key, within)
            todo += [
                (item, (*parts, key), (*general, ANY if by_key else str(key)), within)
                for key, item in reversed(value.items())
            ]
        else:
            yield Place(call, parts, general, value, collections)


class Kind(NamedTuple):
    """What a value is called where it stands: `city`, or `order id` for an `id` of an order."""

    holder: str
    key: str


class Sources:
    """The results so far, by value and by name. Adding and finding are linear in what they hold."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        """The name under which each call's result is saved."""
        self.results: dict[int, Any] = {}
        self._calls: dict[str, int] = {}
        self._by_value: dict[str, dict[tuple[int, tuple[str, ...]], list[Place]]] = {}
        self._distinct: dict[Kind, set[str]] = {}
        self._wholes: dict[bytes, list[tuple[int, Parts]]] = {}
        self._columns: dict[tuple[int, str], Column] = {}
        self.numbers: deque[tuple[str, float]] = deque(maxlen=MOST_NUMBERS)
        """The newest numbers that keys alone lead to, with their expressions."""
        self.texts: deque[tuple[int, str, str]] = deque(maxlen=MOST_TEXTS)
        """The newest longer texts that keys alone lead to: call, expression, text."""
        self._totals: dict[float, list[tuple[int, str]]] = {}

    def add(self, call: int, name: str, result: Any) -> None:
        """Let later values come from this call's result."""
        self.names[call], self.results[call] = name, result
        self._calls[name] = call
        for parts, part in _structures(result):
            held = self._wholes.setdefault(_encoded(part), [])
            held.append((call, parts))
            del held[:-MOST_WHOLES]
        for path, items in lists(result):
            for total, expression in _totals(name, path, items):
                self._totals.setdefault(round(total, 6), []).append((call, expression))
        # The values of one kind, which is the same for all items of a list.
        kinds: dict[tuple[str, ...], set[str]] = {}
        for place in places(call, result):
            self._note(place)
            if place.general not in kinds:
                kinds[place.general] = self._distinct.setdefault(self.kind_of(place), set())
            key = text_key(place.value)
            kinds[place.general].add(key)
            groups = self._by_value.setdefault(key, {})
            group = groups.setdefault((call, place.general), [])
            if len(group) < MOST_ITEMS:
                group.append(place)

    def _note(self, place: Place) -> None:
        """Note a number or a text that keys alone lead to, for what may be computed of it."""
        value = place.value
        if not place.is_fixed or isinstance(value, bool) or value is None:
            return
        expression = reference(self.names[place.call], place.parts)
        if isinstance(value, int | float):
            if is_computable(value):
                self.numbers.append((expression, value))
        elif SHORTEST_TEXT < len(value) <= LONGEST_TEXT:
            self.texts.append((place.call, expression, value))

    def totals(self, value: float) -> list[tuple[int, str]]:
        """Return the sums over lists, and lengths of lists, that equal a number."""
        return self._totals.get(round(value, 6), []) if abs(value) < MOST_TOTAL else []

    def kind_of(self, place: Place) -> Kind:
        """Return what a place's value is called, to find values that it could be mistaken for."""
        named = [part for part in place.general if part not in (ANY, KEYS)]
        if not named:
            return Kind(f"result of {place.call}", "")
        if named[-1] not in _COMMON_KEYS:
            return Kind("", named[-1])
        return Kind(named[-2] if len(named) > 1 else self.names[place.call], named[-1])

    def groups(self, value: Scalar) -> list[list[Place]]:
        """Return the places that hold a value: a list for each way that leads to one."""
        return list(self._by_value.get(text_key(value), {}).values())

    def is_made_by(self, value: Scalar, call: int) -> bool:
        """Return whether a value comes from this call's result alone."""
        return {call} == {other for other, _ in self._by_value.get(text_key(value), ())}

    def wholes(self, value: Any) -> list[tuple[int, Parts]]:
        """Return the results that are this list or mapping, or hold it by keys alone."""
        if not isinstance(value, dict | list) or not value:
            return []
        return self._wholes.get(_encoded(value), [])

    def rivals(self, place: Place) -> int:
        """Return how many different values have the same name as this one."""
        return len(self._distinct.get(self.kind_of(place), ()))

    def column(self, items: Any, field: str) -> "Column":
        """Return the values that a field has in the items of a collection; made once."""
        key = (id(items), field)
        if key not in self._columns:
            self._columns[key] = Column(items, field)
        return self._columns[key]

    def call_of(self, name: str) -> int | None:
        """Return the call whose result is saved under a name."""
        return self._calls.get(name)


class Column:
    """The values at one path in all items of a collection: how often each, and the extremes."""

    def __init__(self, items: Any, field: str) -> None:
        # The collection stays alive with this object, so its id is not used again.
        self.items = items
        values = [value for item in items_of(items) for value in every(item, field)]
        self._counts: dict[str, int] = {}
        for value in values:
            if not isinstance(value, dict | list):
                key = text_key(value).lower()
                self._counts[key] = self._counts.get(key, 0) + 1
        self.least = self.most = None
        ordered = {type(value) for value in values}
        if len(values) > 1 and (ordered <= {int, float} or ordered == {str}):
            self.least, self.most = min(values), max(values)

    def count(self, value: Scalar) -> int:
        """Return how many items have this value."""
        return self._counts.get(text_key(value).lower(), 0)


def lists(value: Any, path: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Yield the lists of a result that keys alone lead to, with the path of their items."""
    if isinstance(value, list) or is_collection(value):
        yield (f"{path}.{ANY}" if path else ANY), list(items_of(value))
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str) and key.isidentifier():
                yield from lists(item, f"{path}.{key}" if path else key)


def is_computable(number: float) -> bool:
    """Return whether sums and ratios with this number can be a float."""
    return abs(number) < MOST_COMPUTED


def _totals(name: str, path: str, items: list[Any]) -> Iterator[tuple[float, str]]:
    """Yield the length of a list, and the sum of each field of numbers, with expressions."""
    if len(items) < 2:
        return
    yield len(items), f"len(every({name}, {quoted(path)}))"
    sums: dict[str, float] = {}
    for item in items:
        for field, content in item.items() if isinstance(item, dict) else ():
            number = isinstance(content, int | float) and not isinstance(content, bool)
            if number and isinstance(field, str) and field.isidentifier():
                part = content if is_computable(content) else math.inf
                sums[field] = sums.get(field, 0) + part
    for field, total in sums.items():
        if abs(total) < MOST_TOTAL:
            yield total, f"sum(every({name}, {quoted(f'{path}.{field}')}))"


def _structures(value: Any, parts: Parts = ()) -> Iterator[tuple[Parts, Any]]:
    """Yield the lists and mappings of a result that keys alone lead to, the inner ones first."""
    if isinstance(value, dict) and not is_collection(value):
        for key, item in value.items():
            yield from _structures(item, (*parts, key))
    if isinstance(value, dict | list) and value:
        yield parts, value


def _encoded(value: Any) -> bytes:
    return sha256(msgspec.json.encode(value, order="sorted")).digest()


def reference(name: str, parts: Parts) -> str:
    """Return the expression of a value by the keys that lead to it."""
    return name + "".join(map(segment, parts))


def segment(part: str | int) -> str:
    """Return one step of a path as expressions write it."""
    if isinstance(part, int):
        return f"[{part}]"
    return f".{part}" if part.isidentifier() else f"[{quoted(part)}]"


def quoted(value: Any) -> str:
    """Write a value as an expression."""
    if isinstance(value, Mapping):
        pairs = (f"{quoted(key)}: {quoted(item)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(quoted, value)) + "]"
    return "none" if value is None else msgspec.json.encode(value).decode()


def literal(value: Any) -> Any:
    """Return a constant, quoted if it would read as an expression."""
    if isinstance(value, str) and ("{{" in value or "{%" in value or "{#" in value):
        return f"{{{{ {quoted(value)} }}}}"
    return value
