"""Facts: what all recordings had in common in what they read, wrote and were given, as JSON Schema.

A field is a state rather than a content if it is nothing or something, yes or no, or one of few
words that chance does not explain. States must be as they were; contents only keep their type.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Sequence
from difflib import SequenceMatcher
from itertools import chain
from typing import Any

from em.compiler.condition import Path, number_of
from em.compiler.evidence import ENOUGH_TO_ACT
from em.compiler.example import Example, Read
from em.compiler.places import (
    ELEMENT,
    Key,
    Place,
    is_code,
    is_number,
    is_scalar,
    is_word,
    key_of,
    last_name,
    lists_in,
    plain,
)
from em.values import json_schema
from em.values.canonical import Json, same
from em.values.leaves import is_by_id
from em.values.times import is_clock, is_date

ENOUGH_RECORDS = 8
"""Records that must agree on a number before it is expected."""
ENOUGH_LISTS, ENOUGH_WORDS = 3, 6
"""Lists whose elements must all have a flag, or a word, before others must have it."""
MOST_TOKENS = 400
"""Words and signs of a text that is a state."""
ENOUGH_SHARED = 0.5
"""The share of its words from which on a field of a record has a wording."""
MOST_WORDS = 4
"""Words of an enumeration of states."""
MOST_SIGNS = 2
"""Kinds of signs that codes of one look begin or end with."""
MOST_OPTIONS, FEWEST_CHOSEN = 8, 5
"""Values of an input that is chosen from few, and recordings that show two of them."""
ANOTHER_SIZE = 10
"""So many times what was seen, or that part of it, is a number of another size: another unit, or a
slip. A person who says the number means it within that."""
MOST_STATES = 8
"""Values from which on a field holds contents rather than states."""
MOST_NAMED = 12
"""Fields of a free record that its description names."""


def type_of(values: Sequence[Any]) -> Any:
    """Return the JSON type of values, or the list of their types."""
    found: list[str] = []
    for value in values:
        name = _TYPES.get(type(value), "object")
        if name not in found:
            found.append(name)
    if "integer" in found and "number" in found:
        found.remove("integer")
    return found[0] if len(found) == 1 else found


_TYPES: dict[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def distinct(values: Sequence[Any]) -> dict[Key, Any]:
    """Return different values by their keys."""
    found: dict[Key, Any] = {}
    for value in values:
        found.setdefault(key_of(value), value)
    return found


class Records:
    """The records that one step read, in the light of all records of its tool.

    is_searched: if they are lists, an element is chosen, so that there may be more of them.
    """

    def __init__(
        self,
        own: Sequence[Any],
        pool: Sequence[Any],
        reads: Sequence[tuple[Example, Read]] = (),
        echoed: Sequence[Container[Key]] | None = None,
        *,
        is_searched: bool = True,
    ) -> None:
        self.own, self.pool, self._is_searched = own, pool, is_searched
        self._reads, self._echoed = reads, echoed

    def schema(self) -> Json:
        """Return what the next such record must look like."""
        if not self.own:
            return {}
        if not self._is_searched and all(_is_one(value) for value in self.own):
            inner = [one for each in self.pool if isinstance(each, list) for one in each]
            only = Records([value[0] for value in self.own], inner, self._reads)
            return {"type": "array", "minItems": 1, "maxItems": 1, "items": only.schema()}
        if not all(isinstance(one, dict) for one in self.own):
            return self._state("", [*self.own]) or {"type": type_of(self.own)}
        if is_by_id(self.own[0]):
            return {"type": "object"}
        names = [name for name in self.own[0] if all(name in one for one in self.own)]
        fields: Json = {}
        for name in names:
            values = [one[name] for one in self.own]
            fields[name] = self._state(name, values) or {"type": type_of(values)}
        made: Json = {"type": "object", "required": names, "properties": fields}
        if self._echoed is None:
            # A field that no record ever had may say that this one is not to be touched.
            known = dict.fromkeys(
                name for one in (*self.own, *self.pool) if isinstance(one, dict) for name in one
            )
            if len(known) == len(names):
                made["maxProperties"] = len(known)
            else:
                made["propertyNames"] = {"enum": [*known]}
        return made

    def _wording(self, values: Sequence[Any], least: float) -> Json | None:
        """Return what texts of several words had in common; None if these are no such texts."""
        if not self._reads or not all(
            isinstance(one, str) and len(one.split()) > 1 for one in values
        ):
            return None
        return text_pattern(values, [example.known for example, _ in self._reads], least)

    def _state(self, name: str, values: list[Any]) -> Json | None:
        """Return what a field must be if it is a state, else None."""
        if self._echoed is not None:
            told = zip(values, self._echoed, strict=True)
            is_echo = all(is_scalar(value) and key_of(value) in asked for value, asked in told)
            # A result may repeat what was asked for; of what a write returns only words are states.
            if is_echo or not all(map(is_word, values)):
                return None
        if any(isinstance(value, dict | list) for value in values):
            pool = [one[name] for one in self.pool if isinstance(one, dict) and name in one]
            return _inside(values, pool or values)
        if all(value is None or isinstance(value, bool) or is_blank(value) for value in values):
            return {"const": values[0]} if len({*values}) == 1 else None
        if all(isinstance(value, int | float) for value in values):
            return _number(values)
        if not all(map(is_word, values)):
            return self._wording(values, ENOUGH_SHARED if name else ENOUGH_SHARED / 2)
        return self._words(name, values)

    def _words(self, name: str, values: list[Any]) -> Json | None:
        pairs = zip(self._reads, values, strict=True) if self._reads else ()
        if self._reads and all(_is_known(*row, name, value) for row, value in pairs):
            return None  # the request or an earlier record had the word: an identity, not a state
        own = distinct(values)
        pool = [one[name] for one in self.pool if isinstance(one, dict) and name in one]
        pool = pool or ([one for one in self.pool if is_word(one)] if not name else []) or values
        every = Counter(map(key_of, pool))
        if len(own) == 1:
            is_name = len(pool) >= 6 and len(every) > len(pool) / 2
            return None if is_name else {"const": values[0]}
        mass = sum(every[key] for key in own) / len(pool)
        rare = min(Counter(map(key_of, values)).values())
        if mass >= 1 or len(own) > MOST_WORDS or rare < 2:
            return None
        # Would so many draws have missed the other words by chance?
        is_chosen = -math.log2(max(mass, 1e-9)) * len(values) >= ENOUGH_TO_ACT
        return {"enum": sorted(own.values())} if is_chosen else None


def has_parts(value: Any) -> bool:
    """Return whether a text has several parts, so that it may say more than one thing."""
    return isinstance(value, str) and len(re.split(r"[\s|;,]+", value.strip())) > 1


def is_blank(value: Any) -> bool:
    """Return whether a text says nothing."""
    return isinstance(value, str) and not value.strip()


def _is_one(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1


def text_pattern(
    texts: Sequence[str], known: Sequence[Collection[str]], least: float = 0.0
) -> Json | None:
    """Return the pattern of the words that texts have in common, in their order; None if too few.

    What was known beforehand may be another one, and so may numbers unless enough texts have the
    same. known: by text, the values that were known. least: the share of its words that a text
    must have in common with the others.
    """
    rows = [_tokens(text, values) for text, values in zip(texts, known, strict=True)]
    if any(len(row) > MOST_TOKENS for row in rows):
        return None
    shared: list[tuple[str, tuple[int, ...]]]
    shared = [(token, (number,)) for number, (token, _) in enumerate(rows[0])]
    for row in rows[1:]:
        matched = SequenceMatcher(
            None, [one for one, _ in shared], [one for one, _ in row], autojunk=False
        )
        shared = [
            (shared[first + n][0], (*shared[first + n][1], second + n))
            for first, second, size in matched.get_matching_blocks()
            for n in range(size)
        ]
    kept = [row for row in shared if row[0]]
    words = sum(token.isalpha() for token, _ in kept)
    most = max(sum(token.isalpha() for token, _ in row) for row in rows)
    if not words or words < least * most:
        return None
    made, ends = "^", [0] * len(rows)
    for token, places in kept:
        spans = [row[place][1] for row, place in zip(rows, places, strict=True)]
        pairs = zip(texts, ends, spans, strict=True)
        made += _gap([text[end : span[0]] for text, end, span in pairs]) + _escaped(token)
        ends = [end for _, end in spans]
    made += _gap([text[end:] for text, end in zip(texts, ends, strict=True)])
    return {"pattern": f"{made}$"} | _signs(texts)


def _tokens(text: str, known: Collection[str]) -> list[tuple[str, tuple[int, int]]]:
    """Return the words and signs of a text with their spans; "" for a number or a known value."""
    here = sorted((one for one in known if one in text and one != text), key=len, reverse=True)
    parts = re.finditer("|".join(map(re.escape, here)), text) if here else ()
    found = [("", (match.start(), match.end())) for match in parts]
    spans = [span for _, span in found]
    for match in _TOKEN.finditer(text):
        if not any(start < match.end() and match.start() < end for start, end in spans):
            token = match[0]
            found.append(("" if token[0].isdigit() else token, (match.start(), match.end())))
    return sorted(found, key=lambda one: one[1])


_TOKEN = re.compile(r"[^\W\d_]+|\d(?:[\d.,:/-]*\d)?|[^\w\s]|_")


def _gap(contents: Sequence[str]) -> str:
    """Return the pattern of what stands between two words that all texts have."""
    if len({*contents}) == 1 and (not contents[0].strip() or len(contents) >= ENOUGH_RECORDS):
        return r"\s+" if len(contents[0]) > 1 and not contents[0].strip() else _escaped(contents[0])
    counts = Counter(contents)
    are_words = not any(char.isdigit() for one in contents for char in one)
    are_several = len(contents) >= ENOUGH_WORDS and min(counts.values()) > 1
    if are_words and are_several and len(counts) <= MOST_WORDS:
        return f"({'|'.join(map(_escaped, sorted(counts)))})"
    inner = [one.strip() for one in contents]
    if not all(inner):
        return r"[\s\S]*" if any("\n" in one for one in contents) else ".*"
    first = _space([one[: len(one) - len(one.lstrip())] for one in contents])
    last = _space([one[len(one.rstrip()) :] for one in contents])
    rest = r"[\s\S]+" if any("\n" in one for one in inner) else ".+"
    if all(len(one.split()) == 1 and any(map(str.isdigit, one)) for one in inner):
        rest = r"[0-9]\S*" if all(one[0].isdigit() for one in inner) else r"\S+"
    if all(map(_AMOUNT.fullmatch, inner)):
        # As in a field, a number stays zero, or something.
        are_zero = [not one.strip("0.,") for one in inner]
        rest = r"0[0.,]*" if all(are_zero) else rest if any(are_zero) else r"[0-9.,]*[1-9][0-9.,]*"
    return first + rest + last


def _space(contents: Sequence[str]) -> str:
    """Return the pattern of the white space beside what differs."""
    if not any(contents):
        return ""
    return " " if {*contents} == {" "} else r"\s+" if all(contents) else r"\s*"


_AMOUNT = re.compile(r"[0-9]+(?:[.,][0-9]+)*")


def _escaped(text: str) -> str:
    return re.sub(r"\\([ #\-])", r"\1", re.escape(text))


def _inside(values: Sequence[Any], pool: Sequence[Any]) -> Json | None:
    """Return what records and lists inside of a record have in common: the states in them.

    pool: what stands at that place in all records.
    """
    made = _filled(values) or {}
    if all(isinstance(value, dict) for value in values) and not is_by_id(values[0]):
        fields = _common(values, pool)
        made |= {"required": [*fields], "properties": fields} if fields else {}
        shown = [value for value in chain(values, pool) if isinstance(value, dict)]
        names = {name for value in shown for name in value}
        # As in the record itself, a field that none of enough ever had may be a reason to stop.
        if len(values) >= ENOUGH_WORDS and all(len(value) == len(names) for value in values):
            made["maxProperties"] = len(names)
    elif all(isinstance(value, list) for value in values):
        made |= _elements([value for value in values if value])
    return made or None


def _common(records: Sequence[Json], pool: Sequence[Any]) -> Json:
    """Return the fields that are the same state in all records."""
    fields: Json = {}
    for name in records[0]:
        values = [one[name] for one in records if name in one]
        if len(values) < len(records):
            continue
        beside = [one[name] for one in pool if isinstance(one, dict) and name in one]
        if all(isinstance(value, dict | list) for value in values):
            state = _inside(values, beside)
        elif all(map(is_number, values)):
            state = _number(values)
        else:
            is_same = len({*map(key_of, values)}) == 1 and _are_states(values, beside)
            state = {"const": values[0]} if is_same else None
        if state is not None:
            fields[name] = state
    return fields


def _elements(lists: Sequence[list[Any]]) -> Json:
    """Return the flags that all elements of enough lists have, and words of equal lists."""
    inner = [one for each in lists for one in each]
    if len(lists) < ENOUGH_LISTS:
        return {}
    if all(isinstance(one, dict) for one in inner):
        fields = _constants(_common(inner, inner), only_flags=len(lists) < ENOUGH_WORDS)
        needed = {"required": [*fields], "properties": fields} if fields else {}
        return {"items": {"type": "object", **needed}}
    is_same = all(same(one, lists[0]) for one in lists)
    if all(isinstance(one, str) and has_parts(one) for one in inner):
        return _lines(lists)
    are_few = len(distinct(inner)) <= MOST_WORDS and are_options(inner)
    if (is_same or are_few) and all(isinstance(one, str) and is_word(one) for one in inner):
        # Words of a list are states, as single ones are.
        return {"items": {"enum": sorted(distinct(inner).values())}}
    return {}


def _lines(lists: Sequence[list[str]]) -> Json:
    """Return the wordings of the first, the last and the other texts of lists, if all have one."""
    several = [one for one in lists if len(one) > 1]
    groups = [
        [one[0] for one in several],
        [one[-1] for one in lists],
        [text for one in several for text in one[1:-1]],
    ]
    ways = []
    for texts in filter(None, groups):
        found = text_pattern(texts, [()] * len(texts), ENOUGH_SHARED)
        if found is None:
            return {}
        ways.append(found)
    return {"items": ways[0] if len(ways) == 1 else {"anyOf": ways}}


def _constants(fields: Json, *, only_flags: bool) -> Json:
    """Return the fields that are always the same, also those of records inside.

    only_flags: of these the flags, and those that are nothing.
    """
    found: Json = {}
    for name, one in fields.items():
        is_flag = one in _FLAGS
        if is_flag or ("const" in one and not only_flags):
            found[name] = one
        elif inner := _constants(one.get("properties", {}), only_flags=only_flags):
            found[name] = {"required": [*inner], "properties": inner}
    return found


_FLAGS: tuple[Json, ...] = (
    *({"const": value} for value in (True, False, None, "")),
    {"const": {}},
    {"type": "array", "maxItems": 0},
)
"""What is nothing, or yes or no."""


def _are_states(values: Sequence[Any], pool: Sequence[Any]) -> bool:
    """Return whether equal values are a state: flags, nothing, or words that are no names.

    Words are names if there are many of them, and too few of them say nothing.
    """
    if all(value is None or isinstance(value, bool) or is_blank(value) for value in values):
        return True
    is_few = len({*map(key_of, pool)}) <= min(MOST_STATES, len(pool) / 2)
    is_word_each = all(isinstance(value, str) and is_word(value) for value in values)
    return is_word_each and is_few and len(pool) >= ENOUGH_LISTS


def _filled(values: Sequence[Any]) -> Json | None:
    """Return that lists were always empty, or never."""
    if not all(isinstance(value, list | dict) for value in values):
        return None
    if not any(values):
        return {"type": "array", "maxItems": 0} if isinstance(values[0], list) else {"const": {}}
    if all(isinstance(value, list) and value for value in values):
        return {"type": "array", "minItems": 1}
    return None


def _number(values: list[Any]) -> Json | None:
    """Return that numbers were always zero, always the same, or always more than zero."""
    if not any(values):
        return {"const": 0}
    if len({*values}) == 1 and len(values) >= ENOUGH_RECORDS:
        return {"const": values[0]}
    if all(value > 0 for value in values):
        return {"type": type_of(values), "exclusiveMinimum": 0}
    return None


def _is_known(example: Example, read: Read, name: str, value: Any) -> bool:
    """Return whether the inputs or an earlier record had a word before it was read."""
    if any(same(one, value) for _, one in example.said(None).leaves if is_scalar(one)):
        return True
    for _, items in lists_in(example.inputs):
        if any(same(one, value) for item in items for _, one in plain(item)):
            return True
    for other in example.reads:
        if other is read:
            return False
        if other.tool != read.tool:
            places = other.index.get(key_of(value), ())
            if any(place[-1:] == (name,) for place, _ in places):
                return True
    return False


class Inputs:
    """The schema of inputs, from examples of them.

    used: names of fields that the steps use. unconfirmed: those that nothing checks later, so that
    the examples have to. changes: places of records that may be empty: they change another one.
    optional: places that may be left out, whatever else is given. described: places of records of
    which any field may be left out.
    """

    def __init__(
        self,
        used: Collection[str],
        unconfirmed: Collection[str] = (),
        changes: Collection[Place] = (),
        optional: Collection[Place] = (),
        described: Collection[Place] = (),
    ) -> None:
        self._used, self._unconfirmed = used, unconfirmed
        self._changes, self._optional = changes, optional
        self._described = described

    def schema(self, values: Sequence[Any], place: Place = ()) -> Json:
        """Return what inputs at a place must look like."""
        if all(isinstance(value, dict) for value in values):
            return self._record(values, place)
        if all(isinstance(value, list) for value in values):
            return self._list(values, place)
        made: Json = {"type": type_of(values)}
        is_open = last_name(place) in self._unconfirmed
        if all(isinstance(value, str) for value in values):
            made |= text_look(values, is_open=is_open)
        elif made["type"] in ("integer", "number") and min(values) > 0:
            size = 1 if are_options(values) else ANOTHER_SIZE
            made |= _size(values, size if is_open else ANOTHER_SIZE**2)
        return made

    def _record(self, values: Sequence[Any], place: Place) -> Json:
        if place in self._described:
            return described_by(values, place)
        every = dict.fromkeys(one for value in values for one in value)
        names = [one for one in every if one in self._used]
        if place and not names:
            may_be_empty = place in self._changes or not all(values)
            return {
                "type": "object",
                **({} if may_be_empty else {"minProperties": 1}),
                **_usual_fields(values),
            }
        made: Json = {
            "type": "object",
            "properties": {
                one: self.schema([value[one] for value in values if one in value], (*place, one))
                for one in names
            },
        }
        required = [one for one in names if all(one in value for value in values)]
        if required:
            made["required"] = required
        optional = [
            one for one in names if one not in required and (*place, one) not in self._optional
        ]
        ways = list(dict.fromkeys(tuple(o for o in optional if o in value) for value in values))
        if optional and all(ways) and len(ways) > 1:
            made["anyOf"] = [{"required": list(way)} for way in ways]
        return made

    def _list(self, values: Sequence[Any], place: Place) -> Json:
        inner = [one for value in values for one in value]
        made: Json = {"type": "array", "minItems": 1 if all(values) else 0}
        if inner:
            made["items"] = self.schema(inner, (*place, ELEMENT))
        several = [value for value in values if len(value) > 1]
        if len(several) >= 3 and all(len({*map(key_of, one)}) == len(one) for one in several):
            made["uniqueItems"] = True
        return made


def _usual_fields(records: Sequence[Any]) -> Json:
    """Return which fields free records mostly have, for whoever fills them in."""
    counts = Counter(name for record in records if not is_by_id(record) for name in record)
    return _fields_such_as([name for name, count in counts.most_common() if count > 1])


def _fields_such_as(names: Iterable[str]) -> Json:
    shown = [name for name in names if is_word(name)][:MOST_NAMED]
    return {"description": f"fields such as {', '.join(shown)}"} if shown else {}


def described_by(values: Sequence[Any], place: Place) -> Json:
    """Return the schema of a description: any of its fields, but at least one."""
    return _loose(Inputs(_names(values)).schema(values, place))


def _names(value: Any) -> set[str]:
    """Return the names of all fields in a value."""
    if isinstance(value, dict):
        return {str(name) for name in value}.union(*map(_names, value.values()))
    return set().union(*map(_names, value)) if isinstance(value, list) else set()


def _loose(schema: Json) -> Json:
    """Return a schema that requires no field, but at least one."""
    made = {name: one for name, one in schema.items() if name not in ("required", "anyOf")}
    if made.get("type") == "object":
        made |= {"minProperties": 1}
        inner = made.pop("properties", {})
        # Records that have no field in common are free.
        if "required" in schema:
            made |= {"properties": {name: _loose(one) for name, one in inner.items()}}
        else:
            made |= _fields_such_as(inner)
    if made.get("type") == "array":
        made |= {"minItems": 1}
        if "items" in made:
            made |= {"items": _loose(made["items"])}
    return made


def or_null(schema: Json) -> Json:
    """Return the schema of a value that may also be null."""
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    made: Json = {**schema, "type": [*dict.fromkeys([*types, "null"])]}
    return {**made, "enum": [*made["enum"], None]} if "enum" in made else made


def text_look(values: Sequence[str], *, is_open: bool = False) -> Json:
    """Return what texts have in common: a format, few words, or the form of a code."""
    options = distinct(values)
    if all(is_date(value) and len(value) == 10 for value in values):
        return {"format": "date"}
    if all(_MAIL.fullmatch(value) for value in values):
        return {"format": "email"}
    if all(is_clock(value) for value in values):
        return {"pattern": CLOCK}
    if is_open and are_options(values) and all(map(is_word, values)):
        return {"enum": sorted(options.values())}
    codes = [*options.values()] if len(options) >= 3 and all(map(is_code, values)) else []
    if pattern := pattern_of(codes) if codes else None:
        return {"pattern": pattern}
    look = look_of(codes) if codes else None
    about = {"pattern": look} if look else {"minLength": 1} if all(values) else {}
    return about | _signs(values)


def _signs(values: Sequence[str]) -> Json:
    """Return which signs texts had: those of codes, those of names, or those of plain lines."""
    if all(is_code(value) and json_schema.is_code(value) for value in values):
        return {"format": "code"}
    if all(value.isalpha() for value in values if value):
        return {"format": "name"}
    if all(map(json_schema.is_line, values)):
        return {"format": "line"}
    return {"format": "text"} if all(map(json_schema.is_text, values)) else {}


def content(values: Sequence[Any]) -> Json:
    """Return what a value that is written must look like: as it did, and of about that size."""
    made: Json = {"type": type_of(values)}
    if all(isinstance(value, str) for value in values):
        return made | text_look(values)
    if all(map(is_number, values)) and min(values) > 0:
        return made | _size_of(values)
    return made


def _size_of(values: Sequence[Any]) -> Json:
    """Return that positive numbers are of about the size of some; one says less about that."""
    return _size(values, ANOTHER_SIZE if len(values) > 1 else ANOTHER_SIZE**2)


def _size(values: Sequence[Any], times: int) -> Json:
    """Return that positive numbers are of about the size of some."""
    least, most = min(values), max(values)
    if type_of(values) == "integer":
        return {"minimum": -(-least // times), "maximum": most * times}
    if most * times == math.inf or isinstance(most, int):
        return {"exclusiveMinimum": 0}
    return {"minimum": float(f"{least / times:.3g}"), "maximum": float(f"{most * times:.3g}")}


def are_options(values: Sequence[Any]) -> bool:
    """Return whether values are so few over so many recordings that others are hardly meant."""
    counts = Counter(map(key_of, values)).values()
    once = sum(count == 1 for count in counts)
    if len(values) < ENOUGH_WORDS:
        return len(values) >= FEWEST_CHOSEN and len(counts) <= 2 and once <= 1
    return len(counts) <= MOST_OPTIONS and once <= len(values) / 8


CLOCK = r"^([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$"
"""The pattern of a time of day."""
_MAIL = re.compile(r"[^@\s]{1,80}@[^@\s.]{1,80}(?:\.[^@\s.]{1,80}){1,8}")


def look_of(codes: Sequence[str]) -> str | None:
    """Return what codes of several forms begin and end with, if each is one word: 1.3.0, 2.0rc1."""
    if not all(code.split() == [code] for code in codes):
        return None
    ends = [{*map(_sign, (code[at] for code in codes))} for at in (0, -1)]
    first, last = ("".join(sorted(one)) for one in ends)
    if max(map(len, ends)) > MOST_SIGNS:
        return None
    rest = rf"\S*[{last}]"
    # One sign may be the first and the last: house 6 beside 12a and 40.
    return rf"^[{first}]({rest})?$" if ends[0] & ends[1] else f"^[{first}]{rest}$"


def _sign(char: str) -> str:
    return "0-9" if char.isdigit() else "A-Za-z" if char.isalpha() else re.escape(char)


def pattern_of(codes: Sequence[str]) -> str | None:
    """Return the form that codes share: digits may differ, the rest must be equal."""
    forms = {re.sub(r"[0-9]+", "0", code) for code in codes}
    if len(forms) != 1:
        return None
    form = "".join(re.escape(char) if char != "0" else "[0-9]+" for char in forms.pop())
    return f"^{form}$".replace("\\#", "#").replace("\\-", "-").replace("\\ ", " ")


class States:
    """The schema of a value that lets nothing new pass, from all that it was.

    A word, a flag, nothing, and a number that took few values are states: a value that no recording
    had is a case that nobody has dealt with. A text that differs in its digits only is a pattern.

    free: places whose values are compared with others, so that any value will do.
    """

    def __init__(self, free: Collection[Path] = ()) -> None:
        self._free = free

    def schema(self, values: Sequence[Any], path: Path, *, is_text: bool = False) -> Json:
        """Return what the next such value must look like.

        is_text: the records were read out of texts, so that a new field is a new state.
        """
        if all(isinstance(value, dict) for value in values):
            return self._record(values, path, is_text=is_text)
        if all(isinstance(value, list) for value in values):
            return self._list(values)
        return self._scalar(values, path)

    def _record(self, values: Sequence[Json], path: Path, *, is_text: bool) -> Json:
        if any(map(is_by_id, values)):
            return {"type": "object"}
        names = dict.fromkeys(name for value in values for name in value)
        required = [name for name in names if all(name in value for value in values)]
        fields = {
            name: self.schema([value[name] for value in values if name in value], (*path, name))
            for name in names
        }
        made: Json = {"type": "object", **({"required": required} if required else {})}
        return {
            **made,
            "properties": fields,
            **({"additionalProperties": False} if is_text else {}),
        }

    def _list(self, values: Sequence[list[Any]]) -> Json:
        inner = [one for value in values for one in value]
        filled = {"minItems": 1} if all(values) else {} if any(values) else {"maxItems": 0}
        made: Json = {"type": "array", **filled}
        if inner and all(isinstance(one, dict) for one in inner):
            names = dict.fromkeys(name for one in inner for name in one)
            words = {name: [one[name] for one in inner if name in one] for name in names}
            fields = {
                name: {"enum": [*found]}
                for name, column in words.items()
                if all(map(is_word, column)) and (found := _few(column))
            }
            if fields:
                made["items"] = {"properties": fields}
        return made

    def _scalar(self, values: Sequence[Any], path: Path) -> Json:
        if path in self._free:
            return {"type": type_of(values)}
        if all(isinstance(value, bool) or value is None for value in values):
            return _one_of(_ordered(values))
        if all(isinstance(value, str) and number_of(value) is None for value in values):
            return _texts(values)
        found = _few(values)
        return _one_of(found) if found else _signed(values)


def _signed(values: Sequence[Any]) -> Json:
    made: Json = {"type": type_of(values)}
    is_numeric = made["type"] in ("integer", "number")
    if is_numeric and all(value > 0 for value in values):
        made["exclusiveMinimum"] = 0
    return made


def _texts(values: Sequence[str]) -> Json:
    """Return texts that are states; those that differ in digits only are one pattern."""
    alike: dict[str, list[str]] = {}
    for value in values:
        alike.setdefault(re.sub(r"[0-9]+", "0", value), []).append(value)
    if len(alike) > MOST_STATES or len(alike) > max(2, len(values) / 3):
        return {"type": "string"}
    exact = [group[0] for group in alike.values() if len({*group}) == 1]
    several = [group for group in alike.values() if len({*group}) > 1]
    patterns = [pattern for group in several if (pattern := pattern_of(group))]
    ways: list[Json] = [{"pattern": pattern} for pattern in patterns]
    if exact:
        ways.insert(0, _one_of(sorted(exact)))
    return ways[0] if len(ways) == 1 else {"anyOf": ways}


def is_few(values: Sequence[Any]) -> bool:
    """Return whether values repeat as states do."""
    return len({*map(repr, values)}) <= min(MOST_STATES, max(2, len(values) / 3))


def _few(values: Sequence[Any]) -> list[Any]:
    return _ordered(values) if is_few(values) else []


def _ordered(values: Sequence[Any]) -> list[Any]:
    return sorted(distinct(values).values(), key=repr)


def _one_of(values: Sequence[Any]) -> Json:
    return {"const": values[0]} if len(values) == 1 else {"enum": [*values]}
