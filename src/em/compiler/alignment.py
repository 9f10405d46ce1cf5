"""Alignment: what several texts have in common, and the columns of what differs between.

Values that are known by name in each text (inputs, the day) are aligned by their names, so that
their own words are never taken for something that the texts share.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import Match, SequenceMatcher
from functools import partial
from typing import NamedTuple, TypeVar

MOST_TOKENS = 2_000
"""Parts of a text that can be aligned with those of another one."""
LONG = 400
"""Parts of a text from which on it is aligned line by line, if all have as many lines."""
MOST_MERGED = 24
"""Pieces that may be one value together: a sentence of which some words are in all texts."""
COARSE = re.compile(r"[\w.+/-]*\w|\n|[^\S\n]+|.", re.DOTALL)
"""A version, a path or a dotted name is one token."""
FINE = re.compile(r"[^\W\d_]+|\d+|\n|[^\S\n]+|.", re.DOTALL)


class Column(NamedTuple):
    """What stands at one place of each text. `known`: the name of the value, if it has one."""

    values: tuple[str, ...]
    known: str = ""


Piece = str | Column
Known = Mapping[str, str]
"""Known values of one text, each with its name."""
Span = tuple[int, int]
Found = TypeVar("Found")


class _Token(NamedTuple):
    """A part of one text. Two parts are the same if their keys are."""

    text: str
    key: str
    known: str = ""


def pieces_of(
    texts: Sequence[str], known: Sequence[Known] = (), pattern: re.Pattern[str] = COARSE
) -> list[Piece]:
    """Return what texts have in common, and a column for each place where they differ."""
    names = known or [{} for _ in texts]
    rows = [_tokens(text, own, pattern) for text, own in zip(texts, names, strict=True)]
    most = max(map(len, rows))
    lines = [_lines(row) for row in rows] if most > LONG else []
    if lines and len({*map(len, lines)}) == 1:
        return joined([one for each in zip(*lines, strict=True) for one in _aligned(each)])
    return [Column(tuple(texts))] if most > MOST_TOKENS else _aligned(rows)


def _lines(row: Sequence["_Token"]) -> list[list["_Token"]]:
    found: list[list[_Token]] = [[]]
    for token in row:
        found[-1].append(token)
        if token.text == "\n":
            found.append([])
    return found


def _aligned(rows: Sequence[Sequence["_Token"]]) -> list[Piece]:
    """Return the tokens that rows have in common, and columns between them."""
    common = [token.key for token in rows[0]]
    for row in rows[1:]:
        keys = [token.key for token in row]
        common = [common[block.a + n] for block in _blocks(common, keys) for n in range(block.size)]
    places = [_embedded(common, [token.key for token in row]) for row in rows]
    found: list[Piece] = []
    for number in range(len(common) + 1):
        gap = tuple(_between(row, own, number) for row, own in zip(rows, places, strict=True))
        if any(gap):
            found.append(Column(gap))
        if number < len(common):
            tokens = [row[own[number]] for row, own in zip(rows, places, strict=True)]
            known, texts = tokens[0].known, tuple(token.text for token in tokens)
            found.append(Column(texts, known) if known else texts[0])
    return joined(found)


def _tokens(text: str, known: Known, pattern: re.Pattern[str]) -> list[_Token]:
    tokens: list[_Token] = []
    for piece, is_known in cut(text, known):
        if is_known:
            tokens.append(_Token(piece, f"\0{known[piece]}", known[piece]))
        else:
            tokens += [_Token(one, one) for one in pattern.findall(piece)]
    return tokens


def cut(text: str, values: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield the values that stand in a text, longest first, as True, and what is between them."""
    taken: list[Span] = []
    for value in sorted(values, key=len, reverse=True):
        taken += places_of(text, value, taken)
    end = 0
    for start, stop in sorted(taken):
        yield from ((text[end:start], False), (text[start:stop], True))
        end = stop
    yield text[end:], False


def is_inside(text: str, at: int, *, is_word: bool = True) -> bool:
    """Return whether a position is within a word, a number such as 1.25, or a date.

    is_word: letters and digits side by side are one word. Without it `v1.4` is a letter and a
    number.
    """
    before, after = text[max(0, at - 2) : at], text[at : at + 2]
    if not before or not after:
        return False
    is_mixed = before[-1].isdigit() != after[0].isdigit()
    is_word = before[-1].isalnum() and after[0].isalnum() and (is_word or not is_mixed)
    is_left = before[-1].isdigit() and after[0] in ".,-/" and after[1:].isdigit()
    is_right = before[-1] in ".,-/" and before[:-1].isdigit() and after[0].isdigit()
    return is_word or is_left or is_right


def places_of(
    text: str,
    value: str,
    taken: Sequence[Span] = (),
    inside: Callable[[str, int], bool] | None = None,
) -> list[Span]:
    """Return where a value stands in a text as words of its own, beside what is taken.

    A value of several parts stands in a longer word too: a version behind a letter, `v1.4.0`.
    """
    inside = inside or partial(is_inside, is_word=value.isalnum())
    found: list[Span] = []
    start = text.find(value) if value else -1
    while start >= 0:
        stop = start + len(value)
        is_free = all(stop <= first or last <= start for first, last in (*taken, *found))
        if is_free and not inside(text, start) and not inside(text, stop):
            found.append((start, stop))
        start = text.find(value, start + 1)
    return found


def _blocks(one: Sequence[str], other: Sequence[str]) -> list[Match]:
    return SequenceMatcher(None, list(one), list(other), autojunk=False).get_matching_blocks()


def _embedded(common: Sequence[str], row: Sequence[str]) -> list[int]:
    """Return where the common tokens stand in a text."""
    found = [block.b + n for block in _blocks(common, row) for n in range(block.size)]
    if len(found) == len(common):
        return found
    found, at = [], 0
    for key in common:
        at = row.index(key, at)
        found.append(at)
        at += 1
    return found


def _between(row: Sequence[_Token], places: Sequence[int], number: int) -> str:
    start = places[number - 1] + 1 if number else 0
    end = places[number] if number < len(places) else len(row)
    return "".join(token.text for token in row[start:end])


def joined(pieces: Iterable[str | Found]) -> list[str | Found]:
    """Return pieces with texts that follow each other as one."""
    found: list[str | Found] = []
    for piece in pieces:
        if isinstance(piece, str) and found and isinstance(found[-1], str):
            found[-1] += piece
        else:
            found.append(piece)
    return found


def explained(
    pieces: Sequence[Piece],
    explain: Callable[[Column], Found | None],
    is_glue: Callable[[str], bool],
    ask: Callable[[Column], Found | None] = lambda _: None,
    *,
    is_fine: bool = False,
) -> list[str | Found] | None:
    """Return pieces with each column explained, as long ones as possible; None if one is not.

    is_glue: whether a text that all share may be a part of a longer value. ask: what becomes of a
    column that is not explained.
    """
    found: list[str | Found] = []
    at = 0
    while at < len(pieces):
        piece = pieces[at]
        if isinstance(piece, str):
            found.append(piece)
            at += 1
            continue
        for end in _ends(pieces, at, is_glue):
            one = explain(_merged(pieces[at:end]))
            if one is not None:
                found.append(one)
                at = end
                break
        else:
            inner = None if is_fine else _refined(piece, explain, is_glue, ask)
            if inner is None:
                # What stands beside a value in one word is a part of the word.
                beside = [one for one in pieces[max(0, at - 1) : at + 2] if one is not piece]
                is_part = any(isinstance(one, Column) for one in beside)
                inner = _asked(piece, ask, is_part=is_part)
            if inner is None:
                return None
            found += inner
            at += 1
    return found


def _ends(pieces: Sequence[Piece], at: int, is_glue: Callable[[str], bool]) -> list[int]:
    """Return where a value may end that begins with this piece, the longest first."""
    found = [at + 1]
    for end in range(at + 1, min(len(pieces), at + MOST_MERGED)):
        piece = pieces[end]
        if isinstance(piece, str):
            if not is_glue(piece):
                break
        else:
            found.append(end + 1)
    return found[::-1]


def _merged(pieces: Sequence[Piece]) -> Column:
    if len(pieces) == 1 and isinstance(pieces[0], Column):
        return pieces[0]
    count = next(len(one.values) for one in pieces if isinstance(one, Column))
    return Column(
        tuple(
            "".join(one if isinstance(one, str) else one.values[n] for one in pieces)
            for n in range(count)
        )
    )


def _asked(
    column: Column, ask: Callable[[Column], Found | None], *, is_part: bool
) -> list[str | Found] | None:
    """Return a column as what is asked for; of a part of a word without what all parts share."""
    pieces = pieces_of(column.values, pattern=FINE) if is_part else [column]
    head = pieces[0] if isinstance(pieces[0], str) and len(pieces) > 1 else ""
    tail = pieces[-1] if isinstance(pieces[-1], str) and len(pieces) > 1 else ""
    inner = tuple(one[len(head) : len(one) - len(tail)] for one in column.values)
    one = ask(column if column.known or not all(inner) else Column(inner))
    if one is None:
        return None
    return [part for part in (head, one, tail) if part != ""] if all(inner) else [one]


def _refined(
    column: Column,
    explain: Callable[[Column], Found | None],
    is_glue: Callable[[str], bool],
    ask: Callable[[Column], Found | None],
) -> list[str | Found] | None:
    """Return a column as what its values begin and end with, and what is between.

    If one part of it is explained, the others may be asked for.
    """
    if column.known or not all(column.values):
        return None
    pieces = pieces_of(column.values, pattern=FINE)
    if len(pieces) < 2:
        return None
    first = pieces[0] if isinstance(pieces[0], str) else ""
    last = pieces[-1] if isinstance(pieces[-1], str) else ""
    for head, tail in dict.fromkeys([(first, ""), ("", last), (first, last)]):
        inner = tuple(one[len(head) : len(one) - len(tail)] for one in column.values)
        one = explain(Column(inner)) if all(inner) and (head or tail) else None
        if one is not None:
            return [part for part in (head, one, tail) if part != ""]
    columns = [one for one in pieces if isinstance(one, Column)]
    if not any(all(one.values) and explain(one) is not None for one in columns):
        return None
    return explained(pieces, explain, is_glue, ask, is_fine=True)
