"""The leaves of JSON values: walk them, and judge how much finding one of them means."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.values.canonical import identical, same
from em.values.mismatch import Where

Scalar = str | int | float | bool | None


class Segment(NamedTuple):
    """One step of a path: a key, or a position in a collection (a list, or a mapping by id)."""

    key: str | int
    in_collection: bool
    of: Any


Path = tuple[Segment, ...]


def scalars(value: Any, where: Where = ()) -> Iterator[tuple[Where, Any]]:
    """Yield every scalar of a value with its path: keys, and positions in lists."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from scalars(item, (*where, key))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from scalars(item, (*where, number))
    else:
        yield where, value


def texts(value: Any, *, names: bool = False) -> Iterator[str]:
    """Yield every text of a value; with `names`, the keys of its objects as well."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if names and isinstance(key, str):
                yield key
            yield from texts(item, names=names)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item, names=names)


def differences(before: Any, now: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield each place in which two values differ, with both; UNSET for what is not there."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys([*before, *now]):
            was, is_now = (one.get(name, msgspec.UNSET) for one in (before, now))
            yield from differences(was, is_now, f"{place}.{name}".strip("."))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, pair in enumerate(zip(before, now, strict=True)):
            yield from differences(*pair, f"{place}[{number}]")
    elif msgspec.UNSET in (before, now) or not identical(before, now):
        yield place, before, now


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Scalar]]:
    """Yield every scalar of a value with its path, in which a mapping by id is a collection."""
    if isinstance(value, dict):
        by_id = is_by_id(value)
        for number, (key, item) in enumerate(value.items()):
            segment = Segment(number, True, value) if by_id else Segment(key, False, value)
            yield from leaves(item, (*path, segment))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from leaves(item, (*path, Segment(number, True, value)))
    else:
        yield path, value


def is_by_id(value: dict[str, Any]) -> bool:
    """Whether a mapping is a collection: its keys are ids, its values records of one type."""
    items = list(value.values())
    if not items or not all(isinstance(item, dict) and item for item in items):
        return False
    if all(any(same(field, key) for field in item.values()) for key, item in value.items()):
        return True
    shapes = {frozenset(item) for item in items}
    return len(shapes) == 1 and all(re.search(r"\d", key) for key in value)


def is_informative(value: Any) -> bool:
    """Whether a value is distinctive enough that finding it elsewhere is no coincidence."""
    if value is None or isinstance(value, bool):
        return False
    if isinstance(value, int | float):
        return abs(value) >= 1000 or (isinstance(value, float) and len(repr(value)) >= 5)
    text = str(value).strip()
    return len(text) >= 4 or (len(text) >= 3 and bool(re.search(r"\d", text)))


def mentioned_in(value: Any, text: str, *, exactly: bool = False) -> bool:
    """Whether a text contains a value as a word of its own, in any case unless `exactly`."""
    wanted = str(value).strip()
    if len(wanted) < 2 or isinstance(value, bool):
        return False
    if not exactly:
        wanted, text = wanted.lower(), text.lower()
    # A search for each value; compiling a pattern for each would take much longer.
    at = text.find(wanted)
    while at >= 0:
        end = at + len(wanted)
        before, after = text[at - 1 : at] if at else "", text[end : end + 1]
        if not _IN_A_WORD.match(before) and not _IN_A_WORD.match(after):
            return True
        at = text.find(wanted, at + 1)
    return False


_IN_A_WORD = re.compile(r"[A-Za-z0-9]")


EMAIL = re.compile(r"(?<![^\s@<>(),;])[^\s@<>(),;]+@[^\s@<>(),;]+")
_TOKEN = re.compile(r"(?<![^\s\"'(){},;])[^\s\"'(){},;\d]*\d[^\s\"'(){},;]*")
FEWEST = 4
"""Digits from which on a word counts as an id. A number needs one more: 2026 may be a year."""
_ID = re.compile(r"([^\d@]{1,12})\d[\d.:/-]*")
LONGEST = 40
"""Characters of a shape that are shown."""
SHORTEST = 3
"""Characters from which on a recorded value is looked for in a text."""


def shapes(values: Sequence[Any]) -> list[Any]:
    """Return what values look like, each shape once; numbers have no shape that helps.

    What all ids begin with is shown as it is: `#W`.
    """
    texts = [value for value in values if isinstance(value, str)]
    prefix = _prefix(texts)
    found: dict[str, Any] = {}
    for value in values:
        if isinstance(value, str):
            found.setdefault(shape(value, prefix))
        elif isinstance(value, list):
            inner = shapes(value)
            found.setdefault(str(inner), inner)
    return [key if value is None else value for key, value in found.items()]


def _prefix(texts: Sequence[str]) -> str:
    """Return what different ids begin with: `#W` if all of them are that with a number."""
    found = [_ID.fullmatch(text) for text in texts]
    beginnings = {match[1] for match in found if match is not None}
    if len(set(texts)) > 1 and len(beginnings) == 1 and None not in found:
        return beginnings.pop()
    return ""


def shape(text: str, prefix: str = "") -> str:
    """Return what a text looks like: 0 for digits, x for letters, the rest as it is."""
    if EMAIL.fullmatch(text.strip()):
        return "name@host"
    masked = "".join(map(_sign, text[len(prefix) :]))
    shown = prefix + masked
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def _sign(char: str) -> str:
    if char.isdigit():
        return "0"
    if char.isalpha():
        return "X" if char.isupper() else "x"
    return char


def without_personal_data(text: str, known: Mapping[str, Any]) -> str:
    """Return a text with recorded values as `{name}`, and other ids and addresses as shapes.

    known: recorded values by name.
    """
    values = {
        str(value): name
        for name, recorded in known.items()
        for _, value in scalars(recorded)
        if isinstance(value, str | int | float) and not isinstance(value, bool)
        if len(str(value)) >= SHORTEST
    }
    if values:
        longest_first = sorted(values, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first))
        text = re.sub(
            rf"(?<!\w)(?:{pattern})(?!\w)", lambda found: f"{{{values[found.group()]}}}", text
        )
    text = EMAIL.sub("name@host", text)
    return _TOKEN.sub(lambda found: _without_id(found.group()), text)


def _without_id(token: str) -> str:
    digits = sum(char.isdigit() for char in token)
    is_number = token.strip(".:!?").isdigit()
    return shape(token) if digits >= FEWEST + is_number else token
