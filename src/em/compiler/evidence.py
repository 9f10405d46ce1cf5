"""Evidence: how much recordings say for an explanation of a value, in bits.

The figures are rough on purpose: they separate ids from small numbers, not 9 bits from 11.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

ENOUGH_TO_ACT = 5.0
"""Bits that the learner needs: its explanations are checked against each other in every run."""
ENOUGH_TO_CHECK = 4.0
"""Bits that a relation needs before it is checked: a check that is wrong only hands over."""
NAMED_ALIKE = 8.0
"""Bits that equal names are worth to the learner: argument `country`, field `country`."""


class Caution(msgspec.Struct, frozen=True):
    """How much the learner must know before a routine may act; all thresholds that depend on it.

    repeated: examples that must agree on a value before it is written down as constant where it may
    come from elsewhere, though nobody knows how. Other constants are written down and shown.

    constants: names of arguments that a person wants to be constants.

    by_person: a person compiles, sees what was assumed and answers for it. Then an explanation
    needs no evidence but that it is the plain one: values come from inputs, from the request, and
    from earlier results, in this order, and the rest is constant.
    """

    repeated: int
    by_person: bool = False
    constants: frozenset[str] = frozenset()


ENOUGH_ALIKE = 8
"""Recordings with one value from which on it is hardly a coincidence."""
CONSTANTS_SHOWN = Caution(repeated=ENOUGH_ALIKE)
BY_PERSON = Caution(repeated=3, by_person=True)
SMALL_NUMBER = 100
SHORT_TEXT = 3
"""Numbers and texts below these stand everywhere: a place that has one needs the same name."""


def is_small(value: Any) -> bool:
    """Return whether a value is so small that having it somewhere says nothing."""
    if isinstance(value, str):
        return len(value) < SHORT_TEXT
    if isinstance(value, int | float) and not isinstance(value, bool):
        return abs(value) < SMALL_NUMBER and float(value).is_integer()
    return value is None or isinstance(value, bool)


_DIGIT, _LETTER, _SIGN = 3.3, 1.7, 1.0
_MOST_OF_A_WORD = 12.0
_WORD = re.compile(r"[^\W\d_]+|\d+|[\W_]")


def information(value: Any) -> float:
    """Return how many bits a value has: how unlikely it is to stand somewhere by chance."""
    if value is None or isinstance(value, bool):
        return 1.0
    if isinstance(value, int):
        return math.log2(abs(value) + 1) + 1 if abs(value) < 2**63 else 64.0
    if isinstance(value, float):
        digits = sum(char.isdigit() for char in repr(value).rstrip("0"))
        return _DIGIT * digits
    if not isinstance(value, str):
        return sum(map(information, value.values() if isinstance(value, dict) else value))
    return _of_text(value)


def _of_text(text: str) -> float:
    bits = 0.0
    for part in _WORD.findall(text[:500]):
        if part[0].isdigit():
            bits += _DIGIT * len(part)
        elif part[0].isalpha():
            bits += min(_LETTER * len(part), _MOST_OF_A_WORD)
        elif not part.isspace():
            bits += _SIGN
    return bits


def of_separation(sizes: Sequence[int], kinds: int, places: int) -> float:
    """Return the evidence that a field decides between ways, which its values separate.

    sizes: how many traces went each way. kinds: how many values, each in one way only; ids are
    as many as traces, and say nothing. places: how many fields could have separated them.
    """
    whole = math.lgamma(sum(sizes) + 1) - sum(math.lgamma(size + 1) for size in sizes)
    by_chance = (kinds - 1) * math.log2(max(len(sizes), 2)) + math.log2(max(places, 1))
    return max(0.0, whole / math.log(2) - by_chance)
