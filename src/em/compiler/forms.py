"""Forms: the plain ways in which a value is written into a text, and how an expression says so.

Each form is a function of one value that code can repeat: an amount with two decimals, a date as
people write it, the first word of a name, a slug, the stem of a file, a list line by line. A form
is known by its expression, in which VALUE stands for the value.
"""

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from em.compiler.listing import (
    DATES,
    LENGTH,
    STRING,
    VALUE,
    list_forms,
    listed,
    totals_in,
    whole_words,
)
from em.runner.expressions.file_lines import module_name
from em.runner.expressions.functions import between
from em.runner.expressions.texts import file_part, quoted, shown
from em.text.slug import slug
from em.values.times import is_date

Apply = Callable[[Any], str | None]


def _of_number(write: Callable[[Any], str]) -> Apply:
    def apply(value: Any) -> str | None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return write(value) if is_number else None

    return apply


def _of_whole(spec: str) -> Apply:
    return lambda value: shown(value, spec) if type(value) is int else None


def _of_text(write: Callable[[str], str]) -> Apply:
    def apply(value: Any) -> str | None:
        return write(value) if isinstance(value, str) and value.strip() else None

    return apply


def _word(number: int) -> Callable[[str], str]:
    return lambda text: text.split()[number] if len(text.split()) > 1 else ""


def _of_date(form: str) -> Apply:
    def apply(value: Any) -> str | None:
        return datetime.fromisoformat(value).strftime(form) if is_date(value) else None

    return apply


def _of_path(part: str) -> Apply:
    def apply(value: Any) -> str | None:
        if not isinstance(value, str) or " " in value or not ("/" in value or "." in value):
            return None
        return file_part(value, part)

    return apply


def _length(value: Any) -> str | None:
    return str(len(value)) if isinstance(value, list) and value else None


def _in_capitals(text: str) -> str:
    return slug(text, " ").title().replace(" ", "")


def _module(value: Any) -> str | None:
    if not isinstance(value, str) or " " in value or not value.endswith(".py"):
        return None
    try:
        return module_name(value, "src")
    except ValueError:
        return None


PLAIN_NUMBER = f"{VALUE} | string"
JSON = f'quoted({VALUE}, "json")'
URL = f'quoted({VALUE}, "url")'
QUERY = f'quoted({VALUE}, "query")'
SQL = f'quoted({VALUE}, "sql")'
SHELL = f'quoted({VALUE}, "shell")'
FORMS: dict[str, Apply] = {
    PLAIN_NUMBER: _of_number(str),
    f'shown({VALUE}, ".2f")': _of_number(lambda value: shown(value, ".2f")),
    f'shown({VALUE}, ",.2f")': _of_number(lambda value: shown(value, ",.2f")),
    f'shown({VALUE}, ".1f")': _of_number(lambda value: shown(value, ".1f")),
    f'shown({VALUE}, ".2f") | replace(".", ",")': _of_number(
        lambda value: shown(value, ".2f").replace(".", ",")
    ),
    f'shown({VALUE}, ",d")': _of_whole(",d"),
    **{f'shown({VALUE}, "0{n}d")': _of_whole(f"0{n}d") for n in range(2, 7)},
    f"{VALUE} | round | int": _of_number(lambda value: str(round(value))),
    f"{VALUE} | lower": _of_text(str.lower),
    f"{VALUE} | upper": _of_text(str.upper),
    f"{VALUE} | title": _of_text(str.title),
    f"{VALUE} | capitalize": _of_text(str.capitalize),
    f"{VALUE} | trim": _of_text(str.strip),
    f"word({VALUE}, 0)": _of_text(_word(0)),
    f"word({VALUE}, -1)": _of_text(_word(-1)),
    f"word({VALUE}, 0) | lower": _of_text(lambda text: _word(0)(text).lower()),
    f"word({VALUE}, -1) | lower": _of_text(lambda text: _word(-1)(text).lower()),
    **{
        f'{VALUE} | lower | replace(" ", "{sign}")': _of_text(
            lambda text, sign=sign: text.lower().replace(" ", sign)  # type: ignore[misc]
        )
        for sign in ("-", "_", "")
    },
    **{
        f'{VALUE} | replace(" ", "{sign}")': _of_text(
            lambda text, sign=sign: text.replace(" ", sign)  # type: ignore[misc]
        )
        for sign in ("-", "_", "")
    },
    f"slug({VALUE})": _of_text(slug),
    f'slug({VALUE}, "_")': _of_text(lambda text: slug(text, "_")),
    f'slug({VALUE}, "")': _of_text(lambda text: slug(text, "")),
    **{f'file_part({VALUE}, "{part}")': _of_path(part) for part in ("stem", "name", "folder")},
    **{
        f'quoted({VALUE}, "{how}")': _of_text(lambda text, how=how: quoted(text, how))  # type: ignore[misc]
        for how in ("url", "query", "html", "sql", "shell")
    },
    JSON: _of_text(lambda text: quoted(text, "json")),
    f'module_name({VALUE}, "src")': _module,
    f'slug({VALUE}, " ") | title | replace(" ", "")': _of_text(_in_capitals),
    LENGTH: _length,
    **{f'shown({VALUE}, "{form}")': _of_date(form) for form in DATES},
}
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
    year = FORMS[_YEAR](value)
    for expression, apply in FORMS.items():
        made = apply(value)
        if not made or made == value or made not in text:
            continue
        # A day or a month alone is a small number like any other.
        if expression in _OF_PARTS and (year is None or year not in text):
            continue
        yield expression, made


def part_forms(text: str, value: Any) -> Iterator[str]:
    """Yield the forms that find a value in a text, by the wording around it.

    The wording reaches to the next number on either side, so that it is checked, too.
    """
    written = str(value)
    kind = " | int" if type(value) is int else " | float" if isinstance(value, float) else ""
    for match in re.finditer(whole_words(written), text):
        before = _WORDING_BEFORE.search(text[: match.start()])
        after = _WORDING_AFTER.match(text[match.end() :])
        if before is None or after is None:
            continue
        around = (json.dumps(one[0], ensure_ascii=False) for one in (before, after))
        expression = f"between({VALUE}, {', '.join(around)}){kind}"
        if applied(expression, text) == value:
            yield expression


_WORDING_BEFORE = re.compile(r"[^\d\n]{0,60}\n?[^\d\n]{1,60}$")
_WORDING_AFTER = re.compile(r"[^\d\n]{1,60}\n?[^\d\n]{0,60}|\n[^\d\n]{0,60}|$")


def is_part(form: str) -> bool:
    """Return whether a form takes a part out of a text by the words around it."""
    return _PART.fullmatch(form) is not None


_PART = re.compile(rf"between\({VALUE}, {STRING}, {STRING}\)(?: \| (int|float))?")


def _part(expression: str, text: Any) -> Any:
    found = _PART.fullmatch(expression)
    if found is None or not isinstance(text, str):
        return None
    try:
        part = between(text, json.loads(found[1]), json.loads(found[2]))
        return {"int": int, "float": float, None: str}[found[3]](part)
    except ValueError:
        return None


def applied(expression: str, value: Any) -> Any:
    """Return what a form makes of a value; None if it does not fit such a value."""
    if expression in FORMS:
        return FORMS[expression](value)
    return listed(expression, value) if isinstance(value, list) else _part(expression, value)
