"""A text as redaction reads it: one byte for each character, without what only dresses it up.

A secret is the same secret in colours, behind the line numbers of a program that prints a file,
with full-width signs, or behind a word for "password" with other letters.
"""

import codecs
from bisect import bisect_right
from functools import lru_cache

from em.redaction.linear import Pattern, compiled
from em.redaction.signatures import FOREIGN

_NUMBERED, _NOTHING = "\x1a", "\x1b["
"""What stands for the arrow behind a line's number, and for signs that take no room."""


@lru_cache(maxsize=1)
def _signs() -> dict[int, str]:
    """Return what is written with other signs than ASCII has, and means the same."""
    full_width = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
    spaces = dict.fromkeys((0xA0, 0x3000, 0x202F, 0x205F, *range(0x2000, 0x200B)), " ")
    quotes = dict(zip(map(ord, "“”„‟‘’‚‛"), '""""' + "''''", strict=True))
    unseen = dict.fromkeys((0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF), "\x1c")
    bars = dict.fromkeys(map(ord, "│┃║"), "|")
    return {**bars, **full_width, **spaces, **quotes, **unseen, 0x2192: _NUMBERED}


def _dress() -> Pattern:
    """Return what is left out: colours, signs without width, the number of a line."""
    return compiled(
        r"\x1b\[[0-9;:?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1c"
        r"|(?m:^)[ \t]{0,8}\d{1,7}\x1a"
    )


def _unknown(error: UnicodeError) -> tuple[bytes, int]:
    assert isinstance(error, UnicodeEncodeError)
    return b"\xff" * (error.end - error.start), error.end


codecs.register_error("em-one-byte", _unknown)


def english(text: str) -> str:
    """Return a text with English words of the same length for foreign words for a password."""
    lowered = text.lower()
    if len(lowered) != len(text):
        lowered = text
    for word in FOREIGN:
        if word in lowered:
            size = len(word)
            known = ("pw", "pwd", "pass")[size - 2] if size < 5 else "passwd"[-min(size, 6) :]
            known = ("_" * (size - len(known)) + known) if size != 5 else "_pass"
            parts = lowered.split(word)
            lowered = known.join(parts)
            at, kept = 0, []
            for part in parts:
                kept.append(text[at : at + len(part)])
                at += len(part) + size
            text = known.join(kept)
    return text


class Plain:
    """A text to be searched. `data` is what patterns read; `span` leads back to the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        if not text.isascii():
            text = english(text).translate(_signs())
        self.data = text.encode("ascii", "em-one-byte")
        self._starts: list[int] = []
        self._shifts: list[int] = []
        if any(sign in self.data for sign in (b"\x1b", b"\x1a", b"\x1c")):
            self._undress()

    def _undress(self) -> None:
        kept, at, size = [], 0, 0
        for found in _dress().finditer(self.data):
            start, end = found.span()
            kept.append(self.data[at:start])
            size += start - at
            self._starts.append(size)
            self._shifts.append(end - size)
            at = end
        self.data = b"".join([*kept, self.data[at:]])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return where something stands in the text itself."""
        return start + self._shift(start), end - 1 + self._shift(end - 1) + 1

    def _shift(self, at: int) -> int:
        number = bisect_right(self._starts, at)
        return self._shifts[number - 1] if number else 0

    def original(self, start: int, end: int) -> str:
        """Return what stands there in the text itself."""
        start, end = self.span(start, end)
        return self.text[start:end]
