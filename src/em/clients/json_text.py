"""Edits of a JSON file as text: add a value and remove it again, without touching the rest.

Parsing and writing a person's file would change its layout. An addition here only inserts, so that
cutting it out restores the file byte for byte. Some programs allow comments and commas before a
closing bracket (JSONC). Places are then looked up in the file with blanks for those, which has the
same length.
"""

import json
import re
from collections.abc import Sequence
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


def insertions(
    text: str,
    path: tuple[str, ...],
    value: Any,
    *,
    item: bool = False,
    comments: bool = False,
) -> list[Insertion]:
    """Return what to insert so that `path` has a value, or its list one more item.

    comments: the file may have them. No insertion: the file has that value already.
    """
    plain = _plain(text, comments=comments)
    at = _skip(plain, 0)
    for depth, key in enumerate(path):
        if plain[at : at + 1] != "{":
            raise InputError(f"expected an object with {key!r}", place=f"JSON, character {at}")
        found = {part.key: part for part in _parts(plain, at)}
        if key not in found:
            missing: Any = [value] if item else value
            for name in reversed(path[depth + 1 :]):
                missing = {name: missing}
            return _into(text, plain, at, key, missing)
        at = found[key].value_start
    there, _ = _decoder.raw_decode(plain, at)
    if item and isinstance(there, list):
        return [] if value in there else _into(text, plain, at, None, value)
    if there == value:
        return []
    raise InputError(f"`{'.'.join(path)}` has another value already", place="JSON")


def with_insertions(text: str, made: Sequence[Insertion]) -> str:
    """Return a text with insertions, each at its place after the ones before it."""
    for one in made:
        text = text[: one.at] + one.text + text[one.at :]
    return text


def value_of(text: str, *, comments: bool = False) -> Any:
    """Return the value of a JSON file."""
    return json.loads(_plain(text, comments=comments))


def without(
    text: str,
    path: tuple[str, ...],
    value: Any,
    *,
    item: bool = False,
    comments: bool = False,
) -> str:
    """Return a text without the value at `path`, or the list's item; and without emptied parents.

    A text that does not have it is returned as it is.
    """
    plain = _plain(text, comments=comments)
    spans = [_skip(plain, 0)]
    cuts: list[_Part] = []
    for key in path:
        found = {part.key: part for part in _parts(plain, spans[-1])}
        if key not in found:
            return text
        cuts.append(found[key])
        spans.append(found[key].value_start)
    if item:
        same = [p for p in _parts(plain, spans[-1]) if _value(plain, p) == value]
        if not same:
            return text
        cuts.append(same[0])
    while len(cuts) > 1 and len(_parts(plain, cuts[-2].value_start)) == 1:
        cuts.pop()
    return _cut(text, _without_comments(text) if comments else text, cuts[-1])


_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)


def _plain(text: str, *, comments: bool) -> str:
    """Return a file as JSON of the same length."""
    if comments:
        text = _LAST_COMMA.sub(_blank, _without_comments(text))
    try:
        json.loads(text)
    except ValueError as error:
        raise InputError(f"expected JSON: {error}", place="JSON") from None
    return text


def _without_comments(text: str) -> str:
    return _COMMENT.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    """Return blanks for a comment or a comma; a string stays."""
    part = found.group()
    return part if part.startswith('"') else re.sub(r"[^\r\n]", " ", part)


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


def _into(text: str, plain: str, at: int, key: str | None, value: Any) -> list[Insertion]:
    """Return the insertions of a member or element at the end of what begins at a place."""
    parts = _parts(plain, at)
    if not parts:
        line = text[text.rfind("\n", 0, at) + 1 : at]
        margin = line[: len(line) - len(line.lstrip())]
        space = f"\n{margin}  "
        return [Insertion(at + 1, f"{space}{_member(key, value, space)}\n{margin}")]
    last = parts[-1]
    before = plain[: last.start]
    space = before[len(before.rstrip(_BLANK)) :]
    tail = text[last.end : _skip(plain, last.end)].rstrip(_BLANK)
    if not tail:
        return [Insertion(last.end, "," + space + _member(key, value, space))]
    # A comment, or a comma, follows the last one: it stays where it is.
    if "\n" not in space:
        space = "\n"
    comma = [] if "," in _without_comments(tail) else [Insertion(last.end, ",")]
    end = last.end + len(tail) + len(comma)
    return [*comma, Insertion(end, space + _member(key, value, space))]


def _member(key: str | None, value: Any, space: str) -> str:
    """Write a member in the layout of its neighbours: `space` is what separates them."""
    name = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    if "\n" not in space:
        return name + json.dumps(value, ensure_ascii=False)
    margin = space.rpartition("\n")[2]
    return name + json.dumps(value, ensure_ascii=False, indent=2).replace("\n", "\n" + margin)


def _cut(text: str, commas: str, part: _Part) -> str:
    """Cut out a part with one comma and the blanks beside it. `commas`: without comments."""
    after = _skip(commas, part.end)
    if commas[after] == ",":
        rest = text[part.end : after] + text[after + 1 :]
        return text[: part.start] + rest.lstrip(_BLANK)
    before = len(commas[: part.start].rstrip(_BLANK))
    between = text[before : part.start]
    kept = between if between.strip(_BLANK) else ""  # a comment
    if text[before - 1] == ",":
        return text[: before - 1] + kept + text[part.end :]
    return text[:before] + kept + (text[part.end :] if kept else text[part.end :].lstrip(_BLANK))
