"""Edits of a JSON file as text: add a value and remove it again, without touching the rest.

Parsing and writing a person's file would change its layout. An addition here is one insertion, so
that cutting it out restores the file byte for byte.
"""

import json
from typing import Any, NamedTuple

from em.errors import InputError

_decoder = json.JSONDecoder()
_BLANK = " \t\r\n"


class Insertion(NamedTuple):
    """A text that was put into another, and where."""

    at: int
    text: str


class _Part(NamedTuple):
    """A member of an object or an element of a list: where it begins, its value, where it ends."""

    key: str | None
    start: int
    value_start: int
    end: int


def insertion(text: str, path: tuple[str, ...], value: Any, *, item: bool = False) -> Insertion:
    """Return what to insert so that `path` has a value, or its list one more item.

    An insertion without a text: the file has that value already.
    """
    try:
        json.loads(text)
    except ValueError as error:
        raise InputError(f"expected JSON: {error}", place="JSON") from None
    at = _skip(text, 0)
    for depth, key in enumerate(path):
        if text[at] != "{":
            raise InputError(f"expected an object with {key!r}", place=f"JSON, character {at}")
        found = {part.key: part for part in _parts(text, at)}
        if key not in found:
            missing: Any = [value] if item else value
            for name in reversed(path[depth + 1 :]):
                missing = {name: missing}
            return _into(text, at, key, missing)
        at = found[key].value_start
    there, _ = _decoder.raw_decode(text, at)
    if item and isinstance(there, list):
        return Insertion(at, "") if value in there else _into(text, at, None, value)
    if there == value:
        return Insertion(at, "")
    raise InputError(f"`{'.'.join(path)}` has another value already", place="JSON")


def with_insertion(text: str, made: Insertion) -> str:
    """Return a text with an insertion."""
    return text[: made.at] + made.text + text[made.at :]


def without(text: str, path: tuple[str, ...], value: Any, *, item: bool = False) -> str:
    """Return a text without the value at `path`, or the list's item; and without emptied parents.

    A text that does not have it is returned as it is.
    """
    spans = [_skip(text, 0)]
    cuts: list[_Part] = []
    for key in path:
        found = {part.key: part for part in _parts(text, spans[-1])}
        if key not in found:
            return text
        cuts.append(found[key])
        spans.append(found[key].value_start)
    if item:
        same = [p for p in _parts(text, spans[-1]) if _value(text, p) == value]
        if not same:
            return text
        cuts.append(same[0])
    while len(cuts) > 1 and len(_parts(text, cuts[-2].value_start)) == 1:
        cuts.pop()
    return _cut(text, spans[len(cuts) - 1], cuts[-1])


def _parts(text: str, at: int) -> list[_Part]:
    """Return the members of the object, or the elements of the list, that begins at a place."""
    opened = text[at : at + 1]
    if opened not in ("{", "["):
        raise InputError("expected an object or a list", place=f"JSON, character {at}")
    parts: list[_Part] = []
    at = _skip(text, at + 1)
    try:
        while text[at] not in "}]":
            start, key = at, None
            if opened == "{":
                key, at = _decoder.raw_decode(text, at)
                at = _skip(text, at)
                at = _skip(text, at + 1)
            _, end = _decoder.raw_decode(text, at)
            parts.append(_Part(key, start, at, end))
            at = _skip(text, end)
            if text[at] == ",":
                at = _skip(text, at + 1)
    except (IndexError, ValueError) as error:
        raise InputError(f"expected JSON: {error}", place=f"JSON, character {at}") from None
    return parts


def _value(text: str, part: _Part) -> Any:
    return _decoder.raw_decode(text, part.value_start)[0]


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at


def _into(text: str, at: int, key: str | None, value: Any) -> Insertion:
    """Return the insertion of a member or element at the end of what begins at a place."""
    parts = _parts(text, at)
    if parts:
        last = parts[-1]
        before = text[: last.start]
        space = before[len(before.rstrip(_BLANK)) :]
        return Insertion(last.end, "," + space + _member(key, value, space))
    line = text[text.rfind("\n", 0, at) + 1 : at]
    margin = line[: len(line) - len(line.lstrip())]
    space = f"\n{margin}  "
    return Insertion(at + 1, f"{space}{_member(key, value, space)}\n{margin}")


def _member(key: str | None, value: Any, space: str) -> str:
    """Write a member in the layout of its neighbours: `space` is what separates them."""
    name = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    if "\n" not in space:
        return name + json.dumps(value, ensure_ascii=False)
    margin = space.rpartition("\n")[2]
    return name + json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n" + margin)


def _cut(text: str, parent: int, part: _Part) -> str:
    parts = _parts(text, parent)
    index = parts.index(part)
    if index:
        return text[: parts[index - 1].end] + text[part.end :]
    if len(parts) > 1:
        return text[: part.start] + text[parts[1].start :]
    return text[: parent + 1] + text[_skip(text, part.end) :]
