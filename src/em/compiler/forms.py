"""Forms: the plain ways in which a value is written into a text, and how an expression says so.

Each form is a function of one value that code can repeat: an amount with two decimals, a date as
people write it, the first word of a name, a slug, the stem of a file, a list line by line. A form
is known by its expression, in which VALUE stands for the value. The elements of a list are joined,
or written out one like the other; or they are counted or summed up.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from em.compiler.places import is_number, is_scalar
from em.errors import ExpressionError
from em.runner.expressions.functions import lines, shown
from em.runner.expressions.language import compile_expression
from em.text.slug import has_humps
from em.values.times import is_date

VALUE = "\0"
LENGTH = f"{VALUE} | length"
COUNT = f"{VALUE} | count"
"""The length as a number, not as a part of a text."""
DATES = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y%m%d", "%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y",
    "%A", "%a", "%B", "%b", "%Y/%m/%d", "%Y-%m", "%Y/%m", "%B %Y", "%b %Y", "%Y%m%dT%H%M%S",
    "%d.%m.", "%d %B", "%B %d", "%H:%M", "%Y-%m-%d", "%A, %d %B %Y", "%d-%m-%Y", "%y%m%d",
    "%d.%m.%y", "%-d %B %Y", "%B %-d, %Y", "%-d %b %Y", "%b %-d, %Y", "%-d.%-m.%Y", "%-m/%-d/%Y",
    "%-d %B", "%B %-d", "%b %-d", "%-d %b", "%a %-d %b", "%A %-d %B", "%Y", "%m", "%d",
)  # fmt: skip
"""The ways to write a date or a part of it; the last three are numbers."""
MOST_GLUE = 12
"""Characters between two elements of a list in a text."""
MOST_LISTED = 200
"""Elements of a list that is looked for in a text."""
ENOUGH_DIGITS = 3
"""Digits that a sum in a text needs, so that it is not there by chance."""
STRING = r'("(?:[^"\\]|\\.)*")'
_JOINED = re.compile(rf"{VALUE}(?:\[:-1\])? \| join\({STRING}\)(?: ~ {STRING} ~ {VALUE}\[-1\])?")
PLAIN_NUMBER = f"{VALUE} | string"
JSON = f'quoted({VALUE}, "json")'
URL = f'quoted({VALUE}, "url")'
QUERY = f'quoted({VALUE}, "query")'
SQL = f'quoted({VALUE}, "sql")'
SHELL = f'quoted({VALUE}, "shell")'
FIRST_WORD = f'part_of({VALUE}, "first word")'
LAST_WORD = f'part_of({VALUE}, "last word")'


def _is_whole(value: Any) -> bool:
    return type(value) is int


def _is_bare(value: Any) -> bool:
    """Return whether a text has no quotation mark at its ends: there it may be the text's own."""
    return _is_text(value) and not {value[:1], value[-1:]} & {"'", '"'}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _has_words(value: Any) -> bool:
    return isinstance(value, str) and len(value.split()) > 1


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and " " not in value and ("/" in value or "." in value)


def _has_humps(value: Any) -> bool:
    return isinstance(value, str) and has_humps(value)


def _is_name(value: Any) -> bool:
    """Return whether a text is words, also with other signs than spaces between them."""
    return _is_text(value) and not has_humps(value)


def _is_module(value: Any) -> bool:
    return _is_path(value) and value.endswith(".py")


def _is_filled(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


_GROUPS: tuple[tuple[Callable[[Any], bool], tuple[str, ...]], ...] = (
    (is_number, (PLAIN_NUMBER, *(f'shown({VALUE}, "{form}")' for form in (".2f", ",.2f", ".1f")))),
    (is_number, (f'shown({VALUE}, ".2f") | replace(".", ",")',)),
    (
        _is_whole,
        tuple(f'shown({VALUE}, "{form}")' for form in (",d", *map("0{}d".format, range(2, 7)))),
    ),
    (is_number, (f"{VALUE} | round | int",)),
    (
        _is_text,
        tuple(f"{VALUE} | {how}" for how in ("lower", "upper", "title", "capitalize", "trim")),
    ),
    (_has_words, (FIRST_WORD, LAST_WORD)),
    (_has_words, (f"{FIRST_WORD} | lower", f"{LAST_WORD} | lower")),
    (_is_text, tuple(f'{VALUE} | lower | replace(" ", "{sign}")' for sign in ("-", "_", ""))),
    (_is_text, tuple(f'{VALUE} | replace(" ", "{sign}")' for sign in ("-", "_", ""))),
    (_is_text, tuple(f'shown({VALUE}, "{form}")' for form in ("slug", "snake", "flat"))),
    (_is_path, tuple(f'part_of({VALUE}, "{part}")' for part in ("stem", "name", "folder"))),
    (_is_text, (URL, QUERY, f'quoted({VALUE}, "html")')),
    (_is_bare, (SQL, SHELL, JSON)),
    (_is_module, (f'part_of({VALUE}, "module")',)),
    (_is_text, (f'shown({VALUE}, "words") | title | replace(" ", "")',)),
    (
        _has_humps,
        (
            *(f'shown({VALUE}, "{case}")' for case in ("dashed", "underscored", "spaced")),
            *(f'shown({VALUE}, "spaced") | {how}' for how in ("title", "capitalize")),
            f'shown({VALUE}, "underscored") | upper',
            *(f'shown({VALUE}, "{case}")' for case in ("camel", "pascal")),
        ),
    ),
    (
        _is_name,
        (
            f'shown({VALUE}, "camel")',
            f'shown({VALUE}, "snake") | upper',
            *(f'shown({VALUE}, "words") | {how}' for how in ("title", "capitalize")),
        ),
    ),
    (_is_filled, (LENGTH,)),
    (is_date, tuple(f'shown({VALUE}, "{form}")' for form in DATES)),
)
FORMS = {form: is_fit for is_fit, forms in _GROUPS for form in forms}
"""The plain forms, each with the values that it is for."""
_OF_PARTS = {f'shown({VALUE}, "{form}")' for form in ("%m", "%d")}
_YEAR = f'shown({VALUE}, "%Y")'


def forms_of(value: Any, text: str) -> Iterator[tuple[str, str]]:
    """Yield the forms of a value that stand in a text: the expression, and what it makes."""
    if isinstance(value, list):
        yield from list_forms(value, text)
        yield from totals_in(value, text)
        if value:
            yield LENGTH, str(len(value))
        return
    if isinstance(value, str) and value.isascii() and not is_date(value):
        # Whatever the form of a text, a word of it stays.
        below = text.lower()
        if not any(word in below for word in re.findall(r"[a-z0-9]+", value.lower())):
            return
    year = applied(_YEAR, value)
    for expression, made in _every_form(value):
        if made not in text:
            continue
        # A day or a month alone is a small number like any other.
        if expression in _OF_PARTS and (year is None or year not in text):
            continue
        yield expression, made


@lru_cache(maxsize=5_000, typed=True)
def _every_form(value: Any) -> tuple[tuple[str, str], ...]:
    """Return the forms of a scalar that make something else of it: the expression, what it makes.

    A value is looked for in each text that is written after it was read.
    """
    made = ((expression, applied(expression, value)) for expression in FORMS)
    return tuple((expression, one) for expression, one in made if one and one != value)


def part_forms(text: str, value: Any) -> Iterator[str]:
    """Yield the forms that find a value in a text, by the wording around it.

    The wording reaches to the next number on either side, so that it is checked, too.
    """
    written = str(value)
    kind = " | int" if type(value) is int else " | float" if isinstance(value, float) else ""
    for match in re.finditer(whole_words(written), text):
        before = _WORDING_BEFORE.search(text[max(0, match.start() - _WORDING) : match.start()])
        after = _WORDING_AFTER.match(text[match.end() : match.end() + _WORDING])
        if before is None or after is None:
            continue
        around = (json.dumps(one[0], ensure_ascii=False) for one in (before, after))
        expression = f"between({VALUE}, {', '.join(around)}){kind}"
        if applied(expression, text) == value:
            yield expression


_WORDING = 200
"""More characters than the wording beside a value may have."""
_WORDING_BEFORE = re.compile(r"[^\d\n]{0,60}\n?[^\d\n]{1,60}$|^$")
_WORDING_AFTER = re.compile(r"[^\d\n]{1,60}\n?[^\d\n]{0,60}|\n[^\d\n]{0,60}|$")


def is_measure(text: str) -> bool:
    """Return whether a text is a number with its unit, as `12 kg`: no number in it is there by
    chance.
    """
    return _MEASURE.fullmatch(text) is not None


_MEASURE = re.compile(r"(?:[^\W\d_]+ |[^\w\s] ?)?\d+(?:\.\d+)? ?(?:[^\W\d_]+|[^\w\s])?")


def is_part(form: str) -> bool:
    """Return whether a form takes a part out of a text by the words around it."""
    return form.startswith("between(")


def applied(form: str, value: Any) -> Any:
    """Return what a form makes of a value; None if it does not fit such a value."""
    if form not in FORMS:
        return evaluated(form, value) if value != [] else None
    if not FORMS[form](value):
        return None
    return str(evaluated(form, value)) if _is_filled(value) else _written(form, value)


@lru_cache(maxsize=50_000, typed=True)
def _written(form: str, value: Any) -> str | None:
    made = evaluated(form, value)
    return None if made is None else str(made)


def evaluated(form: str, value: Any) -> Any:
    """Return what a form makes of a value in a run; None if it can't be made of such a value."""
    try:
        return compile_expression(form.replace(VALUE, "value"), "form")({"value": value})
    except (ExpressionError, ArithmeticError, LookupError, TypeError, ValueError):
        return None


def totals_of(items: list[Any]) -> Iterator[str]:
    """Yield the forms that make one number of a list: the sum of its numbers, or of a field."""
    if items:
        yield COUNT
    if len(items) > 1 and all(map(is_number, items)):
        yield f"{VALUE} | sum{_rounded(items)}"
    if items and all(isinstance(item, Mapping) for item in items):
        for name in items[0]:
            is_field = re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) is not None
            values = [item.get(name) for item in items]
            if len(items) > 1 and is_field and all(map(is_number, values)):
                yield f'{VALUE} | sum(attribute="{name}"){_rounded(values)}'


def _rounded(values: list[Any]) -> str:
    return " | round(6)" if any(isinstance(value, float) for value in values) else ""


def totals_in(items: list[Any], text: str) -> Iterator[tuple[str, str]]:
    """Yield the sums of a list that stand in a text and have enough digits to be no accident."""
    for expression in totals_of(items):
        if expression == COUNT:
            continue
        forms = [f"{expression} | string"]
        forms += [f'shown({expression}, "{spec}")' for spec in (".2f", ",.2f")]
        for form in forms:
            made = evaluated(form, items)
            if made and made in text and sum(map(str.isdigit, made)) >= ENOUGH_DIGITS:
                yield form, made


def list_forms(items: list[Any], text: str) -> Iterator[tuple[str, str]]:
    """Yield how a list of at least two elements is written out in a text."""
    if not 2 <= len(items) <= MOST_LISTED:
        return
    made = [*_joined(items, text)] if all(map(is_scalar, items)) else []
    forms = {one: evaluated(one, items) for one in made or _lines(items, text)}
    found = {one: whole for one, whole in forms.items() if whole and whole in text}
    # What stands between the elements is short: the rest is the text around another one of them.
    shortest = min(map(len, found.values()), default=0)
    for expression, whole in found.items():
        if made and len(whole) > shortest:
            continue
        yield expression, whole


def _joined(items: list[Any], text: str) -> Iterator[str]:
    """Yield the form of scalars with the same short text between all of them, or all but one."""
    texts = [str(one) for one in items]
    start = text.find(texts[0])
    while start >= 0:
        glues = []
        end = start + len(texts[0])
        for one in texts[1:]:
            at = text.find(one, end, end + MOST_GLUE + len(one))
            if at <= end:
                break
            glues.append(text[end:at])
            end = at + len(one)
        if len(glues) == len(texts) - 1:
            glue = json.dumps(glues[0], ensure_ascii=False)
            if len({*glues}) == 1:
                yield f"{VALUE} | join({glue})"
            elif len({*glues[:-1]}) == 1:
                last = json.dumps(glues[-1], ensure_ascii=False)
                yield f"{VALUE}[:-1] | join({glue}) ~ {last} ~ {VALUE}[-1]"
        start = text.find(texts[0], start + 1)


def sizes(expression: str, value: Any) -> str:
    """Return how long a list must be for a form, as a comparison; "" if any will do.

    `A and B` does not show how three of them are written, and `A, B and C` not how one is.
    """
    found = _JOINED.fullmatch(expression)
    if found is None or not isinstance(value, list):
        return ""
    if found[2] is not None:
        return "> 1"
    return "== 2" if len(value) == 2 and any(map(str.isalnum, json.loads(found[1]))) else ""


def _lines(items: list[Any], text: str) -> Iterator[str]:
    """Yield the form of elements that are written out one like the other."""
    others = _fields(items[1])
    for name, value in _fields(items[0]).items():
        if name not in others or not value or value not in text or others[name] not in text:
            continue
        for match in re.finditer(whole_words(value), text):
            then = re.search(whole_words(others[name]), text[match.end() :])
            if then is not None and then.start() > 0:
                between = text[match.end() : match.end() + then.start()]
                yield from _periods(items, text[: match.start()], name, between)


def _periods(items: list[Any], head: str, name: str, between: str) -> Iterator[str]:
    """Yield the forms in which `between` is the end of one element, a glue, and a beginning."""
    cuts = [
        (found.start(), found.end()) for found in re.finditer(r"\n|, |; |,|;| \| |\t| ", between)
    ]
    for start, end in cuts:
        after, glue, before = between[:start], between[start:end], between[end:]
        ending = _template(after, items[0])
        beginning = _template(before, items[1])
        form = f"{beginning}{{{name}}}{ending}"
        if not head.endswith(applied_line(beginning, items[0])):
            continue
        yield (
            f"lines({VALUE}, {json.dumps(form, ensure_ascii=False)},"
            f" {json.dumps(glue, ensure_ascii=False)})"
        )


def applied_line(form: str, item: Any) -> str:
    """Return the text of one element; empty if a field is missing."""
    try:
        return lines([item], form)
    except ValueError:
        return ""


def _fields(item: Any) -> dict[str, str]:
    """Return how the fields of an element may be written, by how a form names them."""
    rows = item.items() if isinstance(item, Mapping) else [("", item)]
    found: dict[str, str] = {}
    for name, value in rows:
        if not re.fullmatch(r"\w*", name, re.ASCII) or not is_scalar(value) or value is None:
            continue
        found[name] = str(value)
        if is_number(value):
            found |= {f"{name}:{form}": shown(value, form) for form in (".2f", ",.2f")}
        if is_date(value):
            found |= {f"{name}:{form}": shown(value, form) for form in DATES[:-3]}
    return found


def _template(text: str, item: Any) -> str:
    """Return a text with the values of an element replaced by their fields, longest first."""
    found = sorted(_fields(item).items(), key=lambda row: -len(row[1]))
    pieces: list[tuple[str, bool]] = [(text, False)]
    for name, value in found:
        if not value:
            continue
        split: list[tuple[str, bool]] = []
        for piece, is_field in pieces:
            parts = [piece] if is_field else re.split(whole_words(value), piece)
            for number, part in enumerate(parts):
                if number:
                    split.append((f"{{{name}}}", True))
                split.append((part, is_field))
        pieces = split
    return "".join(piece for piece, _ in pieces)


def whole_words(value: str) -> str:
    """Return a pattern that finds a text as whole words, and a number as a whole."""
    is_number = re.fullmatch(r"[\d.]+", value) is not None
    left = (r"(?<!\w)" + r"(?<!\d\.)" * is_number) if value[0].isalnum() else ""
    right = (r"(?!\w)" + r"(?!\.\d)" * is_number) if value[-1].isalnum() else ""
    return f"{left}{re.escape(value)}{right}"
