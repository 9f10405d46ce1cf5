"""Skeleton of a text: what of it is always the same, and the known values that stand between.

Known values are inputs and what earlier reads returned, in plain forms. In one text they are found
longest first, as whole words. Over several texts the skeletons are aligned: what differs must be
the same known value everywhere, and what is the same everywhere is constant.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from em.compiler.example import Example, Turn
from em.compiler.forms import forms_of
from em.compiler.places import is_scalar, walk, wholes

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


Values = tuple[tuple[Any, int | None], ...]
"""Known values that a piece of a text may be, each with the number of its form."""


class Part(NamedTuple):
    """A known value in one text."""

    spot: Spot
    values: Values


class Token(NamedTuple):
    """A piece of one text: constant, or a known value in some form."""

    text: str
    values: Values = ()


def known_values(spot: Spot) -> Iterator[Any]:
    """Yield every value that was known before."""
    for _, value in spot.example.said(spot.turn).leaves:
        yield value
    for read in spot.example.reads[: spot.before]:
        for _, _, value in walk(read.result):
            yield value
        for _, _, value in wholes(read.result):
            if isinstance(value, list):
                yield value


def numbers_before(spot: Spot) -> list[Any]:
    """Return the different numbers that were known before."""
    found = {
        value: None
        for value in known_values(spot)
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return [*found][:MOST_NUMBERS]


def is_telling(sign: str, one: Any, other: Any) -> bool:
    """Return whether computing with two numbers gives something that neither is."""
    return not (sign == "*" and (one in (0, 1) or other in (0, 1))) and one != 0 and other != 0


def tokens_of(spot: Spot) -> list[Token]:
    """Return a text as known values and the constant tokens between them."""
    text: str = spot.value
    known: dict[str, list[tuple[Any, int | None]]] = defaultdict(list)
    for number, value in enumerate(known_values(spot)):
        if isinstance(value, str) and value in text:
            known[value].append((value, None))
        if value is None or isinstance(value, bool) or number > MOST_VALUES:
            continue
        for form, made in forms_of(value):
            if made in text:
                known[made].append((value, form))
    taken: list[tuple[int, int]] = []
    for one in sorted(known, key=len, reverse=True):
        if any(map(str.isalnum, one)):
            taken += _places(text, one, taken)
    tokens: list[Token] = []
    end = 0
    for start, stop in sorted(taken):
        tokens += [Token(piece) for piece in _TOKEN.findall(text[end:start])]
        tokens.append(Token(text[start:stop], _different(known[text[start:stop]])))
        end = stop
    return tokens + [Token(piece) for piece in _TOKEN.findall(text[end:])]


def _different(values: list[tuple[Any, int | None]]) -> Values:
    plain = [one for one in values if one[1] is None or not is_scalar(one[0])]
    return tuple({repr(one): one for one in (plain or values)}.values())


def _places(text: str, one: str, taken: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return where a text stands in another as words of its own, beside what is taken."""
    found: list[tuple[int, int]] = []
    start = text.find(one)
    while start >= 0:
        stop = start + len(one)
        is_free = all(stop <= first or last <= start for first, last in (*taken, *found))
        if is_free and not _is_inside(text, start) and not _is_inside(text, stop):
            found.append((start, stop))
        start = text.find(one, stop if is_free else start + 1)
    return found


def _is_inside(text: str, at: int) -> bool:
    """Return whether a position is within a word or within a number."""
    if at in (0, len(text)):
        return False
    before, after = text[at - 1], text[at]
    if before.isdigit() and after.isdigit():
        return True
    return before.isalpha() and after.isalpha()


def skeleton(spots: Sequence[Spot]) -> list[str | list[Part]]:
    """Return the constant texts and, between them, the known values; [] if there is none."""
    rows = [tokens_of(spot) for spot in spots]
    if any(len(row) > MOST_TOKENS for row in rows):
        return []
    merged: list[list[Token]] = [[token] for token in rows[0]]
    for row in rows[1:]:
        aligned = _aligned(merged, row)
        if aligned is None:
            return []
        merged = aligned
    pieces: list[str | list[Part]] = []
    for tokens in merged:
        if _is_value(tokens):
            pieces.append(
                [
                    Part(_inner(spot, token), token.values)
                    for spot, token in zip(spots, tokens, strict=True)
                ]
            )
        elif pieces and isinstance(pieces[-1], str):
            pieces[-1] += tokens[0].text
        else:
            pieces.append(tokens[0].text)
    return pieces if any(not isinstance(piece, str) for piece in pieces) else []


def _inner(spot: Spot, token: Token) -> Spot:
    return spot._replace(value=token.text)


def _is_value(tokens: list[Token]) -> bool:
    return all(token.values for token in tokens)


def _aligned(merged: list[list[Token]], row: list[Token]) -> list[list[Token]] | None:
    """Return the columns of several texts with a further one; None if they don't fit together."""
    if len(merged) != len(row):
        return None
    found = []
    for tokens, token in zip(merged, row, strict=True):
        if (_is_value(tokens) and token.values) or tokens[0].text == token.text:
            found.append([*tokens, token])
        else:
            return None
    return found
