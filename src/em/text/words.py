"""What of a text goes into the word index, and what a question asks it for.

The analysis is em's own, so both stores find the same: words of every script, folded and stemmed;
pairs of characters where a script writes no spaces; emoji; who spoke; and the days that a text was
said on and speaks of, so that "last Friday" is found by its date.
"""

import re
import unicodedata
from collections.abc import Iterator
from datetime import date, datetime
from functools import lru_cache
from math import log2
from typing import NamedTuple

from em.text.dates import TRIGGERS, span_terms, spans
from em.text.stems import stem

ANALYSIS = 1
"""Changes when the same text would be indexed differently: then a store indexes anew."""
PIECE = 2_000
"""Characters of one passage; a longer text is searched in several."""

MAX_WORD = 64
"""Of a longer word its beginning counts."""
_WORD = re.compile(rf"[^\W_]{{1,{MAX_WORD}}}|[\u2600-\u27bf\U0001f000-\U0001faff]")
_ASCII = bytes(ord(chr(n).lower()) if chr(n).isalnum() else 32 for n in range(128)).ljust(256)
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
    "\U00020000-\U0003ffff]+"
)

STOP_WORDS = frozenset(
    "a about above after again against all also am an and any are aren as at be because been "
    "before being below between both but by can could couldn d did didn do does doesn doing "
    "don down during each few for from further had has hasn have haven having he her here "
    "hers herself him himself his how i if in into is isn it its itself just kind let ll m "
    "many me more most much my myself no nor not now of off on once only or other our ours "
    "ourselves out over own re s same she should shouldn so some such t than that the their "
    "theirs them themselves then there these they this those through to too type under until "
    "up ve very was wasn we were what when where which while who whom whose why will with won "
    "would wouldn you your yours yourself yourselves".split()
)


class _Stems(dict[str, str]):
    """Stems by word; most words of a text were seen before."""

    def __missing__(self, word: str) -> str:
        if word.isdigit() and word.isascii() and len(word) <= MAX_WORD:
            return word  # numbers are many, and have no other form
        found = stem(word[:MAX_WORD])
        # ASCII only, so that no store's tokenizer has an opinion of its own about a script.
        found = found if found.isascii() else f"x{found.encode().hex()}"
        if len(word) <= MAX_WORD:
            if len(self) > 200_000:
                self.clear()
            self[word] = found
        return found


_stems = _Stems()


def words_of(text: str) -> list[str]:
    """The words of a text, folded, in their order; not stemmed."""
    if text.isascii():
        # As the pattern would split it, at a quarter of the time.
        return text.encode().translate(_ASCII).decode().split()
    return [part for word in _WORD.findall(_folded(text.lower())) for part in _parts(word)]


def _folded(text: str) -> str:
    """Without accents: café is cafe. Hangul and the like are put together again."""
    parts = unicodedata.normalize("NFKD", text)
    bare = "".join(c for c in parts if not unicodedata.combining(c))
    return unicodedata.normalize("NFKC", bare).lower()


def _parts(word: str) -> Iterator[str]:
    """A word; pairs of characters of scripts without spaces; an emoji under its number."""
    if not word[0].isalnum():
        yield f"u{ord(word[0]):x}"
        return
    end = 0
    for match in _UNSPACED.finditer(word):
        if match.start() > end:
            yield word[end : match.start()]
        run, end = match[0], match.end()
        yield from (run[n : n + 2] for n in range(max(1, len(run) - 1)))
    if end < len(word):
        yield word[end:]


def stems_of(words: list[str]) -> list[str]:
    """Their stems."""
    return [_stems[word] for word in words]


class Piece(NamedTuple):
    """A part of a text that is found as one: where it lies, its words, and its shape."""

    start: int
    end: int
    terms: str
    shape: int


def pieces(text: str, at: datetime, speaker: str | None) -> list[Piece]:
    """The passages of a text, ready for the index."""
    by = "" if speaker is None else " ".join(["", *speaker_terms(speaker)])
    own = _own_days(at.date()) + by
    if len(text) <= PIECE:
        return [_piece(text, 0, len(text), at, own)]
    return [_piece(text[start:end], start, end, at, own) for start, end in _cuts(text)]


@lru_cache(maxsize=4_096)
def _own_days(day: date) -> str:
    return f" ={day:%Y%m%d} ={day:%Y%m}"


@lru_cache(maxsize=4_096)
def speaker_terms(name: str) -> tuple[str, ...]:
    """The words under which the passages of a speaker are kept."""
    return tuple(f"@{part}" for part in stems_of(words_of(name)))


def _cuts(text: str) -> Iterator[tuple[int, int]]:
    """Parts of at most PIECE characters that end between words, where there is a space at all."""
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            space = max(text.rfind(sign, start + PIECE // 2, end) for sign in " \n")
            end = space + 1 if space >= 0 else end
        yield start, min(end, len(text))
        start = end


def _piece(text: str, start: int, end: int, at: datetime, own: str) -> Piece:
    # On every commit's way. A word that comes twice is kept twice: the index doesn't mind, and
    # telling them apart would take longer.
    words = words_of(text)
    terms = (" ".join(map(_stems.__getitem__, words)) + own).lstrip()
    if not TRIGGERS.isdisjoint(words):
        named = (term for span in spans(words, at) for term in span_terms(span))
        terms = " ".join((terms, *named))
    content = len(words) - sum(map(STOP_WORDS.__contains__, words))
    return Piece(start, end, terms, shape_of(content, text))


QUESTION = 128


def shape_of(content_words: int, text: str) -> int:
    """Length and kind of a passage in one byte, which ranking sees without reading the passage."""
    # One sign may be several words: ½ is 1 and 2.
    return _LENGTHS[min(content_words, PIECE)] | (QUESTION if "?" in text[-60:] else 0)


_LENGTHS = (0, *(round(4 * log2(n)) for n in range(1, PIECE + 1)))
"""Lengths as a shape keeps them: a step is a fourth of a doubling."""


def length_of(shape: int) -> float:
    """Content words of a passage of that shape, about."""
    return float(2 ** ((shape & (QUESTION - 1)) / 4))
