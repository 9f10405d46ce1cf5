"""Guards: facts that were read about what a call acts on, and that must hold again.

A careful person would look at them before acting: a status, a flag, an availability, whose order
it is. Only the record that is acted on counts; where the same item also stands in a catalogue, its
fields there are accidents.
"""

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.calls import TracedCall, words_of
from em.compiler.evidence import ENOUGH, information
from em.compiler.sources import (
    Parts,
    Place,
    Sources,
    is_collection,
    places,
    quoted,
    reference,
    text_key,
)
from em.runner.agreement import names_in_expression
from em.runner.expressions.functions import ANY, ENDINGS, FREE, KEYS, kind_of
from em.values.leaves import leaves

MOST = 24
"""Guards of one call."""
MOST_STRICT = 100
"""The same for a behaviour, which nobody reads before it is replayed."""
MOST_DATES = 8
"""Dates of one result that are compared with others."""
DEEPEST = 3
"""Mappings within each other whose facts are looked at."""
MOST_GENERAL = 5
"""Reads without arguments, such as of a page, that the guards of one call look at."""

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
_FEW = re.compile(r"[a-z][a-z _-]{0,30}")
_WORDS = re.compile(r"[A-Za-z][A-Za-z _-]{0,30}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ][\d:.]{1,15}(?:Z|[+-]\d{2}:\d{2})?)?")


class Guard(NamedTuple):
    """A condition that held when it was recorded, with the calls whose results it needs."""

    check: str
    calls: frozenset[int]


class Acted(NamedTuple):
    """A value that a call with an effect was given, and the expression that gives it now."""

    name: str
    value: Any
    expression: str
    is_column: bool = False
    """Whether it is one field of a list of records, which `agree` can't compare."""


class Guards:
    """Finds the guards of calls with an effect, from the reads before them.

    input_of: returns the expression of the input that has a value.
    strict: nobody is asked, so every record that was read counts, and what was empty stays empty.
    """

    def __init__(
        self, sources: Sources, input_of: Callable[[Any], str | None], *, strict: bool = False
    ) -> None:
        self._sources, self._input_of, self._strict = sources, input_of, strict
        self._acted: Sequence[Acted] = ()
        self._tool = ""
        self._reads: dict[int, TracedCall] = {}
        # Of several reads of one thing the last one counts.
        self._last: dict[str, int] = {}
        # By id, or by a small number and what it is the number of.
        self._made_with: dict[str, dict[int, None]] = {}
        self._general: dict[int, None] = {}
        self._identifying: set[str] = set()
        self._owners: dict[int, list[Place]] = {}

    def learn(self, read: TracedCall) -> None:
        """Take a read whose result is there now."""
        self._reads[read.index] = read
        call = f"{read.name}{quoted(read.args)}"
        before = self._last.get(call)
        self._last[call] = read.index
        values = [text_key(value) for _, value in leaves(read.args) if _is_id(value)]
        if not read.args:
            self._general.pop(before, None) if before is not None else None
            self._general[read.index] = None
        for key in (*values, *_small_ids(read)):
            held = self._made_with.setdefault(key, {})
            if before is not None:
                held.pop(before, None)
            held[read.index] = None
        self._identifying.update(values)
        if isinstance(read.result, str) and _is_id(read.result):
            self._identifying.add(text_key(read.result))

    def of(self, acted: Sequence[Acted], tool: str) -> list[Guard]:
        """Return the guards of a call: on the records that it acts on, and on whose they are."""
        self._acted, self._tool = acted, tool
        subjects = self._subjects()
        known = {read.index for read in subjects}
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
        found: dict[str, Guard] = {}
        for guard in guards:
            found.setdefault(guard.check, guard)
        return list(found.values())[: MOST_STRICT if self._strict else MOST]

    def _subjects(self) -> list[TracedCall]:
        """Return the reads of what is acted on, and the newest about the world.

        A record is read by its id, or it was found by something else and its id is acted on.
        """
        found = dict.fromkeys(list(self._general)[-MOST_GENERAL:])
        if self._strict:
            found |= dict.fromkeys(self._last.values())
        for one in self._acted:
            for value in _each(one.value):
                keys = [text_key(value)] if _is_id(value) else _things(one.name, self._tool, value)
                for key in keys:
                    found |= self._made_with.get(key, {})
            source = self._record_of(one)
            if source is not None:
                found[source] = None
        return [self._reads[index] for index in sorted(found)]

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

    def _of_record(self, read: TracedCall) -> Iterator[Guard]:
        """Yield the facts of a result, and of the mappings in it."""
        name, result = self._sources.names[read.index], self._sources.results[read.index]
        calls = frozenset({read.index})
        for parts, value in _facts_in(result):
            key = str(parts[-1]) if parts else ""
            if not self._strict and _is_person(key, value):
                yield self._of_person(read, parts, value)
                continue
            check = fact(reference(name, parts), key, value, strict=self._strict)
            if check is None and self._strict and read.args:
                check = _emptiness(reference(name, parts), value, whole=not parts)
            if check is not None:
                yield Guard(check, calls)

    def _of_person(self, read: TracedCall, parts: Parts, value: str) -> Guard:
        """Return that a record is of the person that the task is about, or of anybody."""
        here = reference(self._sources.names[read.index], parts)
        given = self._input_of(value)
        if given is not None:
            return Guard(f"{here} == {given}", frozenset({read.index}))
        other = self._whose(value, read.index)
        if other is not None and (_says_whose(other) or "name" in words_of(other.key)):
            there = reference(self._sources.names[other.call], other.parts)
            return Guard(f"{here} == {there}", frozenset({read.index, other.call}))
        return Guard(f"{here} != none", frozenset({read.index}))

    def _relations(self, read: TracedCall) -> Iterator[tuple[Guard, int | None]]:
        """Yield that a field of the record still equals whom or what the task is about."""
        name = self._sources.names[read.index]
        own = {text_key(value) for _, value in leaves(read.args)}
        if read.index not in self._owners:
            self._owners[read.index] = list(_owners(read)) if read.args else []
        for place in self._owners[read.index]:
            if not _is_id(place.value):
                continue
            if text_key(place.value) in own:
                # Found by this: a search may return somebody else. Ids are compared as arguments.
                given = self._input_of(place.value)
                if given is not None and "id" not in words_of(place.key):
                    here = reference(name, place.parts)
                    yield Guard(f"{here} == {given}", frozenset({read.index})), None
                continue
            is_known = text_key(place.value) in self._identifying
            here = reference(name, place.parts)
            given = self._input_of(place.value)
            if given is not None and is_known:
                yield Guard(f"{here} == {given}", frozenset({read.index})), None
            other = self._whose(place.value, read.index)
            if other is not None and (is_known or _says_whose(other)):
                there = reference(self._sources.names[other.call], other.parts)
                yield Guard(f"{here} == {there}", frozenset({read.index, other.call})), other.call

    def _whose(self, value: Any, but: int) -> Place | None:
        """Return where another read has this value: as its whole result, or by keys alone."""
        for group in self._sources.groups(value):
            place = group[0]
            if place.is_fixed and place.call != but and place.call in self._reads:
                return place
        return None

    def _of_items(self, subjects: set[int]) -> Iterator[Guard]:
        """Yield facts of the items in lists that a call was given the ids of."""
        for one in self._acted:
            values = _each(one.value)
            if not values or any(information(value) < ENOUGH for value in values):
                continue
            if any(self._is_address(value) for value in values):
                continue
            ways: dict[tuple[str, ...], list[Place]] = {}
            for value in values:
                for group in self._sources.groups(value):
                    place = group[0]
                    if place.collections and len(group) == 1 and place.general[-1] != KEYS:
                        ways.setdefault(place.general, []).append(place)
            inside = {
                general: held
                for general, held in ways.items()
                if all(place.call in subjects for place in held)
                and len({text_key(place.value) for place in held}) == len(set(map(str, values)))
            }
            twice = sum(other.value == one.value for other in self._acted) > 1
            yield from self._of_ways(one, len(values), ways if twice else inside or ways)

    def _is_address(self, value: Any) -> bool:
        """Return whether a read was made with this value: then its whole result is the record."""
        return bool(self._made_with.get(text_key(value)))

    def _of_ways(
        self, one: Acted, count: int, ways: Mapping[tuple[str, ...], list[Place]]
    ) -> Iterator[Guard]:
        for general, held in ways.items():
            last = max(number for number, part in enumerate(general) if part == ANY)
            key = ".".join(general[last + 1 :])
            if not key or len({text_key(place.value) for place in held}) < count:
                continue  # the other items stand elsewhere; membership is checked
            calls = dict.fromkeys(place.call for place in held)
            path = quoted(".".join(general[: last + 1]))
            records = " + ".join(f"every({self._sources.names[call]}, {path})" for call in calls)
            items = [_item(place) for place in held]
            for field, values in _shared_fields(items):
                way = f"({records}, {quoted(key)}, {one.expression}, {quoted(field)})"
                check = _fact_of_all(way, field, values, strict=self._strict)
                if check is not None:
                    yield Guard(check, frozenset(calls))

    def find(self, given: str, value: Any, group: Sequence[Place]) -> Guard:
        """Return that a given value, if it is this one, is still at the places on one way.

        What all records that hold it have in common must be the same.
        """
        place = group[0]
        held = [number for number, part in enumerate(place.general) if part in (ANY, KEYS)]
        ends = place.general[-1:] == (KEYS,)
        cut = held[-1] + (not ends) if held else 0
        path, key = ".".join(place.general[:cut]), ".".join(place.general[cut:])
        facts = {
            field: values[0]
            for field, values in _shared_fields([_item(one) for one in group] if held else [{}])
            if values[0] is not None
            and all(one == values[0] for one in values)
            and fact("it", field.rpartition(".")[2], values[0]) is not None
        }
        parts = [quoted(one) for one in (path, key, facts)]
        way = ", ".join([given, quoted(value), self._sources.names[place.call], *parts])
        return Guard(f"still_found({way})", frozenset({place.call}))

    def _limits(self, subjects: Sequence[TracedCall]) -> Iterator[Guard]:
        """Yield that an amount stays within what the record says there is."""
        amounts = [
            one
            for one in self._acted
            if isinstance(one.value, int | float)
            and not isinstance(one.value, bool)
            and _IDS.isdisjoint(words_of(one.name))
        ]
        for read in subjects:
            name, result = self._sources.names[read.index], self._sources.results[read.index]
            fields = result.items() if isinstance(result, dict) else [("", result)]
            for key, value in fields:
                if isinstance(value, bool) or not isinstance(value, int | float):
                    continue
                if key and (_COUNTS | _AMOUNTS).isdisjoint(words_of(key)):
                    continue
                there = reference(name, (key,)) if key else name
                for one in amounts:
                    if one.value < value and there not in one.expression:
                        yield Guard(f"{there} >= {one.expression}", frozenset({read.index}))

    def _bounds(self, subjects: Sequence[TracedCall]) -> Iterator[Guard]:
        """Yield that a list is still as long as a policy wants it."""
        lists = [
            (read.index, reference(self._sources.names[read.index], parts), str(parts[-1]), value)
            for read in subjects
            for parts, value in _facts_in(self._sources.results[read.index])
            if parts and isinstance(value, list)
        ]
        for read in subjects if lists else ():
            for parts, bound in _facts_in(self._sources.results[read.index]):
                words = set(words_of(str(parts[-1]))) if parts else set()
                number = isinstance(bound, int) and not isinstance(bound, bool)
                if not number or not words & (_LEAST | _MOST):
                    continue
                there = reference(self._sources.names[read.index], parts)
                for call, here, key, value in lists:
                    if len(words) > 1 and words.isdisjoint(words_of(key)):
                        continue
                    sign = ">=" if words & _LEAST else "<="
                    if (len(value) >= bound) if words & _LEAST else (len(value) <= bound):
                        yield Guard(f"len({here}) {sign} {there}", frozenset({call, read.index}))

    def _orders(self, subjects: Sequence[TracedCall]) -> Iterator[Guard]:
        """Yield that dates of different results, or of an argument, stand in the same order."""
        dates: list[tuple[int | None, str, str]] = [
            (None, one.expression, one.value) for one in self._acted if _is_date(one.value)
        ]
        for read in subjects:
            name = self._sources.names[read.index]
            own = [
                (read.index, reference(name, parts), value)
                for parts, value in _facts_in(self._sources.results[read.index])
                if _is_date(value)
            ]
            for _, here, value in own[:MOST_DATES]:
                for other, there, than in dates:
                    if here == there or len(value) != len(than) or value == than:
                        continue
                    sign = "<=" if value < than else ">="
                    calls = frozenset({read.index, *(() if other is None else (other,))})
                    yield Guard(f"{here} {sign} {there}", calls)
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


def _owners(read: TracedCall) -> Iterator[Place]:
    """Yield the fields of a record that may say whose it is."""
    for place in places(read.index, read.result):
        if place.is_fixed and place.parts and _says_whose(place):
            yield place


def forms_of(acted: Sequence[Acted], results: Container[str]) -> Iterator[Guard]:
    """Yield that values taken from results still look as they did: an id, a number above 0.

    results: the names of results. Without this, an error text that a read returns is written.
    """
    for one in acted:
        names = names_in_expression(one.expression)
        if one.is_column or not any(name in results for name in names):
            continue
        if isinstance(one.value, str):
            kind = kind_of(one.value)
            # A name may have one word or two.
            is_name = kind == "word" and one.value[:1].isupper()
            if kind in _FORMS and not is_name:
                yield Guard(f"kind_of({one.expression}) == {quoted(kind)}", frozenset())
            elif one.value:
                yield Guard(f"kind_of({one.expression}) != {quoted('none')}", frozenset())
        elif _is_above(one.value) and not isinstance(one.value, bool):
            yield Guard(f"{one.expression} > 0", frozenset())


_FORMS = frozenset({"e-mail", "date", "time", "number", "code", "word"})


def _is_id(value: Any) -> bool:
    return information(value) >= ENOUGH


def _small_ids(read: TracedCall) -> Iterator[str]:
    for name, value in read.args.items():
        if not isinstance(value, dict | list) and not _is_id(value):
            yield from _things(name, read.name, value)


def _things(name: str, tool: str, value: Any) -> list[str]:
    """Return keys for a value that is too short to be an id by itself: of what it is the number.

    The `id` 7 of `get_order`, and the `order_id` 7 of any tool, are those of order 7.
    """
    if value is None or isinstance(value, bool):
        return []
    words = words_of(name)
    if not (_COUNTS | _AMOUNTS).isdisjoint(words):
        return []
    about = [word for word in words if word not in _IDS]
    return [f"{word}\0{text_key(value)}" for word in about or words_of(tool)]


def _each(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [one for one in value if not isinstance(one, dict | list)]
    return [] if isinstance(value, dict) else [value]


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


def _fact_of_all(way: str, field: str, values: Sequence[Any], *, strict: bool) -> str | None:
    """Return the check that a fact is the same for all items; a count must be above 0 for all."""
    if any(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        if _COUNTS.isdisjoint(words_of(field)) or not all(_is_above(value) for value in values):
            return None
        return f"least_of{way} > 0"
    if any(value != values[0] for value in values):
        return None
    return fact(f"fact_of{way}", field.rpartition(".")[2], values[0], strict=strict)


def _is_above(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


def _is_person(key: str, value: Any) -> bool:
    """Return whether a field says by name whose something is: `customer` is "ana"."""
    words = set(words_of(key))
    says_whose = bool(words & _WHOSE) and not words & (_FACTS | NAMES)
    return says_whose and isinstance(value, str) and _WORDS.fullmatch(value) is not None


def fact(expression: str, key: str, value: Any, *, strict: bool = False) -> str | None:
    """Return the check of a field that a careful person would look at; None for other fields.

    strict: the name of a person is a fact too.
    """
    words = set(words_of(key))
    if isinstance(value, bool):
        return f"{expression} == {quoted(value)}"
    if isinstance(value, int | float):
        if key and words.isdisjoint(_COUNTS):
            return None
        return f"{expression} > 0" if value > 0 else f"{expression} == {quoted(value)}"
    if value is None:
        return f"{expression} == none" if words & (ENDINGS | FREE) else None
    if not isinstance(value, str) or (not strict and _is_person(key, value)):
        return None
    if words & _FACTS or not key:
        few = _WORDS.fullmatch(value)
    else:
        few = None if words & NAMES else _FEW.fullmatch(value)
    return f"{expression} == {quoted(value)}" if few and len(value.split()) <= 3 else None
