"""Signs: characters of a request that are no words, and that nothing accounts for.

`cancel ~M-771`, `> cancel M-771` and `Move <30` don't ask for what the words alone say. Ordinary
punctuation stands where writers put it; whatever else a request has must be a part of a value, or
have stood so in a recorded request.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

from em.runner.mentions import Span, Words, analysed

_QUOTE_SIGNS = "\"'“”‘’«»„"
_OPENING_SIGNS = "(\"'“‘«„"
_CLOSING_SIGNS = ".,;:!?)\"'”’»…"
_DASH_SIGNS = "–—-"
_EDGE_CLASS = " "
_LINE_START = "^"


def strange_signs(text: str, values: Iterable[Span] = ()) -> list[str]:
    """Return the signs that are no ordinary punctuation, each with what it stands between.

    values: where values stand that have signs of their own. A sign is written as in `^> ` or
    ` ~0`: `^` is where a line begins, a blank an edge, `a` a letter and `0` a digit.
    """
    inside = {at for one in values for at in range(one.start, one.end)}
    found: list[str] = []
    for at, char in enumerate(text):
        if _is_in_word(char) or at in inside:
            continue
        left, right = _class_before(text, at), _class_behind(text, at)
        if not _is_ordinary(f"{left}{char}{right}"):
            found.append(f"{left}{char}{right}")
    return found


def signs_of(texts: Iterable[str]) -> list[str]:
    """Return the signs that are not ordinary in recorded requests, outside of their values."""
    return sorted({one for text in texts for one in strange_signs(text, spans_in(analysed(text)))})


def spans_in(words: Words) -> Iterator[Span]:
    """Yield where ids, numbers, quoted texts and records stand, whose signs are their own."""
    yield from (span for span, _ in words.codes())
    yield from (span for span, _ in words.quotes())
    yield from (one.span for one in words.literals)


def unknown_sign(text: str, values: Iterable[Span], known: Iterable[str]) -> str:
    """Return the first sign that no recorded request had there; empty if there is none.

    known: what `signs_of` found in recorded requests.
    """
    recorded = {*known}
    return next((one[1] for one in strange_signs(text, values) if one not in recorded), "")


_MAY_BE_SIGN = re.compile(r"[^\w\s]|_")
"""Matches every sign, and a few characters of words: most values are words and digits."""


def _is_in_word(char: str) -> bool:
    return char.isspace() or unicodedata.category(char)[0] in "LMN"


def _class_before(text: str, at: int) -> str:
    if at and text[at - 1].isalnum():
        return "0" if text[at - 1].isdigit() else "a"
    first = at
    while first and text[first - 1].isspace() and text[first - 1] != "\n":
        first -= 1
    if not first or text[first - 1] == "\n":
        return _LINE_START
    before = text[at - 1]
    is_closing = before in _QUOTE_SIGNS and at > 1 and not text[at - 2].isspace()
    return before if is_closing else _class_of_sign(before, _OPENING_SIGNS)


def _class_behind(text: str, at: int) -> str:
    return _class_of_sign(text[at + 1] if at + 1 < len(text) else " ", _CLOSING_SIGNS)


def _class_of_sign(char: str, as_edge: str) -> str:
    if char.isspace() or char in as_edge:
        return _EDGE_CLASS
    if char.isdigit():
        return "0"
    return "a" if _is_in_word(char) else char


_WORD_BEFORE = r"[^ ^.,;:?]"
_ORDINARY_SIGN = re.compile(
    rf".[{_QUOTE_SIGNS}]."
    rf"|{_WORD_BEFORE},(?:[ a]|(?<!0,)0)|{_WORD_BEFORE}[.;:?] |[a0]\.a|{_WORD_BEFORE}![ !]"
    r"| \([^ ]|[^ ^]\)."
    rf"|[a0][{_DASH_SIGNS}][a0]| [{_DASH_SIGNS}] |[^^]—[ a0]"
    r"|[ ^][#@][a0]|[a0]&[a0]| & |[a0][/_][a0]"
)
"""Matches punctuation where writers put it, with what it stands between."""


@lru_cache(maxsize=5_000)
def _is_ordinary(sign: str) -> bool:
    return _ORDINARY_SIGN.fullmatch(sign) is not None


def odd_signs(value: str) -> set[str]:
    """Return the signs of a value that ordinary words don't have, `^` before those it begins with.

    A `$` stands behind those that it ends with. Quotation marks around it count too.
    """
    found: set[str] = set()
    for sign in _MAY_BE_SIGN.finditer(value):
        at, char = sign.start(), sign.group()
        is_end, is_start = at == len(value) - 1, at == 0
        if _is_in_word(char):
            continue
        is_quote = char in _QUOTE_SIGNS and (is_start or is_end)
        left, right = _class_before(value, at), _class_behind(value, at)
        if is_quote or not _is_ordinary(f"{left}{char}{right}"):
            found.add("^" * is_start + char + "$" * is_end)
    return found
