"""Symptoms: what a result, or a request in words, says about the state of things.

A symptom is a name and a plain value: `printer: status` is `jammed`. Texts of lines such as
`Airplane Mode: ON` are read like records. Numbers inside of texts don't count. Numbers of a record
are compared with each other and with zero, dates with each other, because a single number says
little: `printer: used vs limit` is `>`. A list says what it has: `bills: *.status has Overdue` is
true.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from em.values.canonical import Json
from em.values.leaves import is_by_id

Plain = str | bool | None
SAID = "request"
"""What symptoms of the request begin with."""
MISSING = "not shown"
"""Stands for a symptom that a result could have, and has not."""
ANYTHING = "…"
"""Stands for every text of a symptom whose text does not matter."""
MOST_NUMBERS = 8
"""Numbers or dates of one record that are compared with each other."""
MOST_SYMPTOMS = 500
"""Symptoms of one result; a larger result is not a description of a state."""
LONGEST_KEY, LONGEST_TEXT, LONGEST_MEMBER = 60, 300, 30
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*(?!\w)")
_CODE = re.compile(r"[^\s,;]*\d[^\s,;]*")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LINE = re.compile(r"([^\s:.!?][^:.!?\n]*): +(\S.*)")
_PIECES = re.compile(r"(?<=[.!?;])\s+|,\s+|\n+")


class Symptoms:
    """All symptoms of one result or request.

    plain: texts, flags and comparisons. lists: what the lists have.
    """

    def __init__(self) -> None:
        self.plain: dict[str, Plain] = {}
        self.lists: dict[str, frozenset[Plain]] = {}

    def update(self, other: "Symptoms") -> None:
        """Take the symptoms of a newer result."""
        self.plain |= other.plain
        self.lists |= other.lists


def of_result(name: str, result: Any) -> Symptoms:
    """Return what the result of a read says, each symptom under the name of the read."""
    found = Symptoms()
    members: dict[str, set[Plain]] = {}
    numbers: dict[str, float] = {}
    dates: dict[str, str] = {}
    for way, value, is_member in itertools.islice(_leaves(result, ""), MOST_SYMPTOMS):
        place = f"{name}: {way}" if way else name
        number = _number(value)
        if is_member:
            held = members.setdefault(place, set())
            if value is not _EMPTY and number is None:
                held.add(_shape(value))
        elif number is not None:
            numbers[place] = number
        else:
            found.plain[place] = _shape(value)
            if isinstance(value, str) and _DATE.match(value):
                dates[place] = value
    found.lists = {place: frozenset(held) for place, held in members.items()}
    found.plain |= {f"{place} vs 0": _sign(one, 0) for place, one in numbers.items()}
    found.plain |= dict(_comparisons(numbers)) | dict(_comparisons(dates))
    return found


@lru_cache(maxsize=1_000)
def of_words(text: str) -> tuple[Symptoms, Json]:
    """Return what a request says, and the values that stand in it, by name.

    A part such as `phone: 555-1234` is a symptom `phone` with a value. Of any other part the words
    are a symptom, and its numbers and ids are values. Don't change what is returned.
    """
    found, values = Symptoms(), {}
    for piece in filter(None, (one.strip(" .!?;") for one in _PIECES.split(text))):
        named = _LINE.fullmatch(piece)
        if named and len(named[1]) <= LONGEST_KEY:
            name, value = f"{SAID}: {named[1].strip().lower()}", named[2].strip()
            found.plain[name], values[name] = _shape(value), value
            continue
        name = f"{SAID}: {_CODE.sub('#', ' '.join(piece.split()).lower())}"
        found.plain[name] = True
        for number, match in enumerate(_CODE.finditer(piece)):
            value = match[0].strip("'\"().")
            found.plain[f"{name} #{number}"], values[f"{name} #{number}"] = _shape(value), value
    return found, values


def state_of(
    symptoms: Symptoms, lists: Mapping[str, Sequence[Plain]], expected: Iterable[str] = ()
) -> dict[str, Plain]:
    """Return symptoms as plain values: for lists, whether they have each of the known members.

    expected: names of symptoms that are missing if they are not there.
    """
    state = {name: value for name, value in symptoms.plain.items() if name not in lists}
    for name, members in lists.items():
        if name in symptoms.lists or name in symptoms.plain:
            held = held_by(symptoms, name)
            state |= {member_name(name, one): one in held for one in members}
    for name in expected:
        state.setdefault(name, MISSING)
    return state


def field_of(name: str) -> str:
    """Return the name of a symptom without the look that shows it."""
    return name.partition(": ")[2]


def source_of(name: str) -> str:
    """Return which look shows a symptom; SAID for the request."""
    return name.partition(": ")[0]


def held_by(symptoms: Symptoms, name: str) -> frozenset[Plain]:
    """Return what a list has; a text that is a list elsewhere has itself."""
    found = symptoms.lists.get(name)
    return frozenset({symptoms.plain[name]}) if found is None else found


def member_name(name: str, member: Plain) -> str:
    """Return the name of the symptom that a list has something."""
    return f"{name} has {member}"


_EMPTY = object()


def _leaves(value: Any, way: str, *, is_member: bool = False) -> Iterator[tuple[str, Any, bool]]:
    """Yield every value with the keys that lead to it, and whether it is one of a list.

    `*` stands for the items of a list.
    """
    if isinstance(value, str):
        yield from _parts_of_text(value, way, is_member=is_member)
    elif isinstance(value, dict) and not is_by_id(value):
        for key, item in value.items():
            yield from _leaves(item, _joined(way, str(key)), is_member=is_member)
    elif isinstance(value, list | dict):
        inner = _joined(way, "*")
        yield inner, _EMPTY, True
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item, inner, is_member=True)
    else:
        yield way, value, is_member


def _parts_of_text(text: str, way: str, *, is_member: bool) -> Iterator[tuple[str, Any, bool]]:
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    for line in lines:
        named = _LINE.fullmatch(line)
        if named and len(named[1]) <= LONGEST_KEY:
            key, said = _joined(way, named[1].strip()), named[2].rstrip(".")
            members = said.split(", ")
            is_list = len(members) > 1 and all(len(one) <= LONGEST_MEMBER for one in members)
            for one in members if is_list else [said]:
                yield key, one, is_list or is_member
        elif len(lines) > 1:
            yield _joined(way, "*"), line, True
        else:
            yield way, line, is_member


def _joined(way: str, key: str) -> str:
    return f"{way}.{key}" if way else key


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None or value is _EMPTY:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _shape(value: Any) -> Plain:
    """Return a value without the numbers in it."""
    if value is None or isinstance(value, bool):
        return value
    text = _NUMBER.sub("#", " ".join(str(value).split()))
    return text if len(text) <= LONGEST_TEXT else ANYTHING


def _comparisons(values: Mapping[str, Any]) -> Iterator[tuple[str, Plain]]:
    """Yield how the numbers, or the dates, of one record compare."""
    records: dict[str, list[str]] = {}
    for place in values:
        records.setdefault(place.rpartition(".")[0], []).append(place)
    for places in records.values():
        if len(places) <= MOST_NUMBERS:
            for one, other in itertools.combinations(sorted(places), 2):
                last = other.rpartition(": ")[2].rpartition(".")[2]
                yield f"{one} vs {last}", _sign(values[one], values[other])


def _sign(one: Any, other: Any) -> str:
    return "=" if one == other else "<" if one < other else ">"
