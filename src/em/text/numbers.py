"""Numbers and times of day in texts: in English words ("thirty-two"), and in digits (1,250.50)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6}
UNITS = {word: n for n, word in enumerate(_SMALL)} | {
    word: 10 * n for n, word in enumerate(_TENS, 2)
}
"""The words that are numbers by themselves."""
NUMBERS = {**UNITS, **_SCALES, "dozen": 12, "pair": 2}
_LARGE = {**_SCALES, "dozen": 12}
"""What digits before such a word count: 3.5 million."""
_ORDINALS = {
    "first": 1,
    "second": 2,
    "third": 3,
    "fifth": 5,
    "eighth": 8,
    "ninth": 9,
    "twelfth": 12,
}
_HALF = "half"
MOST_DIGITS = 9
"""A number of so many digits is no amount."""
MINUS = frozenset({"minus", "negative"})
RUN = re.compile(r"\d+(?:[ .,:/'-]\d+)*")
"""Digits with all that single signs and spaces join to them: a number, a time, a telephone."""
_DIGITS = re.compile(
    r"(?<![\w.,:/@+\\])(?<!\w-)(?P<sign>-?)[$€£¥₹]?(?P<inner>-?)"
    rf"(?P<digits>{RUN.pattern})(?P<thousand>k\b)?(?: (?P<scale>{'|'.join(_LARGE)})\b)?",
    re.IGNORECASE,
)
_GROUPED = re.compile(r"\d{1,3}(?:[ ']\d{3})+(?:[.,]\d+)?|\d[\d.,]*")
_LONGEST = 40


def numbers_in(words: Sequence[str]) -> Iterator[int]:
    """Yield the numbers that the words of a text name. Words that don't go on are a new one."""
    run: list[str] = []
    is_negative = False
    for number, word in enumerate((*words, "")):
        if run and not (_goes_on(run, word) or word == "and"):
            yield _value(run) * (-1 if is_negative else 1)
            run = []
        if word in NUMBERS and (run or not _is_multiplied(words, number)):
            if not run:
                is_negative = number > 0 and words[number - 1] in MINUS
            run.append(word)


def _is_multiplied(words: Sequence[str], at: int) -> bool:
    """Tell whether a word such as "million" stands behind digits or "half a"."""
    before = words[max(0, at - 2) : at]
    is_half = before[:1] == [_HALF] and len(before) == 2
    return words[at] in _LARGE and (is_half or (bool(before) and before[-1].isdecimal()))


def _goes_on(run: Sequence[str], word: str) -> bool:
    """Tell whether a word goes on with a number: "twenty one" does, "two three" does not."""
    if word not in UNITS:
        return word in NUMBERS
    last = run[-1]
    return last not in UNITS or (UNITS[last] >= 20 and 0 < UNITS[word] < 10)


def halves_in(words: Sequence[str]) -> Iterator[float]:
    """Yield what is half of something: 6 for half a dozen, 0.5 for half a kilo."""
    for n, word in enumerate(words):
        if word == _HALF:
            rest = words[n + 1 + (words[n + 1 : n + 2] in (["a"], ["an"])) :]
            yield next(numbers_in(rest), 1) / 2 if rest and rest[0] in NUMBERS else 0.5


def hundredths(words: Sequence[str]) -> Iterator[tuple[tuple[int, int], float]]:
    """Yield numbers that two units say, with their places: 25 euros and 50 cents is 25.5."""
    for n, word in enumerate(words):
        if word.isascii() and word.isdecimal() and len(word) < MOST_DIGITS:
            behind = n + 2 + (words[n + 2 : n + 3] == ["and"])
            part = words[behind] if behind + 1 < len(words) else ""
            share = int(part) if part.isascii() and part.isdecimal() else UNITS.get(part, 0)
            if 0 < share < 100 and words[n + 1].isalpha() and words[behind + 1].isalpha():
                yield (n, behind), round(int(word) + share / 100, 2)


def with_ordinals(words: Iterable[str]) -> list[str]:
    """Return words with digits for those that count places: the third, twenty first."""
    made: list[str] = []
    before = ""
    for word in words:
        number = _ordinal(word)
        if number is not None and before in _TENS and number < 10:
            made[-1], number = "", UNITS[before] + number
        made.append(word if number is None else str(number))
        before = word
    return [one for one in made if one]


def _ordinal(word: str) -> int | None:
    if word in _ORDINALS:
        return _ORDINALS[word]
    bare = word.removesuffix("ieth") + "y" if word.endswith("ieth") else word.removesuffix("th")
    return UNITS.get(bare) if bare != word else None


def _value(run: Sequence[str]) -> int:
    total = current = 0
    for word in run:
        if word in UNITS:
            current += UNITS[word]
        elif NUMBERS[word] < NUMBERS["thousand"]:
            current = max(current, 1) * NUMBERS[word]
        else:
            total += max(current, 1) * NUMBERS[word]
            current = 0
    return total + current


class InDigits(NamedTuple):
    """A number in digits, in one of the ways to read it, and what stands before and behind it."""

    value: Decimal
    before: str
    after: str


def in_digits(text: str) -> Iterator[InDigits]:
    """Yield the numbers that stand in a text in digits, with their signs.

    1,250 is both 1250 and 1.25, since countries differ; 3k is 3000. A part of a time, a telephone
    number, an address or a number with zeros in front is none.
    """
    for found in _DIGITS.finditer(text):
        start = found.start("digits")
        before = text[max(0, found.start() - 12) : found.start()].lower().split()
        is_negative = found["sign"] or found["inner"] or MINUS.intersection(before[-1:])
        factor = (-1 if is_negative else 1) * (1000 if found["thousand"] else 1)
        factor *= _LARGE[found["scale"].lower()] if found["scale"] else 1
        after = text[found.end() : found.end() + 12]
        for value in () if after[:1] in ("@", "/", "\\") else _readings(found["digits"]):
            yield InDigits(value * factor, text[max(0, start - 5) : start], after)


def _readings(digits: str) -> set[Decimal]:
    found: set[Decimal] = set()
    if not _GROUPED.fullmatch(digits) or (digits[0] == "0" and digits[1:2].isdigit()):
        return found
    digits = digits.replace(" ", "").replace("'", "")
    for point, comma in ((".", ","), (",", ".")):
        whole, _, part = digits.partition(point)
        first, *groups = whole.split(comma)
        is_grouped = not groups or (
            len(first) <= 3 and len(groups[-1]) == 3 and all(len(one) in (2, 3) for one in groups)
        )
        plain = f"{first}{''.join(groups)}.{part or 0}"
        if is_grouped and len(plain) <= _LONGEST and plain.replace(".", "", 1).isdecimal():
            found.add(Decimal(plain))
    return found


_NAMED = {"noon": 12, "midday": 12, "midnight": 0}
_PARTS = {"half": 30, "quarter": 15}
_HOURS, _MINUTES = 12, 60


def clock_times(words: Sequence[str]) -> Iterator[tuple[set[int], str]]:
    """Yield the times that words say, as `09:30`, with the places of the words.

    One without a half of the day is two times.
    """
    for n, word in enumerate(words):
        if word in _NAMED:
            yield {n}, f"{_NAMED[word]:02}:00"
        before, behind = words[n - 1] if n else "", words[n + 1] if n + 1 < len(words) else ""
        minutes, hour = _PARTS.get(before, _number(before)), _number(behind)
        if word in ("past", "to") and 0 < minutes < _MINUTES and 0 < hour <= _HOURS:
            whole = hour * _MINUTES + (minutes if word == "past" else -minutes)
            for half in (0, _HOURS):
                at = (whole + half * _MINUTES) % (2 * _HOURS * _MINUTES)
                yield {n - 1, n, n + 1}, f"{at // _MINUTES:02}:{at % _MINUTES:02}"


def _number(word: str) -> int:
    return int(word) if word.isascii() and word.isdecimal() else UNITS.get(word, 0)
