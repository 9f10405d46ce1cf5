"""Record facts: what all recorded results of one read had in common, and must have again.

Whatever all traces saw before an effect is evidence. A record that reports an error, says that it
is another one, has a field, a flag, a state, a word or a number that none of the recorded ones had,
is empty where they were not, or does not allow as much as they did, is not acted on. The same holds
in every form of a routine.
"""

import itertools
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.calls import words_of
from em.compiler.evidence import ENOUGH, information
from em.compiler.guards import STATUSES, describes, fact
from em.compiler.sources import is_collection, quoted, reference
from em.runner.expressions.functions import (
    ANY,
    ANY_TEXT,
    KEYS,
    NUMBER,
    error_of,
    every,
    field_kind,
    items_of,
    kind_of,
    objection,
    parsed,
    shape_of,
    size_of,
    turns_of,
)
from em.values.canonical import Json, identical

MOST_WORDS = 40
"""Different members of a list that are still a few words, and no data."""
NAME_LIKE = r"[^\W_][\w.'’@-]*(?: [\w.'’@-]+){0,4}"
"""What may be another one each time behind the label of a line."""
DEEPEST = 4
"""Mappings within each other whose facts are looked at."""
FEWEST_SHARED = 1 / 2
"""Share of the keys that all results have, if keys are names of fields and no data."""
FEWEST_SAME = 3
"""How many results must have the same value before it is taken for a rule."""
MANY_TIMES = 3
"""How often each word of a list stood there, if it is one of a few."""
FEWEST_ORDERED = 3
"""Different pairs of values that show that one is never above the other."""
MOST_TURNS = 400
"""Words side by side in recorded texts up to which another one is asked about. A longer text is a
document, and each has its own words."""
MOST_FIELDS = 60
"""Fields of one record whose kinds are compared."""
MOST_MEMBERS = 2_000
"""Members of lists that are looked at, in all results of one read."""
MOST_COMPARED = 12
"""Numbers and dates of one mapping that are compared with each other."""
FEWEST_NUMBERS = 5
"""Different pairs of numbers that show that one field is never above another: each is so by chance
half of the time."""
BOUNDS = frozenset("limit max maximum most cap capacity quota ceiling".split())
"""Words in the names of numbers that others stay below."""
LEVELS = frozenset("type kind tier level class mode category priority stage phase severity".split())
"""Words in the names of numbers that are one of a few."""
_PLAIN = frozenset({"e-mail", "date", "time", "number", "code", "word"})

Way = tuple[str, ...]


class Shown(NamedTuple):
    """The result of a read, and by expression the values that it was made with."""

    given: Mapping[str, Any]
    result: Any


def record_facts(
    text: str,
    seen: Sequence[Shown],
    acted: Mapping[str, Sequence[Any]] | None = None,
    *,
    used: str = "",
    is_passed_on: bool = False,
) -> Iterator[str]:
    """Yield what was so of all results of a read. text: the expression of the result.

    acted: by expression, the values that the effect was given each time. used: the expressions that
    the effect is made with; of a list that something is chosen from, other members don't matter.
    is_passed_on: another call gets it, so that a text is data, and another one each time.
    """
    results = [one.result for one in seen]
    if not results:
        return
    if all(isinstance(one, str) and not isinstance(parsed(one), str) for one in results):
        meant = [one._replace(result=parsed(one.result)) for one in seen]
        yield from record_facts(f"parsed({text})", meant, acted, used=used)
        return
    if all(error_of(one) is None for one in results):
        yield f"error_of({text}) == none"
    yield from _sizes(text, results)
    if any(one is None for one in results):
        return
    shapes = {shape_of(one) for one in results}
    if len(shapes) == 1:
        yield f"shape_of({text}) == {quoted(shapes.pop())}"
    yield from _same_as_given(text, seen)
    yield from _keys(text, results)
    yield from states(text, results)
    for way, checks in _orders(results, acted or {}).items():
        yield from (f"{reference(text, way)} {check}" for check in checks)
    yield from _constants(text, results)
    yield from _lists(text, results)
    known = known_fields(text, results, used)
    if known:
        yield f"strange_fields({text}, {quoted(known)}) == none"
    yield from relations(text, results)
    if not mentions(used, text) and not is_passed_on:
        yield from text_facts(text, seen)


def _lists(text: str, results: Sequence[Any]) -> Iterator[str]:
    """Yield that a list of words has no other ones, if those that it had were few."""
    for way in _ways_to_lists(results):
        lists = [value_at(one, way) for one in results]
        if not all(isinstance(one, list) and one for one in lists):
            continue
        if not all(isinstance(value, str) for one in lists for value in one):
            continue
        known = distinct(value for one in lists for value in one)
        if len(known) > MOST_WORDS or any(kind_of(value) != "word" for value in known):
            continue  # ids are data, though the same ones may come again
        always = [v for v in known if all(any(identical(v, o) for o in one) for one in lists)]
        plain = all(fact("x", _last(way), value) or is_code(_last(way), value) for value in known)
        is_same = len(always) == len(known) and (plain or len(lists) >= FEWEST_SAME)
        if is_same or len(known) <= sum(map(len, lists)) / MANY_TIMES:
            parts = f"{quoted(known)}, {quoted(always)}"
            yield f"strange_items({reference(text, way)}, {parts}) == none"


def _ways_to_lists(results: Sequence[Any]) -> list[Way]:
    """Return the ways to lists that keys alone lead to, in all results."""
    found = [dict.fromkeys(_lists_in(one)) for one in results]
    return [way for way in found[0] if all(way in own for own in found)]


def _lists_in(result: Any, parts: Way = ()) -> Iterator[Way]:
    if isinstance(result, list):
        yield parts
    elif isinstance(result, dict) and not is_collection(result) and len(parts) < DEEPEST:
        for key, value in result.items():
            if is_name(key) and not (isinstance(value, dict) and describes(key)):
                yield from _lists_in(value, (*parts, key))


def known_fields(text: str, results: Sequence[Any], used: str = "") -> dict[str, Any]:
    """Return what `strange_fields` takes: by path, what all results had there."""
    return _Fields(text, used).of(results)


class _Fields:
    """The kinds of all fields of a record, and what the members of its lists had in common.

    text, used: see `record_facts`.
    """

    def __init__(self, text: str, used: str) -> None:
        self._text, self._used = text, used
        self._known: dict[str, Any] = {}

    def of(self, results: Sequence[Any]) -> dict[str, Any]:
        """Return by path what `strange_fields` takes."""
        self._walk((), results)
        return dict(itertools.islice(self._known.items(), MOST_FIELDS))

    def _walk(self, way: Way, values: Sequence[Any]) -> None:
        """Take all values on a way; None for one that is not there."""
        held = [one for one in values if one is not None]
        maps = [one for one in held if isinstance(one, dict) and not is_collection(one)]
        if maps and len(maps) == len(held):
            self._mapping(way, maps)
        elif held and all(isinstance(one, list) or is_collection(one) for one in held):
            self._list(way, held)
        elif held and way:
            self._value(way, values)

    def _mapping(self, way: Way, maps: Sequence[Json]) -> None:
        if len(way) > DEEPEST:
            return
        names = list(dict.fromkeys(key for one in maps for key in one))
        if ANY in way:
            self._known_names(way, names, maps)
        for key in filter(is_name, names):
            values = [one.get(key) for one in maps]
            if not (describes(key) and any(isinstance(one, dict) for one in values)):
                self._walk((*way, key), values)

    def _known_names(self, way: Way, names: Sequence[Any], maps: Sequence[Json]) -> None:
        """Take the names of the fields of members, if they are names and no data."""
        shared = [key for key in names if all(key in one for one in maps)]
        if shared and len(shared) >= len(names) * FEWEST_SHARED:
            filled = [str(key) for key in names if any(size_of(one.get(key)) for one in maps)]
            self._known[".".join((*way, KEYS))] = filled

    def _list(self, way: Way, held: Sequence[Any]) -> None:
        if way and all(isinstance(one, list) for one in held):
            self._known[".".join(way)] = "list"
        if not self._is_chosen_from(way):
            members = [one for own in held for one in items_of(own)]
            self._walk((*way, ANY), members[:MOST_MEMBERS])

    def _is_chosen_from(self, way: Way) -> bool:
        if not mentions(self._used, self._text):
            return False
        names = [part for part in way if part != ANY]
        return not names or mentions(self._used, names[-1])

    def _value(self, way: Way, values: Sequence[Any]) -> None:
        """Take the kind of a field; of members also the words and flags that they had."""
        is_member = ANY in way
        allowed = allowed_values(_last(way), values)
        if not is_member and allowed and not any(map(is_number, allowed)):
            return  # `states` compares it
        flags = bool(allowed) and all(isinstance(one, bool) for one in allowed)
        if is_member and allowed and (flags or len(values) >= FEWEST_SAME):
            self._known[".".join(way)] = allowed
            return
        kinds = {field_kind(one) for one in values}
        texts = {one for one in values if isinstance(one, str)}
        own = {kind for kind in kinds if kind not in _OTHER_KINDS}
        few = is_member and len(values) < FEWEST_SAME
        if len(own) > 1 or (own and few and own.isdisjoint(_DATED)):
            kinds = (kinds & _OTHER_KINDS) | {ANY_TEXT if any(map(objection, texts)) else "text"}
        if kinds != {"nothing"}:
            self._known[".".join(way)] = " or ".join(sorted(kinds))


_OTHER_KINDS = frozenset({"nothing", "boolean", "number", "list", "mapping"})
_DATED = frozenset({"date", "time", "e-mail"})


def relations(text: str, results: Sequence[Any]) -> Iterator[str]:
    """Yield which fields of one mapping were always the same, and which were never the larger."""
    by_holder: dict[Way, list[Way]] = {}
    for way in fixed_ways(results):
        if way and all(every(one, ".".join(way)) for one in results):
            by_holder.setdefault(way[:-1], []).append(way)
    for ways in by_holder.values():
        columns = {way: [value_at(one, way) for one in results] for way in ways}
        same = [pair for pair in itertools.combinations(ways, 2) if _same(*map(columns.get, pair))]
        yield from (f"{reference(text, b)} == {reference(text, a)}" for a, b in same)
        others = [way for way in ways if not any(way == later for _, later in same)]
        yield from _ordered(text, {way: columns[way] for way in others})


def _same(first: Any, second: Any) -> bool:
    """Return whether two fields were the same each time, and not by chance."""
    if not all(identical(a, b) and size_of(a) for a, b in zip(first, second, strict=True)):
        return False
    if any(isinstance(one, bool) for one in first):
        return False
    return len(distinct(first)) >= FEWEST_SAME or min(map(information, first)) >= ENOUGH


def _ordered(text: str, columns: Mapping[Way, Sequence[Any]]) -> Iterator[str]:
    """Yield the orders of dates and of numbers in a mapping, without those that follow."""
    comparable = {
        way: values
        for way, values in columns.items()
        if all(is_number(one) or kind_of(one) in ("date", "time") for one in values)
    }
    ways = [*comparable][:MOST_COMPARED]
    below = {
        (one, other)
        for one, other in itertools.permutations(ways, 2)
        if _is_below(one, comparable[one], other, comparable[other])
    }
    for one, other in sorted(below):
        if not any((one, way) in below and (way, other) in below for way in ways):
            yield f"{reference(text, one)} <= {reference(text, other)}"


def _is_below(one: Way, first: Sequence[Any], other: Way, second: Sequence[Any]) -> bool:
    pairs = list(zip(first, second, strict=True))
    if not all(_comparable(a, b) and a <= b for a, b in pairs):
        return False
    if all(a == b for a, b in pairs):
        return False
    if not is_number(first[0]):
        return True
    is_bound = bool(BOUNDS & {*words_of(_last(other))}) and not BOUNDS & {*words_of(_last(one))}
    return is_bound or len(distinct(pairs)) >= FEWEST_NUMBERS


def mentions(expressions: str, name: str) -> bool:
    """Return whether a name or an expression stands in others."""
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", expressions) is not None


def is_name(key: Any) -> bool:
    """Return whether a key of a mapping can be a part of a path."""
    return isinstance(key, str) and "." not in key and key not in ("", ANY, KEYS)


def _sizes(text: str, results: Sequence[Any]) -> Iterator[str]:
    """Yield that a result is empty, or is not, as all recorded ones were."""
    if all(isinstance(one, str) for one in results):
        if len({bool(one.strip()) for one in results}) == 1:
            yield f'{text} {"!=" if results[0].strip() else "=="} ""'
    elif all(one is None or isinstance(one, str | list | dict) for one in results):
        sizes = {size_of(one) > 0 for one in results}
        # A record that has something under a key is not empty.
        is_record = all(isinstance(one, dict) and not is_collection(one) for one in results)
        if len(sizes) == 1 and not (is_record and sizes == {True}):
            yield f"size_of({text}) {'> 0' if sizes.pop() else '== 0'}"


def states(text: str, results: Sequence[Any]) -> Iterator[str]:
    """Yield the flags and states that all results had which had them."""
    for way in fixed_ways(results):
        held = [every(one, ".".join(way)) if way else [one] for one in results]
        allowed = allowed_values(_last(way), [one[0] for one in held if one])
        if allowed and all(held):
            yield f"{reference(text, way)} in {quoted(allowed)}"
        elif allowed:
            may = [[], *([one] for one in allowed)]
            yield f"every({text}, {quoted('.'.join(way))}) in {quoted(may)}"


def _constants(text: str, results: Sequence[Any]) -> Iterator[str]:
    """Yield the texts and numbers that were the same in enough results, and the signs of others."""
    for way in fixed_ways(results):
        values = [value_at(one, way) for one in results]
        is_text = all(isinstance(one, str) and one.strip() for one in values)
        numeric = all(map(is_number, values))
        is_same = len(distinct(values)) == 1 and len(values) >= FEWEST_SAME
        if is_same and (numeric or (is_text and way)) and not allowed_values(_last(way), values):
            yield f"{reference(text, way)} == {quoted(values[0])}"
        elif numeric and sign_of(values):
            yield f"{reference(text, way)} {sign_of(values)}"


def _last(way: Way) -> str:
    return way[-1] if way else ""


def text_facts(text: str, seen: Sequence[Shown]) -> Iterator[str]:
    """Yield that a text says nothing that no recorded one said, and leaves nothing out."""
    if not all(isinstance(one.result, str) and one.result.strip() for one in seen):
        return
    given = dict.fromkeys(key for one in seen for key in one.given)
    values = [[one.given.get(key) for key in given] for one in seen]
    texts = [one.result for one in seen]
    if allowed_values("", texts):
        return  # it is a state
    kinds = {kind_of(one) for one in texts}
    if kinds <= _PLAIN - {"word"}:
        if len(kinds) == 1:
            yield f"kind_of({text}) == {quoted(kinds.pop())}"
        return  # ids are another each time
    free = _free_labels(texts)
    turns = [turns_of(own, held, free) for own, held in zip(texts, values, strict=True)]
    numbers = [
        [word for turn in own for word in turn.split() if word[0].isdigit()] for own in turns
    ]
    if any(own != numbers[0] for own in numbers):
        free = [*free, NUMBER]
        turns = [turns_of(own, held, free) for own, held in zip(texts, values, strict=True)]
    known = list(dict.fromkeys(turn for own in turns for turn in own))
    always = [turn for turn in known if all(turn in own for own in turns)]
    if len(known) <= MOST_TURNS:
        parts = f"[{', '.join(given)}], {quoted(free)}, {quoted(known)}, {quoted(always)}"
        yield f"strange_text({text}, {parts}) == none"


def _free_labels(texts: Sequence[str]) -> list[str]:
    """Return the labels of lines, as `owner` of `Owner: Ana`, that say something else each time."""
    held: dict[str, list[str]] = {}
    for text in texts:
        for line in text.lower().split("\n"):
            label, colon, value = line.partition(":")
            if colon and re.fullmatch(NAME_LIKE, value.strip()):
                held.setdefault(label.strip(), []).append(value.strip())
    return [
        label
        for label, values in held.items()
        if len(values) == len({*values}) == len(texts) >= FEWEST_ORDERED
    ]


def _orders(results: Sequence[Any], acted: Mapping[str, Sequence[Any]]) -> dict[Way, list[str]]:
    """Return which numbers and dates of a record were never below, or above, what was acted with.

    An amount stays within the balance, and a day before the end. Once or twice may be chance.
    """
    found: dict[Way, list[str]] = {}
    for way in fixed_ways(results):
        held = [value_at(one, way) for one in results]
        for expression, values in acted.items():
            pairs = list(zip(held, values, strict=True))
            if len(distinct(pairs)) < FEWEST_ORDERED or not all(_comparable(*one) for one in pairs):
                continue
            if all(there == here for there, here in pairs):
                continue  # it is the same value, or explained by it
            for sign, holds in ((">=", operator.ge), ("<=", operator.le)):
                if all(holds(there, here) for there, here in pairs):
                    found.setdefault(way, []).append(f"{sign} {expression}")
    return found


def _comparable(one: Any, other: Any) -> bool:
    """Return whether two values are numbers, or days or times that are written alike."""
    if is_number(one) and is_number(other):
        return True
    both = isinstance(one, str) and isinstance(other, str) and len(one) == len(other)
    return both and kind_of(one) == kind_of(other) and kind_of(one) in ("date", "time")


def _same_as_given(text: str, seen: Sequence[Shown]) -> Iterator[str]:
    """Yield that a record names what it was asked for by, as all recorded ones did."""
    for expression, first in seen[0].given.items():
        values = [one.given.get(expression) for one in seen]
        if isinstance(first, dict | list | bool) or first is None:
            continue
        if len(distinct(values)) == 1 and information(first) < ENOUGH:
            continue
        for way in filter(None, fixed_ways([one.result for one in seen])):
            held = [value_at(one.result, way) for one in seen]
            if all(identical(a, b) for a, b in zip(held, values, strict=True)):
                yield f"{reference(text, way)} == {expression}"


def _keys(text: str, results: Sequence[Any], way: Way = ()) -> Iterator[str]:
    """Yield that a record has no other fields, and has those that all recorded ones had."""
    maps = [one for one in results if isinstance(one, dict) and not is_collection(one)]
    if not maps or len(maps) < len(results) or len(way) >= DEEPEST:
        return
    known = list(dict.fromkeys(str(key) for one in maps for key in one))
    shared = [key for key in known if all(key in one for one in maps)]
    if not shared or len(shared) < len(known) * FEWEST_SHARED:
        return
    # What was always empty is as new as what was not there.
    used = [key for key in known if any(size_of(one.get(key)) for one in maps)]
    yield f"strange_keys({', '.join([reference(text, way), *map(quoted, used)])}) == none"
    full = [key for key in shared if all(size_of(one[key]) for one in maps)]
    if full:
        yield f"empty_keys({', '.join([reference(text, way), *map(quoted, full)])}) == none"
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
    if not values or not all(_is_state(field, value) for value in values):
        return []
    found = distinct(values)
    few = len(found) <= len(values) / 2 and not isinstance(found[0], bool)
    return found if len(found) == 1 or few else []


def _is_state(field: str, value: Any) -> bool:
    if is_number(value):
        return bool(LEVELS & {*words_of(field)})
    return is_code(field, value) or (
        isinstance(value, bool | str) and fact("x", field, value) is not None
    )


def is_code(field: str, value: Any) -> bool:
    """Return whether a value is one of a few codes, such as `EUR`, and no name of one thing."""
    is_short = isinstance(value, str) and re.fullmatch(r"[A-Z]{2,5}", value) is not None
    return is_short and not describes(field)


def fields_of_kinds(records: Sequence[Any]) -> set[str]:
    """Return the fields with a text that belong to a kind of record, as `brand` to a card.

    Another field that all records have tells the kind: it has few values, and no other kind has the
    field. A state tells none: what only cancelled ones have speaks against them.
    """
    maps = [one for one in records if isinstance(one, dict)]
    shared = set.intersection(*({*one} for one in maps)) if maps else set()
    kinds = [
        field
        for field in shared
        if STATUSES.isdisjoint(words_of(str(field)))
        and len(distinct(one[field] for one in maps)) <= len(maps) / 2
    ]
    found: set[str] = set()
    for field in {key for one in maps for key in one} - shared:
        having = [one for one in maps if field in one]
        others = [one for one in maps if field not in one]
        if len(others) >= FEWEST_SAME and all(isinstance(one[field], str) for one in having):
            for kind in kinds:
                own, other = ({quoted(one[kind]) for one in some} for some in (having, others))
                if len(own) == 1 and own.isdisjoint(other):
                    found.add(str(field))
    return found


def fixed_ways(results: Sequence[Any]) -> list[Way]:
    """Return the ways to the values of results that keys alone lead to."""
    return list(dict.fromkeys(way for one in results for way in _fixed(one)))


def _fixed(result: Any, parts: Way = ()) -> Iterator[Way]:
    if isinstance(result, dict) and not is_collection(result):
        for key, value in result.items():
            is_fact = is_name(key) and not (isinstance(value, dict) and describes(key))
            if len(parts) < DEEPEST and is_fact:
                yield from _fixed(value, (*parts, key))
    elif not isinstance(result, list | dict):
        yield parts


def value_at(result: Any, way: Sequence[str]) -> Any:
    """Return the value of a result on a way; None if there is none."""
    found = every(result, ".".join(way)) if way else [result]
    return found[0] if found else None


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return the different ones of some values."""
    return list({quoted(value): value for value in values}.values())


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and no flag."""
    return isinstance(value, int | float) and not isinstance(value, bool)
