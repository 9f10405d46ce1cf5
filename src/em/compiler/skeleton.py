"""Skeleton of a text: what of it is always the same, and the known values that stand between.

Known values are inputs and what earlier reads returned, in plain forms. In one text they are found
longest first, as whole words. Over several texts the skeletons are aligned: what differs must be
the same known value everywhere, and what is the same everywhere is constant.

Around a value stand signs that tell it from the text: quotes, a separator, a tag, the spaces of a
command. A value that has such a sign, where the recorded one had none, would be read otherwise, and
the recording does not show how it is escaped; so it hands over. Where it stands in an address, a
JSON text, an SQL statement or a command, the language says how it is quoted. Parsers tell the
languages, no words. A word behind a number may be singular or plural; so one and many are not taken
for each other.
"""

import re
import shlex
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.alignment import joined, places_of
from em.compiler.evidence import SHORT_TEXT
from em.compiler.example import Example, Turn
from em.compiler.forms import (
    FIRST_WORD,
    JSON,
    LAST_WORD,
    LENGTH,
    PLAIN_NUMBER,
    QUERY,
    SHELL,
    SQL,
    URL,
    VALUE,
    applied,
    forms_of,
    sizes,
)
from em.compiler.places import POSITION, Over, folded, is_number, last_name
from em.compiler.term import literal, singular
from em.values.structure import structured
from em.values.times import is_date

MOST_VALUES = 3_000
"""Known values that are looked for in a text; of those beyond it only the plain form is."""
MOST_TOKENS = 1_500
"""Parts of a text that can be aligned with those of another one."""
MOST_NUMBERS = 40
"""Numbers that a number is tried to be computed from."""
_TOKEN = re.compile(r"[^\W\d_]+|\d+|\s+|.", re.DOTALL)


class Spot(NamedTuple):
    """One value in one example: in which round of a loop, and after how many reads."""

    example: Example
    turn: Turn | None
    before: int
    value: Any


Values = tuple[tuple[Any, str | None], ...]
"""Known values that a piece of a text may be, each with its form, which is None for the value."""


class Part(NamedTuple):
    """A known value in one text."""

    spot: Spot
    values: Values


class Token(NamedTuple):
    """A piece of one text: constant, or a known value in some form."""

    text: str
    values: Values = ()


Pieces = list[str | list[Part]]
"""A text as constant texts and the known values between them."""
Column = dict[int, Token]
"""By text: what stands at one position of several texts."""


class Known(NamedTuple):
    """A value that was known before: whether it was given as an input, and what it is called."""

    value: Any
    is_given: bool
    names: tuple[str, ...]


def known_values(spot: Spot) -> Iterator[Known]:
    """Yield every value that was known before."""
    for place, value in spot.example.leaves(spot.turn, spot.before):
        is_given = not isinstance(place[0], Over) or place[-1] is POSITION
        yield Known(value, is_given, (last_name(place),))
    for read in spot.example.reads[: spot.before]:
        for name, value in read.values:
            yield Known(value, False, (name,))
        for name, value in read.lists:
            yield Known(value, False, (name, *re.split(r"[\W_]+", read.tool)))


def is_called(names: Iterable[str], word: str) -> bool:
    """Return whether a word is one of the names of several things, or of one of them."""
    return bool(word) and any(singular(folded(name)) == singular(folded(word)) for name in names)


def is_about(tool: str, name: str) -> bool:
    """Return whether a tool is called for what a name says: `order_tugs` for `tugs`."""
    _, _, thing = tool.partition("_")
    return bool(thing) and is_called([thing], name)


def numbers_before(spot: Spot) -> list[Any]:
    """Return the different numbers that were known before."""
    found = dict.fromkeys(one.value for one in known_values(spot) if is_number(one.value))
    return [*found][:MOST_NUMBERS]


def dates_before(spot: Spot) -> list[str]:
    """Return the different dates that were known before."""
    found = dict.fromkeys(one.value for one in known_values(spot) if is_date(one.value))
    return [*found][:MOST_NUMBERS]


def lists_before(spot: Spot) -> list[Known]:
    """Return the lists that were known before."""
    return [one for one in known_values(spot) if isinstance(one.value, list)][:MOST_NUMBERS]


def texts_before(spot: Spot) -> list[str]:
    """Return the texts of several words that reads returned before."""
    values = (one.value for one in known_values(spot) if not one.is_given)
    found = {one: None for one in values if isinstance(one, str) and len(one.split()) > 1}
    return [*found][:MOST_NUMBERS]


def is_telling(sign: str, one: Any, other: Any) -> bool:
    """Return whether computing with two numbers gives something that neither is."""
    return not (sign == "*" and (one in (0, 1) or other in (0, 1))) and one != 0 and other != 0


def tokens_of(spot: Spot, fixed: Collection[str] = ()) -> list[Token]:
    """Return a text as known values and the constant tokens between them.

    fixed: texts that are constant, whatever else they may be.
    """
    text: str = spot.value
    known = _known_in(text, spot)
    for one in fixed:
        known.pop(one, None)
    taken: list[tuple[int, int]] = []
    # The first word of some text is a poor explanation where another value fits as well.
    weak = {
        one
        for one, rows in known.items()
        if all(form is not None and form.startswith((FIRST_WORD, LAST_WORD)) for _, form, _ in rows)
    }
    for one in sorted(known, key=lambda one: (one in weak, -len(one))):
        if any(map(str.isalnum, one)):
            is_given = any(given for _, _, given in known[one])
            taken += [
                span
                for span in places_of(text, one, taken, _is_inside)
                if not _is_scheme(text, *span)
                if not is_label(text, *span) or (is_given and len(one) > 1)
            ]
    tokens: list[Token] = []
    end = 0
    for start, stop in sorted(taken):
        tokens += [Token(piece) for piece in _TOKEN.findall(text[end:start])]
        values = _different([row[:2] for row in known[text[start:stop]]])
        forms = quotings(text[:start], text[start:stop], text[stop:])
        tokens.append(Token(text[start:stop], _quoted(values, forms)))
        end = stop
    tokens += [Token(piece) for piece in _TOKEN.findall(text[end:])]
    return _one_quoting(tokens)


def _known_in(text: str, spot: Spot) -> dict[str, list[tuple[Any, str | None, bool]]]:
    """Return the known values that stand in a text, by how they are written there."""
    known: dict[str, list[tuple[Any, str | None, bool]]] = defaultdict(list)
    # Forms with quotes of their own stand only where the language has them.
    foreign = {form for form, is_it in ((JSON, is_json), (SHELL, is_command)) if not is_it(text)}
    for number, (value, is_given, names) in enumerate(known_values(spot)):
        if isinstance(value, str) and value in text and (is_given or not _is_short(value)):
            known[value].append((value, None, is_given))
        if value is None or isinstance(value, bool) or number > MOST_VALUES:
            continue
        for form, made in forms_of(value, text):
            if form not in foreign and (form != LENGTH or _is_counted(made, names, text)):
                known[made].append((value, form, is_given))
    return known


def _is_counted(made: str, names: Iterable[str], text: str) -> bool:
    """Return whether a text counts things by their name: `3 tickets` for a list of tickets."""
    found = re.finditer(rf"(?<![\w.,]){made}(?![\w.,])\W{{0,2}}(\w*)", text)
    return any(is_called(names, match[1]) for match in found)


def _is_short(text: str) -> bool:
    """Return whether a text is so short that it stands in many by chance."""
    return len(text) < SHORT_TEXT and text.islower()


def is_label(text: str, start: int, stop: int) -> bool:
    """Return whether a small number belongs to a name before it, as in `tier-2`."""
    is_few = text[start:stop].isdigit() and stop - start <= 2 and not text.startswith("://", stop)
    return is_few and bool(re.search(r"[^\W\d][-_]?$", text[:start]))


def _is_scheme(text: str, start: int, stop: int) -> bool:
    """Return whether a number belongs to the beginning of an address, as in `s3://`."""
    return text[start:stop].isdigit() and text.startswith("://", stop)


def _different(values: list[tuple[Any, str | None]]) -> Values:
    """Return the values that a piece may be, each as it is, if it stands there so.

    A decimal with two digits may be written as it is, or as money: both must agree in a run.
    """
    by_value: dict[str, list[tuple[Any, str | None]]] = defaultdict(list)
    for one in {repr(one): one for one in values}.values():
        by_value[repr(one[0])].append(one)
    found: list[tuple[Any, str | None]] = []
    for rows in by_value.values():
        is_plain = [one for one in rows if one[1] in (None, PLAIN_NUMBER)]
        keeps_all = isinstance(rows[0][0], list | float)
        found += weakest_and_strongest(rows if keeps_all or not is_plain else is_plain)
    return tuple(found)


def weakest_and_strongest(
    rows: list[tuple[Any, str | None]],
) -> list[tuple[Any, str | None]]:
    """Return the forms of a text that all others lie between, such as `lower` and `slug`.

    Where these two agree about another text, those between them do. Dates and numbers have no
    such order.
    """
    is_ordered = all(isinstance(value, str) and form is not None for value, form in rows)
    is_ordered = is_ordered and not any(is_date(value) for value, _ in rows)
    return [rows[0], rows[-1]] if is_ordered and len(rows) > 2 else rows


def _quoted(values: Values, forms: Sequence[str]) -> Values:
    """Return the values with the quoting that the language around them asks for."""
    return tuple(
        (value, how)
        for value, form in values
        for how in (forms if form is None and forms and isinstance(value, str) else (form,))
    )


def _one_quoting(tokens: list[Token]) -> list[Token]:
    """Return tokens whose quoting is the one that other values of the same text show."""
    shown = {
        form
        for token in tokens
        for _, form in token.values
        if form in (URL, QUERY) and {one for _, one in token.values} & {URL, QUERY} == {form}
    }
    if len(shown) != 1:
        return tokens
    return [
        token._replace(
            values=tuple(
                (value, form)
                for value, form in token.values
                if form not in (URL, QUERY) or form in shown
            )
        )
        for token in tokens
    ]


def _is_inside(text: str, at: int) -> bool:
    """Return whether a position is within a word or within a number."""
    pair = text[at - 1 : at + 1] if at else ""
    return len(pair) == 2 and (pair.isdigit() or pair.isalpha())


def skeleton(spots: Sequence[Spot]) -> Pieces:
    """Return the constant texts and, between them, the known values; [] if there is none."""
    pieces = _pieces(_columns(_rows(spots)) or (), spots)
    return pieces if any(not isinstance(piece, str) for piece in pieces) else []


def _rows(spots: Sequence[Spot]) -> dict[int, list[Token]]:
    """Return the tokens of each text.

    What stands in all texts, and was known before in some of them only, is constant: the word that
    begins every letter also begins the letter that was sent before.
    """
    rows = dict(enumerate(map(tokens_of, spots)))
    known = [{token.text for token in row if token.values} for row in rows.values()]
    counts = Counter(one for texts in known for one in texts)
    some = {one for one, count in counts.items() if count < len(known)}
    fixed = {one for one in some if all(one in spot.value for spot in spots)}
    for number, texts in enumerate(known):
        if texts & fixed:
            rows[number] = tokens_of(spots[number], fixed)
    return rows


def with_phrase(
    spots: Sequence[Spot], having: Collection[int]
) -> tuple[Pieces, Pieces, Pieces] | None:
    """Return what comes before a phrase that only some texts have, the phrase, what comes after."""
    rows = _rows(spots)
    long = _columns({n: row for n, row in rows.items() if n in having})
    short = _columns({n: row for n, row in rows.items() if n not in having})
    if long is None or short is None or len(long) <= len(short):
        return None
    start = 0
    while start < len(short) and _fit(short[start], long[start]):
        start += 1
    rest, stop = short[start:], len(long) - len(short) + start
    if not all(map(_fit, rest, long[stop:])):
        return None
    before = [one | other for one, other in zip(short, long[:start], strict=False)]
    after = [one | other for one, other in zip(rest, long[stop:], strict=True)]
    return _pieces(before, spots), _pieces(long[start:stop], spots), _pieces(after, spots)


def _columns(rows: Mapping[int, list[Token]]) -> list[Column] | None:
    """Return the tokens of several texts, aligned; None if they don't fit together."""
    first, *others = rows
    if any(len(row) > MOST_TOKENS for row in rows.values()):
        return None
    merged: list[Column] = [{first: token} for token in rows[first]]
    for number in others:
        row: list[Column] = [{number: token} for token in rows[number]]
        if len(row) != len(merged) or not all(map(_fit, merged, row)):
            return None
        merged = [one | other for one, other in zip(merged, row, strict=True)]
    return merged


def _pieces(columns: Iterable[Column], spots: Sequence[Spot]) -> Pieces:
    return joined(
        [
            Part(spots[one]._replace(value=token.text), token.values)
            for one, token in sorted(column.items())
        ]
        if _is_value(column)
        else _text(column)
        for column in columns
    )


def _is_value(column: Column) -> bool:
    return all(token.values for token in column.values())


def _text(column: Column) -> str:
    return next(iter(column.values())).text


def _fit(one: Column, other: Column) -> bool:
    """Return whether two columns are known values, or the same text."""
    return (_is_value(one) and _is_value(other)) or _text(one) == _text(other)


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
