"""Texts: the functions with which a plain routine reads a text, and writes values into one."""

import itertools
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any

from em.runner.expressions.file_lines import parts_of_lines
from em.text.slug import CASES, cased, slug
from em.values.canonical import short
from em.values.structure import structured
from em.values.times import is_date, seconds_of

_ROOTS = frozenset({"src", "lib", "python", "source", "sources", "app"})
"""Folders that are often not part of a module's name."""
_FIELD = re.compile(r"\{(\w*)(?::([^{}]+))?\}", re.ASCII)


def structure(text: Any) -> Any:
    """Return what a text writes out: JSON, a Python literal, `key: value` lines, or a table."""
    return structured(text)


def part_of(text: Any, part: str) -> str:
    """Return a part of a text that has a name: its first word, or the stem of a path."""
    if not isinstance(text, str):
        raise TypeError(f"part_of() needs a text, got a {type(text).__name__}")
    if part not in _PARTS:
        raise ValueError(f"part_of() knows {', '.join(_PARTS)}, got {part!r}")
    return _PARTS[part](text)


def _word(text: str, number: int) -> str:
    words = text.split()
    if not words:
        raise ValueError("the text has no word")
    return words[number]


def _folder(path: str) -> str:
    """Return the folder of a file, without a slash at its end; empty for a file in none."""
    found = str(PurePosixPath(path).parent)
    return "" if found == "." else found


def _module(path: str) -> str:
    """Return the name that Python imports a file by: `shop.cart` for `src/shop/cart.py`.

    Fail where another folder than `src` may not be part of the name.
    """
    plain = path.removeprefix("./")
    parts = plain.removesuffix(".py").split("/")
    if not plain.endswith(".py"):
        raise ValueError(f"{plain!r} is not a file of Python")
    if parts[0] == "src" and len(parts) > 1:
        parts = parts[1:]
    elif parts[0] in _ROOTS:
        raise ValueError(f"it is not clear whether {parts[0]!r} is part of a module's name")
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    if not parts or not all(part.isidentifier() for part in parts):
        raise ValueError(f"{plain!r} can't be imported by its path")
    return ".".join(parts)


_PARTS: dict[str, Callable[[str], str]] = {
    "first word": lambda text: _word(text, 0),
    "last word": lambda text: _word(text, -1),
    "name": lambda path: PurePosixPath(path).name,
    "stem": lambda path: PurePosixPath(path).stem,
    "folder": _folder,
    "module": _module,
}
"""The parts that `part_of` knows: of any text, then of the path of a file."""


def shown(value: Any, form: str) -> str:
    """Return a date (`%d.%m.%Y`), a number (`,.2f`, `03d`) or a text (`slug`) in this form."""
    if form in _SLUGS:
        return slug(value, _SLUGS[form])
    if form in CASES:
        return cased(value, form)
    if "%" in form:
        if not is_date(value):
            raise ValueError(f"shown() needs a date such as 2026-05-31, got {value!r}")
        return datetime.fromisoformat(value).strftime(form)
    if not _SPEC.fullmatch(form) or isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"shown() can't write {value!r} as {form!r}")
    return format(value, form)


def quoted(value: Any, how: str) -> str:
    """Return a text as it must stand in another language: url, query, html, json, sql, shell."""
    # Few routines quote, and a run must start fast.
    import html
    import json
    import shlex
    from urllib.parse import quote, quote_plus

    known: dict[str, Callable[[Any], str]] = {
        "url": lambda text: quote(text, safe=""),
        "query": quote_plus,
        "html": html.escape,
        "json": lambda value: json.dumps(value, ensure_ascii=False),
        "sql": lambda text: text.replace("'", "''"),
        "shell": shlex.quote,
    }
    if how not in known:
        raise ValueError(f"quoted() knows {', '.join(known)}, got {how!r}")
    return known[how](value if how == "json" else str(value))


_SLUGS = {"slug": "-", "snake": "_", "words": " ", "flat": ""}
"""What stands between the words of a text: `desk-lamp`, `desk_lamp`, `desk lamp`, `desklamp`."""
_SPEC = re.compile(r"0?[0-9]{0,2},?(?:\.[0-9])?[df]")


def days(first: str, last: str) -> int:
    """Return how many days lie between two dates."""
    if not is_date(first) or not is_date(last):
        raise ValueError(f"days() needs two dates, got {first!r} and {last!r}")
    both = (datetime.fromisoformat(one).date() for one in (first, last))
    return (-(next(both) - next(both))).days


SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400, "weeks": 604_800}
"""The units of `elapsed`."""


def elapsed(first: Any, last: Any, unit: str) -> float:
    """Return how much time lies between two moments: texts in ISO 8601, or seconds since 1970."""
    start, end = seconds_of(first), seconds_of(last)
    if start is None or end is None:
        raise ValueError(f"elapsed() needs two moments, got {first!r} and {last!r}")
    if unit not in SECONDS:
        raise ValueError(f"elapsed() knows {', '.join(SECONDS)}, got {unit!r}")
    return (end - start) / SECONDS[unit]


def later(day: str, count: int) -> str:
    """Return the date so many days after another one; a number below zero is before it."""
    if not is_date(day) or "T" in day or isinstance(count, bool) or not isinstance(count, int):
        raise ValueError(f"later() needs a date and a whole number, got {day!r} and {count!r}")
    try:
        return (date.fromisoformat(day) + timedelta(days=count)).isoformat()
    except OverflowError:
        raise ValueError(f"there is no date {count} days after {day}") from None


def lines(items: list[Any], form: str, glue: str = "\n") -> str:
    """Return a text of each element, such as `{name}: {price:.2f}`; `{}` is the element itself."""
    return glue.join(_line(item, form) for item in items)


def _line(item: Any, form: str) -> str:
    return _FIELD.sub(lambda match: _part(item, match[1], match[2]), form)


def _part(item: Any, name: str, form: str | None) -> str:
    if name and (not isinstance(item, Mapping) or name not in item):
        raise ValueError(f"lines() needs {name!r} in every element")
    value = item[name] if name else item
    if value is None or isinstance(value, dict | list):
        raise ValueError(f"lines() can't write {short(value)} into a text")
    return str(value) if form is None else shown(value, form)


def between(text: Any, before: str, after: str, how: str = "") -> str:
    """Return the part of a text between two texts. Each of the two must occur just once.

    how: `line` for the part of the one line that has both; a line break at the beginning of
    `before` or at the end of `after` is where the line begins or ends.
    """
    if how not in ("", "line"):
        raise ValueError(f"between() knows `line`, got {how!r}")
    whole = str(text)
    if how:
        found = list(itertools.islice(parts_of_lines(whole, before, after), 2))
        if len(found) != 1:
            which = "more than one line has" if found else "no line has"
            raise ValueError(f"{which} something between {before!r} and {after!r}")
        return found[0]
    if before and whole.count(before) != 1:
        raise ValueError(f"the text must contain {before!r} once")
    rest = whole.partition(before)[2] if before else whole
    if after and rest.count(after) != 1:
        raise ValueError(f"the text must contain {after!r} once")
    return rest.partition(after)[0] if after else rest


_KINDS = {
    "e-mail": re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+"),
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\S*"),
    "time": re.compile(r"(?:[01]?[0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9])?"),
    "number": re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)*"),
    "code": re.compile(r"(?=\S*[0-9])\S*[^\s,;]"),
    "word": re.compile(r"\S*[^\s,;]"),
}


def kind_of(value: Any) -> str:
    """Return what a value looks like, so that an error message is not taken for an id."""
    if type(value) is str and len(value) <= SHORT:
        return _kind_of_text(value)
    if isinstance(value, list | tuple):
        return ", ".join(sorted({kind_of(one) for one in value}))
    if isinstance(value, bool | Mapping) or value is None:
        return "none" if value is None else type(value).__name__
    return _looked_at(str(value))


SHORT = 200
"""Characters of a text whose kind is worth remembering."""


def _looked_at(text: str) -> str:
    kinds = (kind for kind, form in _KINDS.items() if form.fullmatch(text))
    return next((kind for kind in kinds if kind != "date" or _is_day(text)), "text")


def _is_day(text: str) -> bool:
    """Return whether a text begins with a day that the calendar has."""
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return False
    return True


_kind_of_text = lru_cache(maxsize=10_000)(_looked_at)
