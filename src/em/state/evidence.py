"""Evidence: the words of a text that state something, and whether a value stands in them.

Texts are compared by their stems, numbers as digits or words, dates as the date reader reads them,
completed from the time of the text.
"""

import re
from collections.abc import Sequence
from datetime import date
from functools import cached_property, lru_cache
from typing import Any

from em.state.speech import Text, sentence_of
from em.state.types import CURRENCIES, text_kind, to_date, to_money
from em.text.dates import Span, month_of, spans
from em.text.numbers import NUMBERS, numbers_in
from em.text.terms import STOP_WORDS, stems_of, words_of
from em.values.times import from_micros

_SIGNS = str.maketrans("’‘`“”–—", "'''\"\"--")
_ENDS = " \t\n.,;:!?…\"'“”"
_QUOTE = re.compile(r"\"[^\"\n]+\"|“[^“”]+”|«[^«»]+»|^>.*$", re.MULTILINE)
_WITH_COMMA = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3}){1,6},\d{1,2}(?![\d.,])")
"""Amounts such as 1.250,50, which can be read in one way."""
_DIGITS = re.compile(r"(\d[\d,]{0,20}(?:\.\d{1,9})?)(k\b)?", re.IGNORECASE)
_CLOCK = re.compile(r"(?<!\d)(\d{1,2})(?:[:.h](\d{2}))? ?(am|pm)?\b", re.IGNORECASE)
_PARTIAL = re.compile(r"(\d{4})(?:-(\d{2}))?")


def find_words(words: str, text: str) -> tuple[int, int] | None:
    """Return where words occur in a text; case, spaces and kinds of quotes don't matter."""
    wanted, _ = _plain(words.strip(_ENDS))
    if not any(map(str.isalnum, wanted)):
        return None
    plain, places = _plain(text)
    start = plain.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if not _is_word(plain[start - 1 : start]) and not _is_word(plain[end : end + 1]):
            return places[start], places[end - 1] + 1
        # Go on behind this word: a text of one long word must not be searched at each character.
        space = plain.find(" ", start)
        start = plain.find(wanted, space) if space >= 0 else -1
    return None


@lru_cache(maxsize=4)
def _plain(text: str) -> tuple[str, list[int]]:
    """Return a text in lower case with single spaces and plain signs, and where each one stood."""
    chars: list[str] = []
    places: list[int] = []
    for place, char in enumerate(text.translate(_SIGNS)):
        lower = " " if char.isspace() else char.lower()
        if lower != " " or chars[-1:] != [" "]:
            chars.append(lower if len(lower) == 1 else char)
            places.append(place)
    return "".join(chars), places


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


class Evidence:
    """Words, where they stand, and who says them. `unsaid`: the first that nobody said."""

    def __init__(self, given: Sequence[str] | str, texts: Sequence[Text]) -> None:
        self.given = [given] if isinstance(given, str) else list(given)
        self.words = " … ".join(self.given)
        self.places: list[tuple[Text, tuple[int, int]]] = []
        self.unsaid = None if self.given else ""
        for words in self.given:
            found = [(text, span) for text in texts if (span := find_words(words, text.text))]
            self.places += found[:1]
            if not found and self.unsaid is None:
                self.unsaid = words
        self.texts = list({text.event: text for text, _ in self.places}.values())

    @property
    def is_asked(self) -> bool:
        """Whether a sentence that it stands in is a question."""
        return any(sentence_of(text.text, *span).endswith("?") for text, span in self.places)

    @property
    def is_quoted(self) -> bool:
        """Whether it stands in quotation marks, or in a quoted line."""
        return any(
            quote.start() <= start and end <= quote.end()
            for text, (start, end) in self.places
            for quote in _QUOTE.finditer(text.text)
        )

    def missing(self, value: Any) -> Any:
        """Return the first part of a value that was not said; None if all of it was."""
        if value is None or isinstance(value, bool):
            return None
        if isinstance(value, dict | list):
            parts = value.values() if isinstance(value, dict) else value
            return next((one for one in map(self.missing, parts) if one is not None), None)
        said = self._has_number(value) if isinstance(value, int | float) else self._has_text(value)
        return None if said else value

    def has_date(self, value: str) -> bool:
        """Tell whether a text names a day, a month or a year in this form, or a part of it."""
        day = to_date(value[:10]) if text_kind(value[:10]) == "date" else None
        if day is None and (found := _PARTIAL.fullmatch(value)) is not None:
            return any(_overlap(span, found) for span in self._spans) or value in self.words
        return day is not None and any(one.first <= day <= one.last for one in self._spans)

    @cached_property
    def _stems(self) -> frozenset[str]:
        words = words_of(self.words)
        return frozenset((*words, *stems_of(words)))

    @cached_property
    def _spans(self) -> list[Span]:
        return [s for text in self.texts for s in spans(words_of(text.text), from_micros(text.at))]

    @cached_property
    def _numbers(self) -> list[float]:
        words = words_of(self.words)
        found = [float(one) for one in (*numbers_in(words), *map(NUMBERS.get, words)) if one]
        for digits, thousands in _DIGITS.findall(self.words):
            number = float(digits.replace(",", ""))
            found += [number, number * 1000] if thousands else [number]
        for digits in _WITH_COMMA.findall(self.words):
            found.append(float(digits.replace(".", "").replace(",", ".")))
        return found

    def _has_number(self, value: float) -> bool:
        return any(abs(abs(value) - one) < 1e-9 * max(1, one) for one in self._numbers)

    def _has_text(self, value: str) -> bool:
        if not value.strip() or find_words(value, self.words) is not None or self.has_date(value):
            return True
        kind = text_kind(value)
        if kind in ("time", "datetime"):
            day, clock = ("", value) if kind == "time" else (value[:10], value[11:])
            return clock[:5] in self._clock and (not day or self.has_date(day))
        if kind in ("int_text", "decimal_text"):
            return self._has_number(float(value))
        if (money := to_money(value)) is not None:
            signs = [sign for sign, code in CURRENCIES.items() if code == money[1]]
            named = any(sign.lower() in self.words.lower() for sign in (money[1], *signs))
            return named and self._has_number(float(money[0]))
        words = [word for word in words_of(value) if word not in STOP_WORDS]
        return bool(words) and all(map(self._has_word, words))

    def _has_word(self, word: str) -> bool:
        is_number = word.isdecimal() and self._has_number(float(word))
        return is_number or word in self._stems or stems_of([word])[0] in self._stems

    @cached_property
    def _clock(self) -> frozenset[str]:
        found = set()
        for text in self.texts:
            for hour, minute, half in _CLOCK.findall(text.text):
                number = int(hour) % 12 + 12 * (half.lower() == "pm") if half else int(hour)
                found.add(f"{number:02}:{minute or '00'}")
        return frozenset(found)


def _overlap(span: Span, found: re.Match[str]) -> bool:
    year, month = int(found[1]), found[2]
    try:
        whole = month_of(year, int(month)) if month else Span(date(year, 1, 1), date(year, 12, 31))
    except ValueError:
        return False
    return span.first <= whole.last and whole.first <= span.last
