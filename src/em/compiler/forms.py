"""Forms: the plain ways in which a value is written into a text, and how an expression says so.

Each form is a function of one value that code can repeat: an amount with two decimals, a date as
people write it, the first word of a name, a slug, the stem of a file, a list line by line. A form
is known by its expression, in which VALUE stands for the value.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from em.compiler.list_forms import (
    DATES,
    LENGTH,
    VALUE,
    evaluated,
    list_forms,
    totals_in,
    whole_words,
)
from em.compiler.places import is_number
from em.text.slug import has_humps
from em.values.times import is_date

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
