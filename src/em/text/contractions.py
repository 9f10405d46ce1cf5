"""Contractions: `I'm` is `I am`, `don't` is `do not`. One normal form for all who compare words.

`'d` becomes `would` and `'s` becomes `is`, whatever was meant: recorded words and those of a
request get the same form, and it only matters whether they are the same. A negation stays one. The
`'s` of a possessive (`Ana's`) is left alone.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_TABLE = {
    "'m am": "i",
    "'re are": "you we they",
    "'s is": "he she it that there here what who where how when",
    "'s us": "let",
    "'ve have": "i you we they could should would might must",
    "'ll will": "i you he she it we they that there",
    "'d would": "i you he she it we they that there",
    "n't not": "do does did is are was were has have had could would should must need might ought",
}
_IRREGULAR = {
    "can't": ("can", "not"),
    "cannot": ("can", "not"),
    "won't": ("will", "not"),
    "shan't": ("shall", "not"),
    "ain't": ("is", "not"),
}


def _pairs() -> Iterator[tuple[str, tuple[str, str]]]:
    for ending, firsts in _TABLE.items():
        short, second = ending.split()
        yield from ((f"{first}{short}", (first, second)) for first in firsts.split())
    yield from _IRREGULAR.items()


_CONTRACTED = dict(_pairs())
_CONTRACTED |= {one.replace("'", ""): two for one, two in _CONTRACTED.items() if two[1] == "not"}
"""By contraction in lower case, its two words. Negations may lack their apostrophe: `dont`."""
_SHORTENED = re.compile(r"(?<![\w-])(?<!\w['’])[^\W\d_]+(?:['’][^\W\d_]+)?(?![\w-])(?!['’]\w)")
_MAY_BE = re.compile(r"['’]|(?:nt|not)\b", re.IGNORECASE)
_SECOND = re.compile(r"(?:not|n['’]?t|['’]\w+)\Z", re.IGNORECASE)


class Part(NamedTuple):
    """A word of a contraction in lower case, and where in the text it stands."""

    start: int
    end: int
    word: str


def contraction(text: str, start: int = 0) -> tuple[Part, Part] | None:
    """Return the two words of a contraction; None for any other word.

    start: where it stands in a text.
    """
    pair = _CONTRACTED.get(text.lower().replace("’", "'"))
    if pair is None:
        return None
    found = _SECOND.search(text)
    cut = start + (len(text) if found is None else found.start())
    return Part(start, cut, pair[0]), Part(cut, start + len(text), pair[1])


class Expanded(NamedTuple):
    """A text without contractions, and as it was written.

    added: for each contraction where its words stand in `text`, and how much longer they are.
    """

    text: str
    source: str
    added: Sequence[tuple[int, int, int]] = ()

    def original(self, start: int, end: int) -> str:
        """Return a part of the text as it was written, unless it cuts a contraction in two."""
        if not self.added:
            return self.source[start:end]
        if any(a < cut < b for a, b, _ in self.added for cut in (start, end)):
            return self.text[start:end]
        first, last = (
            at - sum(more for _, b, more in self.added if b <= at) for at in (start, end)
        )
        return self.source[first:last]


def expanded(text: str) -> Expanded:
    """Return a text with the words that its contractions stand for."""
    if not _MAY_BE.search(text):
        return Expanded(text, text)
    made, at, added = "", 0, []
    for found in _SHORTENED.finditer(text):
        pair = contraction(found.group(), found.start())
        if pair is not None:
            first, second = pair
            word = first.word.capitalize() if text[first.start].isupper() else first.word
            made += text[at : first.start]
            start, at = len(made), second.end
            made += f"{word} {second.word}"
            added.append((start, len(made), len(made) - start - len(found.group())))
    return Expanded(made + text[at:], text, added)
