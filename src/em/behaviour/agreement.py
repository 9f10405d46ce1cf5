"""Agreement: the parts of arguments by their places, and the expressions that must give the same.

A place is written as `items[0].sku`; an unusual key is quoted.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

_NAME = re.compile(r"(?<![\w.])([A-Za-z_]\w*)(?!\w|\s*\(|\s*=[^=])")
"""Matches a name in an expression that is neither a function's nor an argument's."""
TEXT = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
"""Matches a text in an expression."""
_WORDS = frozenset("true false none True False None and or not in is if else".split())
_PLAIN_KEY = re.compile(r"[^.\[\]\"]+")
_PART = re.compile(r"\[(\"(?:[^\"\\]|\\.)*\")\]|\[(\d+)\]|([^.\[\]\"]+)")


def deeper(place: str, part: str | int) -> str:
    """Return the place of a part of a value."""
    if isinstance(part, int):
        return f"{place}[{part}]"
    if not _PLAIN_KEY.fullmatch(part):
        return f"{place}[{msgspec.json.encode(part).decode()}]"
    return f"{place}.{part}" if place else part


def place_parts(place: str) -> Iterator[str | int]:
    """Split a place into its keys and positions."""
    for quoted, number, key in _PART.findall(place):
        yield int(number) if number else key or msgspec.json.decode(quoted, type=str)


def part_at(value: Any, place: str) -> Any:
    """Return the part of a value at a place."""
    for part in place_parts(place):
        value = value[part]
    return value


def names_in_expression(expression: str) -> set[str]:
    """Return the names of values that a bare expression uses."""
    return set(_NAME.findall(TEXT.sub("''", expression))) - _WORDS
