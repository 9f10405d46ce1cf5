"""Texts: the functions with which a plain routine reads a text, and writes values into one."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from em.text.slug import slug as slug  # noqa: PLC0414 - a function of expressions
from em.values.structure import structured
from em.values.times import is_date

_FIELD = re.compile(r"\{(\w*)\}", re.ASCII)


def structure(text: Any) -> Any:
    """Return what a text writes out: JSON, a Python literal, `key: value` lines, or a table."""
    return structured(text)


def word(text: str, number: int) -> str:
    """Return a word of a text by its position; -1 is the last one."""
    words = text.split()
    if not -len(words) <= number < len(words):
        raise ValueError(f"the text has {len(words)} words, so there is none at {number}")
    return words[number]


def stem(path: str) -> str:
    """Return the name of a file without its folder and its ending."""
    return PurePosixPath(path).stem


def file_name(path: str) -> str:
    """Return the name of a file without its folder."""
    return PurePosixPath(path).name


def folder(path: str) -> str:
    """Return the folder of a file, without a slash at its end."""
    parent = str(PurePosixPath(path).parent)
    return "" if parent == "." else parent


def date_text(date: str, form: str) -> str:
    """Return a date as a text of another form, such as `%d.%m.%Y`."""
    if not is_date(date):
        raise ValueError(f"date_text() needs a date such as 2026-05-31, got {date!r}")
    return datetime.fromisoformat(date).strftime(form)


def days(first: str, last: str) -> int:
    """Return how many days lie between two dates."""
    if not is_date(first) or not is_date(last):
        raise ValueError(f"days() needs two dates, got {first!r} and {last!r}")
    both = (datetime.fromisoformat(one).date() for one in (first, last))
    return (-(next(both) - next(both))).days


def lines(items: list[Any], form: str, glue: str = "\n") -> str:
    """Return a text of each element, such as `{name}: {price}`; `{}` is the element itself."""
    return glue.join(_line(item, form) for item in items)


def _line(item: Any, form: str) -> str:
    return _FIELD.sub(lambda match: _part(item, match[1]), form)


def _part(item: Any, name: str) -> str:
    if not name:
        return str(item)
    if not isinstance(item, Mapping) or name not in item:
        raise ValueError(f"lines() needs {name!r} in every element")
    return str(item[name])


TEXTS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (structure, word, slug, stem, file_name, folder, date_text, days, lines)
}
"""These functions by name."""
