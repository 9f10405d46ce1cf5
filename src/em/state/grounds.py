"""Grounds: whether words were said, and whether a value is in them.

A model's answer is taken only with words of the text that state it, and only with values that are
in these words: texts by their stems, numbers as digits or words, dates as the date reader reads
them, times and amounts in any of their forms.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from functools import cached_property
from itertools import pairwise
from typing import Any

from em.state.types import text_kind, to_date, to_money
from em.text.dates import Span, month_of, spans
from em.text.numbers import NUMBERS as _BASE
from em.text.terms import STOP_WORDS, stems_of, words_of

_SIGNS = {"'": "['’‘`]", "’": "['’‘`]", '"': '["“”]', "“": '["“”]', "”": '["“”]', "-": "[-–—]"}
_ENDS = " \t\n.,;:!?…\"'“”"


def find_words(words: str, text: str) -> tuple[int, int] | None:
    """Return where words occur in a text; case, spaces and kinds of quotes don't matter."""
    parts = words.strip(_ENDS).split()
    if not any(char.isalnum() for part in parts for char in part):
        return None
    escaped = r"\s+".join("".join(_SIGNS.get(char, re.escape(char)) for char in p) for p in parts)
    found = re.search(rf"(?<!\w){escaped}(?!\w)", text, re.IGNORECASE)
    return None if found is None else found.span()


NUMBERS = _BASE | {
    "half": 0.5,
    **{"a": 1, "an": 1, "once": 1, "single": 1, "twice": 2, "both": 2, "couple": 2, "pair": 2},
    **{"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "no": 0, "none": 0},
}
"""Numbers by the words for them."""
_DIGITS = re.compile(r"(?<![\w.])[$€£¥]?(\d[\d,]*(?:\.\d+)?)\s?(k|m|thousand|million|%)?\b", re.I)
_WITH_COMMA = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d{1,2}(?![\d.,])")
"""Amounts such as 1.250,50, which can be read in one way."""
_TIMES = {"k": 1000, "thousand": 1000, "m": 10**6, "million": 10**6}
_TOGETHER = """
usd dollar dollars buck bucks us$
eur euro euros
gbp pound pounds quid
jpy yen
inr rupee rupees
chf franc francs
cad canadian ca$ c$
aud australian au$ a$
nzd nz$
hkd hk$
kg kgs kilo kilos kilogram kilograms
g gram grams
mg milligram milligrams
lb lbs pound pounds
km kms kilometre kilometer kilometres kilometers
m metre meter metres meters
cm centimetre centimeter centimetres centimeters
mi mile miles
ft foot feet
h hr hrs hour hours
min mins minute minutes
l litre liter litres liters
ml millilitre milliliter
c celsius
f fahrenheit
"""
_ALIASES = [frozenset(line.split()) for line in _TOGETHER.split("\n") if line]
"""Words that stand for the same currency or unit."""
_SIGNS_OF = {"$": "usd", "€": "eur", "£": "gbp", "¥": "jpy", "₹": "inr"}
_OTHER_DOLLARS = re.compile(
    r"\b(?:canadian|australian|singapore|hong kong|new zealand|taiwan|jamaican) dollars?\b", re.I
)
_SIGN = re.compile(r"(?<![A-Za-z$])([A-Za-z]{0,3}\$|[€£¥₹])")
_CLOCK = re.compile(r"(?<!\d)(\d{1,2})(?:[:.h](\d{2}))?\s*(a\.?m\.?|p\.?m\.?)?(?!\d)", re.I)
_PARTIAL = re.compile(r"(\d{4})(?:-(\d{2}))?")


class Grounds:
    """The words that state something, and the texts that they are from."""

    def __init__(self, evidence: Sequence[str], texts: Sequence[tuple[str, datetime]]) -> None:
        self._said = " … ".join(evidence)
        self._texts = texts

    def corrects(self, old: Any, new: Any) -> bool:
        """Tell whether words correct a part of a known text: its other words were said before."""
        if not isinstance(old, str) or not isinstance(new, str):
            return False
        known = set(words_of(old))
        added = [word for word in words_of(new) if word not in known]
        return bool(added) and all(word in words_of(self._said) for word in added)

    @cached_property
    def _stems(self) -> set[str]:
        words = words_of(self._said)
        signs = [sign.lower() for sign in _SIGN.findall(self._said)]
        return {*stems_of(words), *words, *signs, *(_SIGNS_OF.get(sign, sign) for sign in signs)}

    @cached_property
    def _numbers(self) -> set[float]:
        words = words_of(self._said)
        found = {float(NUMBERS[word]) for word in words if word in NUMBERS}
        for one, two in pairwise(words):
            if one in NUMBERS and two in NUMBERS:
                found |= {
                    float(NUMBERS[one] * NUMBERS[two]),
                    float(NUMBERS[one] + NUMBERS[two]),
                }
        for digits, times in _DIGITS.findall(self._said):
            number = float(digits.replace(",", ""))
            found |= {number, number * _TIMES.get(times.lower(), 1)}
        for digits in _WITH_COMMA.findall(self._said):
            found.add(float(digits.replace(".", "").replace(",", ".")))
        return found | {float(n) for n in re.findall(r"\d{1,15}", self._said)}

    @cached_property
    def _spans(self) -> list[Span]:
        return [span for text, at in self._texts for span in spans(words_of(text), at)]

    def missing(self, value: Any) -> Any:
        """Return the first part of a value that was not said; None if all of it was."""
        if value is None or isinstance(value, bool):
            return None
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            return next((one for one in map(self.missing, value) if one is not None), None)
        if isinstance(value, int | float):
            return None if self._has_number(float(value)) else value
        return None if self._has_text(str(value)) else value

    def _has_number(self, value: float) -> bool:
        return any(abs(abs(value) - one) < 1e-9 * max(1, abs(value)) for one in self._numbers)

    def _has_text(self, value: str) -> bool:
        if not value.strip() or find_words(value, self._said) is not None or self.has_date(value):
            return True
        kind = text_kind(value)
        if kind in ("time", "datetime"):
            day, clock = ("", value) if kind == "time" else (value[:10], value[11:])
            return clock[:5] in set(self._clock()) and (not day or self.has_date(day))
        if kind in ("int_text", "decimal_text"):
            return self._has_number(float(value))
        if (money := to_money(value)) is not None:
            return self._has_number(float(money[0])) and self._has_word(money[1].lower())
        words = [word for word in words_of(value) if word not in STOP_WORDS]
        return bool(words) and all(map(self._has_word, words))

    def _has_word(self, word: str) -> bool:
        if stems_of([word])[0] in self._stems or word in self._stems:
            return True
        if word.isdecimal() and self._has_number(float(word)):
            return True
        if word == "usd" and _OTHER_DOLLARS.search(self._said):
            return "$" in self._stems or "us$" in self._stems
        return any(word in group and not group.isdisjoint(self._stems) for group in _ALIASES)

    def has_date(self, value: str) -> bool:
        """Tell whether a text names a day, a month or a year in this form, or a part of it."""
        day = to_date(value[:10]) if text_kind(value[:10]) == "date" else None
        if day is None and (found := _PARTIAL.fullmatch(value)) is not None:
            return any(_overlap(span, found) for span in self._spans) or value in self._said
        return day is not None and any(one.first <= day <= one.last for one in self._spans)

    def _clock(self) -> Iterator[str]:
        for text, _ in self._texts:
            lower = text.lower()
            yield from (
                at for word, at in (("noon", "12:00"), ("midnight", "00:00")) if word in lower
            )
            for hour, minute, half in _CLOCK.findall(text):
                late = half[:1].lower() == "p" and int(hour) < 12
                early = half[:1].lower() == "a" and int(hour) == 12
                number = int(hour) + 12 * late - 12 * early
                yield f"{number:02}:{minute or '00'}"


def _overlap(span: Span, found: re.Match[str]) -> bool:
    year, month = int(found[1]), found[2]
    try:
        whole = month_of(year, int(month)) if month else Span(date(year, 1, 1), date(year, 12, 31))
    except ValueError:
        return False
    return span.first <= whole.last and whole.first <= span.last
