"""List forms: how a list stands in a text, or in a number.

Its elements are joined, or written out one like the other; or they are counted or summed up. A form
is known by its expression, in which VALUE stands for the list.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from em.compiler.places import is_number, is_scalar
from em.errors import ExpressionError
from em.runner.expressions.functions import lines, shown
from em.runner.expressions.language import compile_expression
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
"""Digits from which on a sum in a text is no chance."""
STRING = r'("(?:[^"\\]|\\.)*")'
_JOINED = re.compile(rf"{VALUE}(?:\[:-1\])? \| join\({STRING}\)(?: ~ {STRING} ~ {VALUE}\[-1\])?")


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
    """Yield the sums of a list that stand in a text with so many digits that it is no chance."""
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
