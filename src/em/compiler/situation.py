"""Situation: what is known in one recording, or in one round of a loop in it, by expressions."""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from em.compiler.facts import has_parts, pattern_of
from em.compiler.places import Place, is_code, is_number, is_scalar, plain
from em.compiler.term import field_text
from em.runner.expressions.functions import dates_in, numbers_in, sum_of
from em.values.leaves import is_by_id
from em.values.times import is_date

FEWEST_IN_TABLE = 5
"""Entries of a mapping from names to ids."""
MOST_CROSSED = 30
"""Examples whose values are paired with those of others."""
MOST_IN_TEXT = 8
"""Dates, and numbers, of one text that are values of their own."""
MOST_SUMMED = 4
"""Fields of the records in a list that are summed up."""
FEWEST = 4
"""Recordings with a list or a text, before what is read off it is compared with anything."""
LARGEST = 10**12
"""Numbers from which on nothing is computed with them."""
LENGTH = " | length"


class Known(NamedTuple):
    """A record that the routine has under a name, in one situation.

    asked: the values that it was read by, known if `asked_when`. is_context: it was read without
    asking for anything. named: the arguments that each value was given as. is_searched: elements
    are chosen from it, so that what all of them have in common says nothing.
    """

    name: str
    record: Any
    asked: dict[str, Any]
    when: str
    asked_when: str = ""
    is_context: bool = False
    named: Mapping[str, Collection[str]] = {}
    is_searched: bool = False


class Said(NamedTuple):
    """A value that an expression gives in one situation."""

    text: str
    value: Any
    when: str = ""

    @property
    def holder(self) -> str:
        """The name of the record that it is a field of."""
        found = _HOLDER.match(self.text)
        return found[1] if found else ""

    @property
    def words(self) -> set[str]:
        """The words of the field's name."""
        column = _EXTREME.fullmatch(self.text)
        name = column[2] if column else self.text.removesuffix(LENGTH).rpartition(".")[2]
        found = re.split(r"[^a-z]+", name.lower())
        return {word for word in found if len(word) > 2}


_HOLDER = re.compile(r"(?:\w*\()*(\w+)")


class Situation(NamedTuple):
    """What is known in one example, or in one round of a loop in it."""

    inputs: dict[str, Said]
    known: list[Known]
    own: frozenset[str]
    """Names that belong to the round."""
    written: Mapping[str, Said] = {}
    """The numbers that writes take, by their expressions."""
    acted: str = ""
    """The arguments of writes, as they are written down."""

    def is_acted_on(self, text: str) -> bool:
        """Return whether writes take something of the record that a value stands in."""
        holder, dot, _ = text.rpartition(".")
        return bool(dot) and f"{holder}." in self.acted

    @property
    def told(self) -> list[Any]:
        """The values of the inputs."""
        return [one.value for one in self.inputs.values()]


class Pair(NamedTuple):
    """How two values related in one situation."""

    one: Any
    other: Any
    when: tuple[str, ...]


def fields(known: Known, *, nested: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the values of a record that stand in no list, by their expressions."""
    for place, value in () if is_table(known.record) else plain(known.record):
        if nested or len(place) <= 1:
            yield field_text(known.name, tuple(map(str, place))), value


def said_in(situation: Situation) -> list[Said]:
    """Return what inputs and records say in a situation."""
    found = [*situation.inputs.values()]
    for known in situation.known:
        found += [Said(text, value, known.when) for text, value in fields(known)]
    return found


def read_off(situations: Sequence[Situation]) -> list[list[Said]]:
    """Return by situation what inputs and records say, and what is read off lists and texts.

    How long a list is and what it sums up to, its first and last date, the dates and numbers of a
    text in their order, and what writes compute are values like any other: what holds of a field
    holds of them. Each situation must have them, but for those of a list that may be empty; and
    of few situations many such values are in order by chance.
    """
    if len(situations) < FEWEST:
        return [*map(said_in, situations)]
    derived = [{one.text: one for one in _derived(situation)} for situation in situations]
    counts = Counter(text for one in derived for text in one)
    found = []
    for situation, own in zip(situations, derived, strict=True):
        told = said_in(situation)
        known = {one.text for one in told}
        told += [
            one._replace(when=" and ".join(filter(None, (one.when, _is_filled(text)))))
            for text, one in own.items()
            if text not in known
            if counts[text] == len(situations) or (_is_filled(text) and counts[text] >= FEWEST)
        ]
        found.append(told)
    return found


def _is_filled(text: str) -> str:
    """Return the condition that a list is not empty whose dates are compared; "" for others."""
    found = _EXTREME.fullmatch(text)
    return f"({found[1]}{LENGTH}) > 0" if found else ""


_EXTREME = re.compile(r'\(every\((.*), "([^"]*)"\) \| (?:min|max)\)')


def _derived(situation: Situation) -> Iterator[Said]:
    """Yield what is read off the lists and texts inside records, and what writes compute."""
    yield from situation.written.values()
    for known in situation.known:
        for text, value in (*_in_texts(known), *_of_lists(known)):
            yield Said(text, value, known.when)


def _in_texts(known: Known) -> Iterator[tuple[str, Any]]:
    """Yield the dates and numbers of texts, in their order; of a list its first and last text."""
    ends = [
        (f"{field_text(known.name, tuple(map(str, place)))}[{number}]", items[number])
        for place, items in _lists(known.record)
        for number in ((0, -1) if items and not known.is_searched else ())
    ]
    for text, value in (*fields(known), *ends):
        if isinstance(value, str) and has_parts(value):
            for name, parts in (("dates_in", dates_in(value)), ("numbers_in", numbers_in(value))):
                for number, part in enumerate(parts[:MOST_IN_TEXT]):
                    yield f"{name}({text})[{number}]", part


def _of_lists(known: Known) -> Iterator[tuple[str, Any]]:
    """Yield lists of scalars, and of all lists how long they are, their sums, and their dates."""
    for place, items in _lists(known.record) if not known.is_searched else ():
        text = field_text(known.name, tuple(map(str, place)))
        yield f"{text}{LENGTH}", len(items)
        if items and all(map(is_scalar, items)):
            yield text, items
        for names in _columns(items):
            args = "".join(f", {json.dumps(name)}" for name in names)
            yield f"sum_of({text}{args})", sum_of(items, *names)
        for name in items[0] if items and all(isinstance(one, dict) for one in items) else ():
            column = [one.get(name) for one in items]
            is_each = all(map(is_date, column)) or all(map(is_number, column))
            if is_each and name.isidentifier():
                yield f'(every({text}, "{name}") | min)', min(column)
                yield f'(every({text}, "{name}") | max)', max(column)
            elif all(isinstance(one, str) for one in column) and name.isidentifier():
                yield f'every({text}, "{name}")', column


def _lists(value: Any, place: Place = ()) -> Iterator[tuple[Place, list[Any]]]:
    """Yield the lists of a record that stand in no other list."""
    if isinstance(value, list):
        yield place, value
    elif isinstance(value, dict) and not is_by_id(value):
        for name, one in value.items():
            if not is_scalar(one):
                yield from _lists(one, (*place, name))


def can_be_computed_with(value: Any) -> bool:
    """Return whether a value is a number of a size at which sums and products are exact enough."""
    return is_number(value) and abs(value) < LARGEST


def _columns(items: Sequence[Any]) -> Iterator[tuple[str, ...]]:
    """Yield the fields that are numbers in all records of a list, single ones and pairs of them."""
    if items and all(map(can_be_computed_with, items)):
        yield ()
    elif items and all(isinstance(one, dict) for one in items):
        names = [
            name for name in items[0] if all(can_be_computed_with(one.get(name)) for one in items)
        ]
        yield from ((name,) for name in names[:MOST_SUMMED])
        yield from combinations(names[:MOST_SUMMED], 2)


def surprise_of(pairs: Sequence[Pair], holds: Any) -> float:
    """Return the bits that it takes for chance to let a relation hold in all pairs."""
    rows = pairs[:MOST_CROSSED]
    crossed = [
        holds(one.one, other.other) for n, one in enumerate(rows) for m, other in enumerate(rows)
        if n != m
    ]  # fmt: skip
    share = sum(crossed) / len(crossed) if crossed else 1.0
    return -math.log2(max(share, 1e-9)) * len(pairs)


def is_table(record: Any) -> bool:
    """Return whether a mapping has an id for each of many names: none of these is a field."""
    if not isinstance(record, dict) or len(record) < FEWEST_IN_TABLE:
        return False
    ids = [one for one in record.values() if is_code(one)]
    return len(ids) == len(record) and bool(pattern_of(ids))


def bare(value: Any) -> str:
    """Return a value as it is compared: as a text, in lower case."""
    return " ".join(str(value).lower().split())


def equal_text(text: str, other_text: str, pairs: Sequence[Pair]) -> str:
    """Return the check that two values are equal, in any case if need be; "" if they are not."""
    if all(pair.one == pair.other for pair in pairs):
        return f"{text} == {other_text}"
    if all(str(pair.one).lower() == str(pair.other).lower() for pair in pairs):
        forms = " | string | lower"
        return f"{text}{forms} == {other_text}{forms}"
    return ""


def is_nested(text: str) -> bool:
    """Return whether an expression is about a field of a record inside another one."""
    return len(re.findall(r"[.\[]", text)) > 1


def are_named_alike(text: str, other_text: str) -> bool:
    """Return whether two fields have one name, or one names the record of the other with it."""
    names = [one.rpartition(".")[2] for one in (text, other_text)]
    # The number tells a record's name from that of an input.
    whole = {re.sub(r"(_\d+)?\.", "_", one) for one in (text, other_text)}
    return names[0] == names[1] or not whole.isdisjoint(names)
