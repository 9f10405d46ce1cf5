"""The functions of expressions: one line each to say aloud. Whatever is not clear fails.

Filters of Jinja (`| round`, `| sum`, `| sort`) do the rest.

Selections choose and compare records. `name="Lamp"` describes the value of a field; a record as
value must be covered by the field; a list must be equal. A mapping before them takes names that are
no identifiers, and paths: `only(orders, {"ship-to.city": city}, status="open")`. A description
stands for the whole element, or for a part of it: `only(orders, {"items": holding(items)})`. Values
are compared as a clerk would (`same`), so a lamp is a "LAMP" and 1 is 1.0. A selection fails where
no element fits, several do, or a field is missing. Nothing is chosen by its position.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, NamedTuple, Union

from em.values.canonical import same, short
from em.values.times import is_date, seconds_of


def line_place(text: Any, how: str, *about: str) -> int:
    """Return how many lines stand before the place of new lines; see `_PLACES`."""
    if how not in _PLACES:
        raise ValueError(f"line_place() knows {', '.join(_PLACES)}, got {how!r}")
    return _PLACES[how](str(text), *about)


def _end(text: str) -> int:
    """Return how many lines a text has; the last one must end with a line break."""
    if text and not text.endswith("\n"):
        raise ValueError("the last line must end with a line break")
    return text.count("\n")


def _after(text: str, lines: str) -> int:
    """Return how many lines there are up to the end of some whole lines, which stand there once."""
    return _before(text, lines) + lines.count("\n")


def _before(text: str, lines: str) -> int:
    """Return how many lines stand before some whole lines, which stand there once."""
    whole = f"\n{text}"
    if not lines.endswith("\n") or whole.count(f"\n{lines}") != 1:
        raise ValueError(f"the lines {lines!r} must stand there once")
    return whole.partition(f"\n{lines}")[0].count("\n")


def _before_first(text: str, start: str, sign: str = "") -> int:
    """Return how many lines stand before the first one that begins with a text.

    sign: what comes next there: a `digit`, a `letter`, or a certain sign.
    """
    for number, line in enumerate(text.split("\n")):
        after = line[len(start) :][:1]
        if start and line.startswith(start) and (not sign or sign_of(after) == sign):
            return number
    raise ValueError(f"no line begins with {start!r}{f' and a {sign}' * bool(sign)}")


def _after_last(text: str, start: str) -> int:
    """Return how many lines there are up to the last one that begins with a text."""
    lines = text.split("\n")
    found = [number for number, line in enumerate(lines) if start and line.startswith(start)]
    if not found:
        raise ValueError(f"no line begins with {start!r}")
    return found[-1] + 1


def _after_block(text: str, start: str) -> int:
    """Return the same, if the lines that begin so follow each other: they are one list."""
    if not start:
        raise ValueError("line_place() needs what the lines of a block begin with")
    first, rows = _block(text, start)
    return first + len(rows)


def _after_list(text: str, heading: str, start: str) -> int:
    """Return how many lines there are up to the end of the list below a heading.

    heading: a whole line that stands there once. start: what the lines of the list begin with;
    empty lines may stand before and between them.
    """
    first = _after(text, f"{heading}\n")
    last = 0
    for number, line in enumerate(text.split("\n")[first:], first + 1):
        if line.strip() and not line.startswith(start):
            break
        last = number if line.strip() else last
    if not last:
        raise ValueError(f"no line below {heading!r} begins with {start!r}")
    return last


def _in_order(text: str, start: str, line: str) -> int:
    """Return how many lines stand before the place of a line in a list that is in order.

    start: what the lines of the list begin with.
    """
    first, rows = _block(text, start)
    if any(one >= two for one, two in itertools.pairwise(rows)):
        raise ValueError(f"the lines that begin with {start!r} are not in order")
    new = str(line).partition("\n")[0]
    return first + sum(row < new for row in rows)


def _block(text: str, start: str) -> tuple[int, list[str]]:
    """Return the lines that begin with a text, and how many stand before them.

    Without a beginning they are all lines that are not empty.
    """
    lines = text.split("\n")
    found = [number for number, line in enumerate(lines) if line and line.startswith(start)]
    if not found or found[-1] - found[0] != len(found) - 1:
        raise ValueError(
            f"the lines that begin with {start!r} must be there, without others between"
        )
    return found[0], lines[found[0] : found[-1] + 1]


def sign_of(text: str) -> str:
    """Return what kind of sign a text is: a digit, a letter, or itself."""
    return "digit" if text.isdigit() else "letter" if text.isalpha() else text


IN_ORDER = "in order"
"""The place of a line among others, which depends on its words."""
_PLACES: dict[str, Callable[..., int]] = {
    "end": _end,
    "after": _after,
    "before": _before,
    "before first": _before_first,
    "after last": _after_last,
    "after block": _after_block,
    "after list": _after_list,
    IN_ORDER: _in_order,
}
"""The places that `line_place` knows."""


def parts_of_lines(text: str, before: str, after: str) -> Iterator[str]:
    """Yield what stands between two texts on a line that has them.

    `before` may begin with a line break, and `after` may end with one: the line begins or ends
    there.
    """
    head, tail = before.removeprefix("\n"), after.removesuffix("\n")
    at_start, at_end = head != before, tail != after
    if "\n" in head or "\n" in tail or not (before or after):
        raise ValueError("what stands around a part of a line must be on that line")
    for line in text.split("\n"):
        start = line.find(head)
        while start >= 0 and not (at_start and start):
            rest = line[start + len(head) :]
            cut = len(rest) - len(tail) if at_end else rest.find(tail)
            if cut > 0 and (not at_end or rest.endswith(tail)):
                yield rest[:cut]
            start = line.find(head, start + 1)


def next_number(text: Any, before: str, after: str) -> str:
    """Return the number behind the greatest one between two texts on the lines of a text.

    It is as wide as that one, with zeros in front if it had some. Fails if there is none.
    """
    found = [part for part in parts_of_lines(str(text), before, after) if part.isdecimal()]
    if not found:
        raise ValueError(f"no line has a number between {before!r} and {after!r}")
    greatest = max(found, key=int)
    return str(int(greatest) + 1).zfill(len(greatest))


def stands_once(text: Any, part: Any, how: str = "") -> bool:
    """Return whether a text stands exactly once in another one; `lines`: as whole lines."""
    if how not in ("", "lines"):
        raise ValueError(f"stands_once() knows `lines`, got {how!r}")
    if not how:
        return bool(part) and str(text).count(str(part)) == 1
    whole, lines = f"\n{text}\n", str(part).removesuffix("\n")
    return bool(lines) and whole.count(lines) == 1 and f"\n{lines}\n" in whole


def stands_in(text: Any, part: Any, times: int = 1) -> bool:
    """Return whether a part stands in a text as words of its own: not `1.2` in `1.2.3`.

    A number stands there however it is written. times: how often it must stand there at least.
    """
    if isinstance(part, int | float) and not isinstance(part, bool):
        written = (float(one.replace(",", "")) for one in _NUMBER.findall(str(text)))
        return sum(one == part for one in written) >= times
    whole = str(part)
    before = _BEFORE if whole[:1].isalnum() else ""
    after = _AFTER if whole[-1:].isalnum() else ""
    found = re.finditer(f"{before}{re.escape(whole)}{after}", str(text))
    return bool(whole) and sum(1 for _ in found) >= times


_BEFORE, _AFTER = r"(?<!\w)(?<!\d[.,])", r"(?!\w)(?![.,]\d)"
_NUMBER = re.compile(rf"{_BEFORE}-?\d[\d,]*(?:\.\d+)?{_AFTER}", re.ASCII)


def lists_only(output: Any, *paths: str) -> bool:
    """Return whether a search found something in these files, and in no others.

    Each line of its output is a path, or begins with one and a colon.
    """
    found = {line.partition(":")[0] for line in str(output).split("\n") if line}
    own = {path.removeprefix("./") for path in paths}
    return bool(found) and {path.removeprefix("./") for path in found} <= own


_ROOTS = frozenset({"src", "lib", "python", "source", "sources", "app"})
"""Folders that are often not part of a module's name."""
_FIELD = re.compile(r"\{(\w*)(?::([^{}]+))?\}", re.ASCII)


def structure(text: Any) -> Any:
    """Return what a text writes out: JSON, a Python literal, `key: value` lines, or a table."""
    from em.values.structure import structured

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
    from em.text.slug import CASES, cased, slug

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


def dates_in(text: Any) -> list[str]:
    """Return the dates of a text in their order, without times: 2026-05-31."""
    return [one for one in _DATE_IN.findall(str(text)) if is_date(one)]


def numbers_in(text: Any) -> list[float]:
    """Return the numbers that stand in a text as words of their own, in their order."""
    return [float(one.replace(",", "")) for one in _NUMBER_IN.findall(str(text))]


_DATE_IN = re.compile(r"(?<![\w-])\d{4}-\d\d-\d\d(?![\w-])", re.ASCII)
_NUMBER_IN = re.compile(
    r"(?<![\w.,:/-])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w/-]|[.,:]\d)", re.ASCII
)


def sum_of(items: Any, *names: str) -> float:
    """Return the sum of a list of numbers, or of a field; of several fields their products."""
    rows = [[one[name] for name in names] if names else [one] for one in items]
    if not all(type(one) in (int, float) for row in rows for one in row):
        raise TypeError("sum_of() needs numbers")
    return round(sum(map(math.prod, rows)), 6)


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


MOST_SHOWN = 8
"""Candidates that an error lists."""
ABSENT = object()
"""What `given` gets for a name or a part that is not there."""
OMITTED = "omitted"
"""The name for an argument that is left out: `{{ note if given(note) else omitted }}`."""
LONGEST_KEPT = 300
"""Longer texts are not kept as they are compared."""
WHOLE = ""
"""The path of an element itself."""
_NUMBERS = (int, float)

Fields = Mapping[str, Any]
Described = Union[Fields, "HeldDescription", None]


def given(*values: Any) -> bool:
    """Return whether all of these are given: names of values, or parts of them.

    The evaluators pass ABSENT for what is not there, so this never fails. A null was given.
    """
    return all(value is not ABSENT for value in values)


def fits(value: Any, wanted: Any) -> bool:
    """Return whether a value is the wanted one; a record has every field of a description."""
    if type(value) is str and type(wanted) is str and len(value) < LONGEST_KEPT:
        return value == wanted or _as_read(value) == _as_read(wanted)  # most of them
    if isinstance(wanted, Limit | HeldDescription):
        return wanted.holds(value)
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and all(
            name in value and fits(value[name], one) for name, one in wanted.items()
        )
    return same(value, wanted)


@lru_cache(maxsize=10_000)
def _as_read(text: str) -> str:
    """Return a text as `same` compares it. A list is often searched for one thing after another."""
    return " ".join(text.split()).casefold()


def only(items: Any, more: Described = None, /, **fields: Any) -> Any:
    """Return the one element of a list, or the one value of a mapping, that fits; else fail."""
    found = where(items, more, **fields)
    if len(found) != 1:
        raise _misfit("only", items, len(found), more, fields)
    return found[0]


def only_key(items: Any, more: Described = None, /, **fields: Any) -> Any:
    """Return the key of the one value of a mapping that fits; else fail."""
    if not isinstance(items, Mapping):
        raise TypeError(f"only_key() needs a mapping, got a {type(items).__name__}")
    wanted = _all_fields(more, fields)
    found = [key for key, value in items.items() if not wanted or _is_described(value, wanted)]
    if len(found) != 1:
        raise _misfit("only_key", items, len(found), more, fields)
    return found[0]


def where(items: Any, more: Described = None, /, **fields: Any) -> list[Any]:
    """Return all elements of a list, or all values of a mapping, that fit."""
    wanted = _all_fields(more, fields)
    held = items_of(items)
    return [item for item in held if _is_described(item, wanted)] if wanted else held


def smallest(items: Any, path: str, more: Described = None, /, **fields: Any) -> Any:
    """Return the one element with the smallest value at a path, among those that fit.

    Fail if none fits, if one of them has no such value, and if two share the smallest.
    """
    return _farthest("smallest", min, items, path, more, fields)


def largest(items: Any, path: str, more: Described = None, /, **fields: Any) -> Any:
    """Return the one element with the largest value at a path, among those that fit."""
    return _farthest("largest", max, items, path, more, fields)


def _farthest(
    name: str,
    choose: Callable[[Sequence[Any]], Any],
    items: Any,
    path: str,
    more: Described,
    fields: Fields,
) -> Any:
    held = where(items, more, **fields)
    values = [_value_on(item, path) for item in held]
    if not values:
        raise _misfit(name, items, 0, more, fields)
    is_text = isinstance(values[0], str)
    for value in values:
        is_number = isinstance(value, _NUMBERS) and not isinstance(value, bool)
        if isinstance(value, str) is not is_text or not (is_text or is_number):
            shown = "nothing" if value is ABSENT else short(value)
            raise ValueError(f"{name}() can't compare the values at {path!r}: one is {shown}")
    best = choose(values)
    found = [item for item, value in zip(held, values, strict=True) if value == best]
    if len(found) != 1:
        raise ValueError(f"{len(found)} elements share the {name} {path!r}, {short(best)}")
    return found[0]


def common(items: Any, path: str, more: Described = None, /, **fields: Any) -> Any:
    """Return the value at a path that all elements which fit have in common; else fail."""
    values = [_value_on(item, path) for item in where(items, more, **fields)]
    if not values:
        raise _misfit("common", items, 0, more, fields)
    if any(not same(value, values[0]) for value in values):
        raise ValueError(f"the elements differ at {path!r}: {', '.join(map(short, values))}")
    return values[0]


class Limit(NamedTuple):
    """A limit that a field of a selection must keep to."""

    limit: Any
    is_least: bool

    def holds(self, value: Any) -> bool:
        """Return whether a value keeps to the limit; one that can't be compared does not."""
        try:
            return bool(value >= self.limit if self.is_least else value <= self.limit)
        except TypeError:
            return False


def at_least(limit: Any) -> Limit:
    """Return, for a field of a selection, that it must not be below a limit."""
    return Limit(limit, True)


def at_most(limit: Any) -> Limit:
    """Return, for a field of a selection, that it must not be above a limit."""
    return Limit(limit, False)


class HeldDescription(NamedTuple):
    """A description that a field of a selection must hold."""

    description: Any

    def holds(self, value: Any) -> bool:
        """Return whether a value is as described."""
        return is_held(self.description, value)


def holding(description: Any) -> HeldDescription:
    """Return, for a field of a selection, that a description is found in it.

    A record has every field of the description. A list has an element for each one of a list of
    descriptions, or one for a single description. Fail if nothing is described.
    """
    every = description if isinstance(description, list | tuple) else [description]
    if not every or not all(map(is_telling, every)):
        raise ValueError("a description needs at least one property")
    return HeldDescription(description)


def is_telling(description: Any) -> bool:
    """Return whether a description has at least one property."""
    return not isinstance(description, Mapping | list | tuple) or any(
        map(is_telling, items_of(description))
    )


def is_held(description: Any, value: Any) -> bool:
    """Return whether a description is found in a value; see `holding`."""
    if isinstance(description, list | tuple):
        return isinstance(value, list | tuple) and all(
            sum(is_held(one, held) for held in value)
            >= sum(same(one, other) for other in description)
            for one in description
        )
    if isinstance(value, list | tuple):
        return any(is_held(description, held) for held in value)
    if isinstance(description, Mapping):
        return isinstance(value, Mapping) and all(
            name in value and is_held(one, value[name]) for name, one in description.items()
        )
    return same(value, description)


def merge(old: Any, new: Any) -> Any:
    """Return the old record with the fields of the new one; fail if the old one lacks a field."""
    for record in (old, new):
        if not isinstance(record, Mapping):
            raise TypeError(f"merge() needs two records, got a {type(record).__name__}")
    lost = [name for name in new if name not in old]
    if lost:
        raise ValueError(f"the record has no field {lost[0]!r}; it has: {', '.join(map(str, old))}")
    return {**old, **new}


def distinct(values: Any) -> bool:
    """Return whether no value of a list is there twice, by `same`."""
    held = items_of(values)
    return len({_identity(value) for value in held}) == len(held)


def _identity(value: Any) -> Any:
    """Return a key that is equal for two values that are the same."""
    if isinstance(value, str):
        return " ".join(value.split()).casefold()
    if isinstance(value, Mapping):
        return dict, frozenset((name, _identity(held)) for name, held in value.items())
    if isinstance(value, list | tuple):
        return list, tuple(map(_identity, value))
    return type(value) is bool, value


def items_of(items: Any) -> list[Any]:
    """Return the items of a list, or the values of a mapping."""
    if isinstance(items, Mapping):
        return list(items.values())
    if isinstance(items, Iterable) and not isinstance(items, str):
        return list(items)
    raise ValueError(f"a {type(items).__name__} has no items")


def _all_fields(more: Described, fields: Fields) -> Fields:
    """Return all conditions; one that is omitted is none."""
    if isinstance(more, HeldDescription):
        more = {WHOLE: more}
    if more is not None and not isinstance(more, Mapping):
        raise TypeError(f"fields must be a mapping of names to values, got {short(more)}")
    every = {**more, **fields} if more else fields
    return {name: one for name, one in every.items() if one is not ABSENT}


def _is_described(item: Any, fields: Fields) -> bool:
    """Return whether a record fits a description whose names may be paths."""
    if type(item) is not dict and not isinstance(item, Mapping):
        return False
    for name, wanted in fields.items():
        value = item[name] if name in item else _found_on(item, name)
        if value is ABSENT or not fits(value, wanted):
            return False
    return True


def _found_on(item: Any, path: str) -> Any:
    """Return the value at a path, all values at `items.*.name`, or the item itself."""
    if path == WHOLE:
        return item
    before, star, after = path.partition(".*")
    if not star:
        return _value_on(item, path)
    held = _value_on(item, before)
    if not isinstance(held, list | tuple | Mapping):
        return ABSENT
    found = [_value_on(one, after[1:]) if after else one for one in items_of(held)]
    return [one for one in found if one is not ABSENT]


def _value_on(item: Any, path: str) -> Any:
    """Return the value at a path such as `options.size`; ABSENT if there is none."""
    for part in path.split("."):
        if not isinstance(item, Mapping) or part not in item:
            return ABSENT
        item = item[part]
    return item


def _misfit(name: str, items: Any, count: int, more: Described, fields: Fields) -> ValueError:
    """Return the error of a selection that found none or several."""
    wanted = _all_fields(more, fields)
    held = items_of(items)
    asked = ", ".join(_shown(key, value) for key, value in wanted.items())
    if not wanted:
        return ValueError(f"{name}() needs exactly one item, there are {len(held)}")
    message = f"{name}({asked}) needs exactly one item, {count} of {len(held)} fit"
    if count == 0:
        rows = [
            {key: value for key in wanted if (value := _found_on(item, key)) is not ABSENT}
            for item in held[:MOST_SHOWN]
        ]
        message += f"; there are {', '.join(map(short, rows))}" if rows else ""
    return ValueError(message)


def _shown(name: str, wanted: Any) -> str:
    if isinstance(wanted, HeldDescription):
        wanted = wanted.description
    return f"{name}={short(wanted)}" if name else short(wanted)


KEYS = "@"
"""The part of a path that stands for the keys of a mapping."""
ANY = "*"
"""The part of a path that stands for every item of a list, or every value of a mapping."""
MAX_BITS = 4096
"""The largest size of a whole number, in bits."""


def check_size(bits: int) -> None:
    """Fail if a whole number is too large: computing with it could take for ever."""
    if bits > MAX_BITS:
        raise ValueError("the number is too large")


def bounded(number: int) -> int:
    """Return a whole number, if it is not too large."""
    check_size(number.bit_length())
    return number


def every(value: Any, path: str) -> list[Any]:
    """Return all values at a path such as `items.*.id`: `*` is any item, `@` are the keys.

    The path of a list begins in its items.
    """
    parts = path.split(".")
    if isinstance(value, list | tuple) and parts[0] not in (ANY, KEYS):
        parts.insert(0, ANY)
    return at_path(value, parts)


def at_path(value: Any, parts: list[str]) -> list[Any]:
    """Follow a path one level at a time, which is fast for long lists."""
    found = [value]
    for part in parts:
        held, found = found, []
        if part == ANY:
            for one in held:
                if isinstance(one, Mapping):
                    found += one.values()
                elif isinstance(one, list | tuple):
                    found += one
        elif part == KEYS:
            for one in held:
                found += one if isinstance(one, Mapping) else ()
        else:
            found = [one[part] for one in held if isinstance(one, Mapping) and part in one]
    return found


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        given, only, only_key, where, smallest, largest, common, every, distinct, merge,
        at_least, at_most, holding, structure, between, part_of, shown, quoted, days, elapsed,
        later, lines, line_place, next_number, stands_once, stands_in, lists_only, len,
        dates_in, numbers_in, sum_of,
    )
}  # fmt: skip
"""The functions that routines and workflows may call."""
SCOPE: dict[str, Any] = {**FUNCTIONS, OMITTED: ABSENT}
"""What their expressions have in scope beside values: the functions, and the word `omitted`."""
