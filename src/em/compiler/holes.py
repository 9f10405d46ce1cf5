"""Holes: how a value must stand in a text, and what it must not bring along.

Where a value stands in an address, a JSON text, an SQL statement or a command, the language says
how it is quoted, whether or not the recorded value needed it. Parsers tell the languages, no words.

Around a value stand signs that tell it from the text: quotes, a separator, a tag, the spaces of a
command. A value that has such a sign, where the recorded one had none, would be read otherwise, and
the recording does not show how it is escaped; so it hands over. A word behind a number may be
singular or plural; so one and many are not taken for each other.
"""

import re
import shlex
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from em.compiler.forms import QUERY, SHELL, SQL, URL, applied
from em.compiler.list_forms import LENGTH, VALUE, sizes
from em.compiler.term import literal
from em.values.structure import structured

_IN_ADDRESS = re.compile(r"\w://[^\s\"'<>]*$")
_OPTION = re.compile(r"(?:^|\s)--?[A-Za-z]|&&|\|\||\$\(")
MARKUP = "<>&"
_TAG = re.compile(r"</?[A-Za-z][^<>\n]*/?>")
_PLURAL = re.compile(r" [^\W\d_]{2,}(?!\()\b(?!\()")


def quotings(before: str, written: str, after: str) -> tuple[str, ...]:
    """Return the forms of a text value that the language around it asks for; () if it is prose."""
    if _IN_ADDRESS.search(before):
        found: tuple[str, ...] = (URL, QUERY)
    elif is_inside(before, after, "'") and is_statement(before + written + after):
        found = (SQL,)
    elif is_command(before + written + after) and not is_quoted(before, after):
        found = (SHELL,)
    else:
        found = ()
    return tuple(form for form in found if applied(form, written) == written)


def is_json(text: str) -> bool:
    """Return whether a text is a JSON record or list."""
    return text.strip()[:1] in ("{", "[") and isinstance(structured(text), dict | list)


def is_statement(text: str) -> bool:
    """Return whether a text is a statement of SQL: its syntax is right, whatever it names."""
    base = sqlite3.connect(":memory:")
    try:
        base.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
        base.execute(f"EXPLAIN {text}")
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        return re.search(r"no such|not authorized|prohibited", str(error)) is not None
    finally:
        base.close()
    return True


def is_command(text: str) -> bool:
    """Return whether a text reads as a command: words with options or operators, on one line."""
    if "\n" in text.strip() or not _OPTION.search(text):
        return False
    try:
        return len(shlex.split(text)) > 1
    except ValueError:
        return False


def is_inside(before: str, after: str, sign: str) -> bool:
    """Return whether a position stands between two quotes. An apostrophe in a word is none."""
    line = before.rpartition("\n")[2]
    times = len(re.findall(rf"(?<![^\W\d_]){sign}|{sign}(?![^\W\d_])", line))
    return times % 2 == 1 and sign in after


def is_quoted(before: str, after: str) -> bool:
    """Return whether a position stands in quotes of any kind."""
    return any(is_inside(before, after, sign) for sign in "\"'`")


class Hole(NamedTuple):
    """A value in a text: what stands around it, and how it was written there."""

    before: str
    written: str
    after: str


def checks_of(built: Sequence[Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return what must hold of the values in a text, each with the numbers of its parts.

    built: constant texts, and leaves of the values between them.
    """
    by_sign: dict[str, tuple[int, ...]] = defaultdict(tuple)
    found: list[tuple[str, tuple[int, ...]]] = []
    for number, piece in enumerate(built):
        if isinstance(piece, str) or piece.given:
            continue
        holes = [*_holes(built, number)]
        found += [(check, (number,)) for check in _own_checks(piece.values, holes)]
        for sign in dict.fromkeys("".join(map(unwanted, holes))):
            if _is_text(piece.values) and all(sign not in hole.written for hole in holes):
                by_sign[sign] += (number,)
    by_numbers: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for sign, numbers in by_sign.items():
        by_numbers[numbers].append(f"{literal(sign)} not in {VALUE}")
    return (*found, *((" and ".join(checks), numbers) for numbers, checks in by_numbers.items()))


def _own_checks(values: Sequence[tuple[Any, str | None]], holes: Sequence[Hole]) -> Iterator[str]:
    """Yield what must hold of one value, beside the signs that it must not have."""
    if values and all(form == SHELL for _, form in values) and _begins_word(holes):
        # Quotes don't keep a command from taking it for an option.
        yield f"not {VALUE}.startswith('-')"
    for size in sorted({sizes(form or "", value) for value, form in values} - {""}):
        yield f"{LENGTH} {size}"
    counted = _counted(values)
    ones = {hole.written == "1" for hole in holes}
    if counted and all(map(has_plural, holes)) and len(ones) == 1:
        yield f"{counted} {'==' if ones == {True} else '!='} 1"


def _begins_word(holes: Sequence[Hole]) -> bool:
    return all(hole.before[-1:] in ("", " ") and not hole.written.startswith("-") for hole in holes)


def _is_text(values: Sequence[tuple[Any, str | None]]) -> bool:
    """Return whether a text stands here as it is, or in a form that keeps its signs."""
    return any(
        isinstance(value, str | list)
        and (form is None or not form.startswith(("quoted", "shown")))
        and form != LENGTH
        for value, form in values
    )


def _counted(values: Sequence[tuple[Any, str | None]]) -> str:
    """Return the expression of the number that stands here, or of the length of a list, or ""."""
    if values and all(form == LENGTH for _, form in values):
        return LENGTH
    if values and all(isinstance(value, str) and value.isdigit() for value, _ in values):
        return f"{VALUE} | int"
    return VALUE if values and all(type(value) is int for value, _ in values) else ""


def _holes(built: Sequence[Any], number: int) -> Iterator[Hole]:
    """Yield the hole of one value in every recording."""
    for example in range(len(built[number].spots)):
        texts = [one if isinstance(one, str) else one.spots[example].value for one in built]
        yield Hole("".join(texts[:number]), texts[number], "".join(texts[number + 1 :]))


def unwanted(hole: Hole) -> str:
    """Return the signs that a value must not have here, in their order; "" if all are fine."""
    found = [*_neighbours(hole), *_quotes(hole)]
    whole = hole.before + hole.written + hole.after
    if _TAG.search(hole.before + hole.after):
        found += MARKUP
    if found or "\n" in whole:
        found.append("\n")
    return "".join(dict.fromkeys(sign for sign in found if sign not in hole.written))


def _neighbours(hole: Hole) -> Iterator[str]:
    """Yield the signs beside a value that are no punctuation of a sentence."""
    before, after = hole.before[-1:], hole.after[:1]
    if _is_sign(before):
        yield before
    is_end = len(hole.after) == 1 or hole.after[1:2].isspace()
    if _is_sign(after) and not (after in ".,:;!?" and is_end):
        yield after
    # The same sign on both sides separates, also with a space before the value.
    outer = hole.before.rstrip(" ")[-1:]
    if _is_sign(outer) and outer == hole.after.lstrip(" ")[:1]:
        yield outer


def _is_sign(char: str) -> bool:
    return bool(char) and not char.isalnum() and not char.isspace()


def _quotes(hole: Hole) -> Iterator[str]:
    """Yield the quotes that a value stands in, and the sign that escapes them."""
    for sign in "\"'`":
        if is_inside(hole.before, hole.after, sign):
            yield from (sign, "\\")


def has_plural(hole: Hole) -> bool:
    """Return whether a word follows a whole number, which may be a singular or a plural."""
    return hole.written.isdigit() and _PLURAL.match(hole.after) is not None


def is_set_off(built: Sequence[Any]) -> bool:
    """Return whether signs stand between each value of a text and the words around it."""
    texts = [one if isinstance(one, str) else "" for one in built]
    return all(
        not "".join(texts[:number]).rstrip()[-1:].isalnum()
        and not "".join(texts[number + 1 :]).lstrip()[:1].isalnum()
        for number, one in enumerate(built)
        if not isinstance(one, str)
    )
