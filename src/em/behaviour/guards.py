"""Guards: facts that were read before a call, and that must hold again.

A careful person would look at them before acting: a status, a flag, an availability, whose order
it is. Nobody is asked when a behaviour is replayed, so every record that was read counts.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.behaviour.sources import (
    Parts,
    Place,
    Sources,
    is_collection,
    places,
    quoted,
    reference,
    text_key,
)
from em.behaviour.weight import ENOUGH
from em.compiler.calls import words_of
from em.compiler.evidence import information
from em.runner.expressions.functions import ANY, KEYS
from em.values.canonical import Json
from em.values.leaves import leaves

MOST = 100
"""Guards of one call."""
MOST_DATES = 8
"""Dates of one result that are compared with others."""
DEEPEST = 3
"""Mappings within each other whose facts are looked at."""

STATUSES = frozenset("status state condition stage phase availability".split())
"""Words in the names of fields that say how far something is."""
_FACTS = STATUSES | frozenset(
    "type kind tier role level class mode category membership cabin currency priority plan channel"
    " direction severity visibility".split()
)
"""Words in the names of fields whose value is one of a few."""
_COUNTS = frozenset(
    "stock quantity available balance remaining left count seats inventory capacity limit max"
    " maximum budget credit funds".split()
)
"""Words in the names of fields that say how much there is."""
_IDS = frozenset("id ids number no nr code key index page version year".split())
"""Words in the names of numbers that are not amounts."""
_AMOUNTS = frozenset({"amount", "total", "price", "cost"})
_LEAST, _MOST = frozenset({"min", "minimum", "least"}), frozenset({"max", "maximum", "most"})
"""Words in the names of fields that say how many there must be, or may be."""
NAMES = frozenset(
    "name title description label text note comment message subject summary body content street"
    " city address country brand color colour size material model author url path file id key email"
    " reason method source".split()
)
"""Words in the names of fields that describe one thing, and differ from thing to thing."""
_WHOSE = frozenset(
    "id user owner customer account email username member client holder guest patient".split()
)
"""Words in the names of fields that say whose something is."""
_ENDINGS = frozenset(
    "cancel cancelled canceled locked blocked deleted returned refunded closed ended expired error"
    " hold archived frozen suspended disabled terminated void voided revoked recalled discontinued"
    " banned".split()
)
"""Words in the names of fields that are empty until something ends."""
_FREE = frozenset(
    "owner assignee assigned holder taken reserved claimed discount flag flags warning warnings"
    " lock conflict conflicts dispute disputed alert alerts restriction restricted fraud".split()
)
"""Words in the names of fields that are empty as long as nobody has it, or nothing is wrong."""
_FEW = re.compile(r"[a-z][a-z _-]{0,30}")
_WORDS = re.compile(r"[A-Za-z][A-Za-z _-]{0,30}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ][\d:.]{1,15}(?:Z|[+-]\d{2}:\d{2})?)?")


class Read(NamedTuple):
    """A call that was made to know something."""

    number: int
    name: str
    args: Json
    result: Any


class Acted(NamedTuple):
    """A value that a call with an effect was given, and the expression that gives it now."""

    name: str
    value: Any
    expression: str


class Guards:
    """Finds the guards of calls with an effect, from the reads before them.

    input_of: returns the expression of the input that has a value.
    """

    def __init__(self, sources: Sources, input_of: Callable[[Any], str | None]) -> None:
        self._sources, self._input_of = sources, input_of
        self._acted: Sequence[Acted] = ()
        self._reads: dict[int, Read] = {}
        # Of several reads of one thing the last one counts.
        self._last: dict[str, int] = {}
        # The ids that reads were made with; with them, those that reads returned.
        self._made_with: set[str] = set()
        self._identifying: set[str] = set()
        self._owners: dict[int, list[Place]] = {}

    def learn(self, read: Read) -> None:
        """Take a read whose result is there now."""
        self._reads[read.number] = read
        self._last[f"{read.name}{quoted(read.args)}"] = read.number
        values = {text_key(value) for _, value in leaves(read.args) if _is_id(value)}
        self._made_with |= values
        self._identifying |= values
        if isinstance(read.result, str) and _is_id(read.result):
            self._identifying.add(text_key(read.result))

    def of(self, acted: Sequence[Acted]) -> list[str]:
        """Return the guards of a call: on the records that were read, and on whose they are."""
        self._acted = acted
        subjects = self._subjects()
        known = {read.number for read in subjects}
        guards = [guard for read in subjects for guard in self._of_record(read)]
        for read in subjects:
            for guard, other in self._relations(read):
                guards.append(guard)
                if other is not None and other not in known:
                    known.add(other)
                    guards += self._of_record(self._reads[other])
        guards += self._of_items(known)
        guards += self._limits(subjects)
        guards += self._bounds(subjects)
        guards += self._orders(subjects)
        return list(dict.fromkeys(guards))[:MOST]

    def _subjects(self) -> list[Read]:
        """Return the last read of each thing, and the reads whose own id is acted on."""
        sources = [self._record_of(one) for one in self._acted]
        found = {*self._last.values(), *(one for one in sources if one is not None)}
        return [self._reads[number] for number in sorted(found)]

    def _record_of(self, one: Acted) -> int | None:
        """Return the read whose own id is acted on: `user.id` and `user.user_id` of a `user`."""
        name, dot, key = one.expression.partition(".")
        call = self._sources.call_of(name) if dot else None
        if call is None or call not in self._reads:
            return None
        words = words_of(key)
        is_own = words == ["id"] or (
            words[-1:] == ["id"] and set(words[:-1]) <= set(words_of(name))
        )
        return call if is_own else None

    def _of_record(self, read: Read) -> Iterator[str]:
        """Yield the facts of a result, and of the mappings in it; what was empty stays empty."""
        name, result = self._sources.names[read.number], self._sources.results[read.number]
        for parts, value in _facts_in(result):
            key = str(parts[-1]) if parts else ""
            check = fact(reference(name, parts), key, value)
            if check is None and read.args:
                check = _emptiness(reference(name, parts), value, whole=not parts)
            if check is not None:
                yield check

    def _relations(self, read: Read) -> Iterator[tuple[str, int | None]]:
        """Yield that a field of the record still equals whom or what the task is about."""
        name = self._sources.names[read.number]
        own = {text_key(value) for _, value in leaves(read.args)}
        if read.number not in self._owners:
            self._owners[read.number] = list(_owners(read)) if read.args else []
        for place in self._owners[read.number]:
            if not _is_id(place.value):
                continue
            if text_key(place.value) in own:
                # Found by this: a search may return somebody else. Ids are compared as arguments.
                given = self._input_of(place.value)
                if given is not None and "id" not in words_of(place.key):
                    here = reference(name, place.parts)
                    yield f"{here} == {given}", None
                continue
            is_known = text_key(place.value) in self._identifying
            here = reference(name, place.parts)
            given = self._input_of(place.value)
            if given is not None and is_known:
                yield f"{here} == {given}", None
            other = self._whose(place.value, read.number)
            if other is not None and (is_known or _says_whose(other)):
                there = reference(self._sources.names[other.call], other.parts)
                yield f"{here} == {there}", other.call

    def _whose(self, value: Any, but: int) -> Place | None:
        """Return where another read has this value: as its whole result, or by keys alone."""
        for group in self._sources.groups(value):
            place = group[0]
            if place.is_fixed and place.call != but and place.call in self._reads:
                return place
        return None

    def _of_items(self, subjects: set[int]) -> Iterator[str]:
        """Yield facts of the items in lists that a call was given the ids of."""
        for one in self._acted:
            if not _is_id(one.value) or text_key(one.value) in self._made_with:
                continue  # where it was read by, the whole result is the record
            ways: dict[tuple[str, ...], list[Place]] = {}
            for group in self._sources.groups(one.value):
                place = group[0]
                if place.collections and len(group) == 1 and place.general[-1] != KEYS:
                    ways.setdefault(place.general, []).append(place)
            inside = {
                general: held
                for general, held in ways.items()
                if all(place.call in subjects for place in held)
            }
            twice = sum(other.value == one.value for other in self._acted) > 1
            yield from self._of_ways(one, ways if twice else inside or ways)

    def _of_ways(self, one: Acted, ways: Mapping[tuple[str, ...], list[Place]]) -> Iterator[str]:
        for general, held in ways.items():
            last = max(number for number, part in enumerate(general) if part == ANY)
            key = ".".join(general[last + 1 :])
            if not key:
                continue  # membership is checked
            calls = dict.fromkeys(place.call for place in held)
            path = quoted(".".join(general[: last + 1]))
            records = " + ".join(f"every({self._sources.names[call]}, {path})" for call in calls)
            for field, values in _shared_fields([_item(place) for place in held]):
                way = f"({records}, {quoted(key)}, {one.expression}, {quoted(field)})"
                check = _fact_of_all(way, field, values)
                if check is not None:
                    yield check

    def _limits(self, subjects: Sequence[Read]) -> Iterator[str]:
        """Yield that an amount stays within what the record says there is."""
        amounts = [
            one
            for one in self._acted
            if isinstance(one.value, int | float)
            and not isinstance(one.value, bool)
            and _IDS.isdisjoint(words_of(one.name))
        ]
        for read in subjects:
            name, result = self._sources.names[read.number], self._sources.results[read.number]
            fields = result.items() if isinstance(result, dict) else [("", result)]
            for key, value in fields:
                if isinstance(value, bool) or not isinstance(value, int | float):
                    continue
                if key and (_COUNTS | _AMOUNTS).isdisjoint(words_of(key)):
                    continue
                there = reference(name, (key,)) if key else name
                for one in amounts:
                    if one.value < value and there not in one.expression:
                        yield f"{there} >= {one.expression}"

    def _bounds(self, subjects: Sequence[Read]) -> Iterator[str]:
        """Yield that a list is still as long as a policy wants it."""
        lists = [
            (reference(self._sources.names[read.number], parts), str(parts[-1]), value)
            for read in subjects
            for parts, value in _facts_in(self._sources.results[read.number])
            if parts and isinstance(value, list)
        ]
        for read in subjects if lists else ():
            for parts, bound in _facts_in(self._sources.results[read.number]):
                words = set(words_of(str(parts[-1]))) if parts else set()
                number = isinstance(bound, int) and not isinstance(bound, bool)
                if not number or not words & (_LEAST | _MOST):
                    continue
                there = reference(self._sources.names[read.number], parts)
                for here, key, value in lists:
                    if len(words) > 1 and words.isdisjoint(words_of(key)):
                        continue
                    sign = ">=" if words & _LEAST else "<="
                    if (len(value) >= bound) if words & _LEAST else (len(value) <= bound):
                        yield f"len({here}) {sign} {there}"

    def _orders(self, subjects: Sequence[Read]) -> Iterator[str]:
        """Yield that dates of different results, or of an argument, stand in the same order."""
        dates = [(one.expression, one.value) for one in self._acted if _is_date(one.value)]
        for read in subjects:
            name = self._sources.names[read.number]
            own = [
                (reference(name, parts), value)
                for parts, value in _facts_in(self._sources.results[read.number])
                if _is_date(value)
            ]
            for here, value in own[:MOST_DATES]:
                for there, than in dates:
                    if here == there or len(value) != len(than) or value == than:
                        continue
                    yield f"{here} {'<=' if value < than else '>='} {there}"
            dates += own[:MOST_DATES]


def _facts_in(result: Any, parts: Parts = ()) -> Iterator[tuple[Parts, Any]]:
    """Yield the values of a result that keys alone lead to; a list is one value."""
    if not isinstance(result, dict) or is_collection(result):
        yield parts, result
    elif len(parts) < DEEPEST:
        for key, value in result.items():
            if not isinstance(value, dict) or not describes(str(key)):
                yield from _facts_in(value, (*parts, key))


def describes(key: str) -> bool:
    """Return whether a field describes one thing, such as an address: its parts are no facts."""
    return not NAMES.isdisjoint(words_of(key))


def _emptiness(expression: str, value: Any, *, whole: bool) -> str | None:
    """Return the check that what was empty is empty, and that as many were found as before."""
    if value is None:
        return f"{expression} == none"
    if value == "":
        return f'{expression} == ""'
    if isinstance(value, list | dict) and not value:
        return f"len({expression}) == 0"
    if whole and isinstance(value, list):
        return f"len({expression}) {'== 1' if len(value) == 1 else '> 0'}"
    return None


def _is_date(value: Any) -> bool:
    return isinstance(value, str) and _DATE.fullmatch(value) is not None


def _says_whose(place: Place) -> bool:
    return not _WHOSE.isdisjoint(words_of(place.key))


def _owners(read: Read) -> Iterator[Place]:
    """Yield the fields of a record that may say whose it is."""
    for place in places(read.number, read.result):
        if place.is_fixed and place.parts and _says_whose(place):
            yield place


def _is_id(value: Any) -> bool:
    return information(value) >= ENOUGH


def _item(place: Place) -> dict[Any, Any]:
    """Return the innermost item of a list that holds a place, if it is a mapping."""
    depth, items = place.collections[-1]
    item = items[place.parts[depth]]
    return item if isinstance(item, dict) else {}


def _shared_fields(items: Sequence[dict[Any, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the fields that all items have, also of a mapping in them, with their values."""
    for field, value in items[0].items():
        if any(field not in item for item in items):
            continue
        if not isinstance(value, dict):
            yield str(field), [item[field] for item in items]
            continue
        for inner in value:
            held = [item[field] for item in items]
            if all(isinstance(one, dict) and inner in one for one in held):
                yield f"{field}.{inner}", [one[inner] for one in held]


def _fact_of_all(way: str, field: str, values: Sequence[Any]) -> str | None:
    """Return the check that a fact is the same for all items; a count must be above 0 for all."""
    if any(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        if _COUNTS.isdisjoint(words_of(field)) or not all(_is_above(value) for value in values):
            return None
        return f"least_of{way} > 0"
    if any(value != values[0] for value in values):
        return None
    return fact(f"fact_of{way}", field.rpartition(".")[2], values[0])


def _is_above(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


def fact(expression: str, key: str, value: Any) -> str | None:
    """Return the check of a field that a careful person would look at; None for other fields."""
    words = set(words_of(key))
    if isinstance(value, bool):
        return f"{expression} == {quoted(value)}"
    if isinstance(value, int | float):
        if key and words.isdisjoint(_COUNTS):
            return None
        return f"{expression} > 0" if value > 0 else f"{expression} == {quoted(value)}"
    if value is None:
        return f"{expression} == none" if words & (_ENDINGS | _FREE) else None
    if not isinstance(value, str):
        return None
    if words & _FACTS or not key:
        few = _WORDS.fullmatch(value)
    else:
        few = None if words & NAMES else _FEW.fullmatch(value)
    return f"{expression} == {quoted(value)}" if few and len(value.split()) <= 3 else None
