"""Turn a text into the terms of the word index, and a question into terms to look for.

em does its own analysis, so that both stores find the same. Terms are: words of every script,
folded and stemmed; pairs of characters for scripts without spaces; emoji; the speaker; the day of
the text and the days that it names, so that "last Friday" is found by its date.
"""

import re
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from functools import lru_cache
from math import log2
from typing import Any, NamedTuple

from em import deadline
from em.text.dates import TRIGGERS, span_terms, spans

_IRREGULAR = {
    form: forms.split()[0]
    for forms in (
        *("arise arose arisen", "become became", "begin began begun", "bite bit bitten"),
        *("blow blew blown", "break broke broken", "bring brought", "build built", "buy bought"),
        *("catch caught", "choose chose chosen", "come came", "deal dealt", "dig dug"),
        *("draw drew drawn", "drink drank drunk", "drive drove driven", "eat ate eaten"),
        *("fall fell fallen", "feed fed", "feel felt", "fight fought", "find found"),
        *("fly flew flown", "forget forgot forgotten", "forgive forgave forgiven"),
        *("freeze froze frozen", "get got gotten", "give gave given", "go went gone goes"),
        *("grow grew grown", "hang hung", "hear heard", "hide hid hidden", "hold held"),
        *("keep kept", "know knew known", "lead led", "lend lent", "light lit", "lose lost"),
        *("make made", "mean meant", "meet met", "pay paid", "ride rode ridden", "ring rang rung"),
        *("rise rose risen", "run ran", "say said", "see seen", "seek sought", "sell sold"),
        *("send sent", "shake shook shaken", "shine shone", "shoot shot", "show shown"),
        *("sing sang sung", "sink sank sunk", "sit sat", "sleep slept", "speak spoke spoken"),
        *("spend spent", "stand stood", "steal stole stolen", "stick stuck", "strike struck"),
        *("swear swore sworn", "swim swam swum", "take took taken", "teach taught", "tell told"),
        *("tear tore torn", "think thought", "throw threw thrown", "understand understood"),
        *("wake woke woken", "wear wore worn", "win won", "write wrote written"),
        *("child children", "man men", "woman women", "person people", "foot feet"),
        *("tooth teeth", "mouse mice", "wife wives", "life lives", "knife knives"),
        *("leaf leaves", "half halves", "shelf shelves"),
        *("rev revved revving", "trek trekked trekking", "yak yakked yakking"),
    )
    for form in forms.split()[1:]
}

_lock = threading.Lock()


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    # Its class, not `snowballstemmer.stemmer`: that takes PyStemmer where it happens to be there.
    from snowballstemmer.porter_stemmer import PorterStemmer

    return PorterStemmer()


def stem(word: str) -> str:
    """Return the stem of a lower-case word; a word with other than Latin letters is its own.

    Porter's algorithm never changes, and search indexes hold its stems. Snowball revises its
    English stemmer, and then an index no longer fits the questions.
    """
    word = _IRREGULAR.get(word, word)
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    with _lock:  # a stemmer holds the word that it works on
        return str(_stemmer().stemWord(word))


PIECE = 2_000
"""Characters of one passage; a longer text becomes several passages."""

MAX_WORD = 64
"""Longer words are cut to this length."""
_WORD = re.compile(rf"[^\W_]{{1,{MAX_WORD}}}|[\u2600-\u27bf\U0001f000-\U0001faff]")
_ASCII = bytes(ord(chr(n).lower()) if chr(n).isalnum() else 32 for n in range(128)).ljust(256)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_SPACE = re.compile("[ \n]")
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
    """A cache of stems by word."""

    def __missing__(self, word: str) -> str:
        if word.isdigit() and word.isascii() and 4 < len(word) <= MAX_WORD:
            return word  # numbers have no stem, and long ones would fill the cache
        found = stem(word[:MAX_WORD])
        # ASCII only, so that the tokenizers of both stores treat every script alike.
        found = found if found.isascii() else f"x{found.encode().hex()}"
        if len(word) <= MAX_WORD:
            if len(self) > 200_000:
                self.clear()
            self[word] = found
        return found


_stems = _Stems()


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, folded and not stemmed."""
    deadline.check()
    if text.isascii():
        return _ascii_words(text)
    words: list[str] = []
    start = 0
    # Only what stands between spaces with other characters is folded: the rest stays as it is.
    for found in _NOT_ASCII.finditer(text):
        if found.start() < start:
            continue
        left = 1 + max(text.rfind(sign, start, found.start()) for sign in " \n")
        left = left or start
        space = _SPACE.search(text, found.end())
        end = space.start() if space else len(text)
        words += _ascii_words(text[start:left])
        words += _other_words(text[left:end])
        start = end
    return words + _ascii_words(text[start:])


def _ascii_words(text: str) -> list[str]:
    # Splits as the pattern does, in a quarter of the time.
    return text.encode().translate(_ASCII).decode().split()


def _other_words(text: str) -> list[str]:
    words: list[str] = []
    for word in _WORD.findall(_folded(text.lower())):
        if word.isascii():  # it starts with a letter or a digit, and is of a script with spaces
            words.append(word)
        else:
            words.extend(_parts(word))
    return words


def _folded(text: str) -> str:
    """Remove accents: café becomes cafe. Hangul and similar scripts are composed again."""
    parts = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFKC", _NOT_ASCII.sub(_without_marks, parts)).lower()


def _without_marks(found: re.Match[str]) -> str:
    return "".join(sign for sign in found.group() if not unicodedata.combining(sign))


def _parts(word: str) -> Iterator[str]:
    """Yield a word, pairs of characters of a script without spaces, or an emoji's number."""
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
    """Return the stems of words."""
    return [_stems[word] for word in words]


class Piece(NamedTuple):
    """One passage of a text: its position, its index terms, and its shape."""

    start: int
    end: int
    terms: str
    shape: int


def pieces(
    text: str,
    at: datetime,
    speaker: str | None,
    *,
    by_assistant: bool = False,
    tags: Iterable[str] = (),
) -> list[Piece]:
    """Cut a text into passages for the index. Each has the tags."""
    by = "" if speaker is None else " ".join(["", *speaker_terms(speaker)])
    own = " ".join([_own_days(at.date()) + by, *tags])
    bit = ASSISTANT * by_assistant
    if len(text) <= PIECE:
        return [_piece(text, 0, len(text), at, own, bit)]
    return [_piece(text[start:end], start, end, at, own, bit) for start, end in _cuts(text)]


@lru_cache(maxsize=4_096)
def _own_days(day: date) -> str:
    return f" ={day:%Y%m%d} ={day:%Y%m}"


@lru_cache(maxsize=4_096)
def speaker_terms(name: str) -> tuple[str, ...]:
    """Return the index terms of a speaker."""
    return tuple(f"@{part}" for part in stems_of(words_of(name)))


def _cuts(text: str) -> Iterator[tuple[int, int]]:
    """Yield parts of at most PIECE characters that end between words if possible."""
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            space = max(text.rfind(sign, start + PIECE // 2, end) for sign in " \n")
            end = space + 1 if space >= 0 else end
        yield start, min(end, len(text))
        start = end


def _piece(text: str, start: int, end: int, at: datetime, own: str, bit: int) -> Piece:
    # Every commit with text runs this. Repeated words stay: the index allows them, and removing
    # them would take longer.
    words = words_of(text)
    terms = (" ".join(map(_stems.__getitem__, words)) + own).lstrip()
    if not TRIGGERS.isdisjoint(words):
        named = (term for span in spans(words, at) for term in span_terms(span))
        terms = " ".join((terms, *named))
    content = len(words) - sum(map(STOP_WORDS.__contains__, words))
    return Piece(start, end, terms, shape_of(content, text) | bit)


QUESTION = 128
"""The bit of a passage that asks."""
ASSISTANT = 64
"""The bit of a passage that an assistant said."""
_LENGTH = ASSISTANT - 1


def shape_of(content_words: int, text: str) -> int:
    """Encode a passage's length, and whether it asks, in one byte for the ranking."""
    # One character may be several words: ½ is 1 and 2.
    return _LENGTHS[min(content_words, PIECE)] | (QUESTION if "?" in text[-60:] else 0)


_LENGTHS = (0, *(round(4 * log2(n)) for n in range(1, PIECE + 1)))
"""Lengths on a logarithmic scale, four steps for each doubling."""


def length_of(shape: int) -> float:
    """Return about how many content words a passage of that shape has."""
    return float(2 ** ((shape & _LENGTH) / 4))
