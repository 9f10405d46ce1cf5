"""Evidence: how much a recording says for an explanation of a value, in bits.

All weighing of explanations is here. An explanation may be acted on if its being wrong would be a
coincidence of `ENOUGH` bits; it is dropped only if its being right would be one of `INCREDIBLE`
bits. The figures are rough on purpose: they separate ids from small numbers, not 9 bits from 11.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec

ENOUGH = 10.0
"""Bits of evidence that an explanation needs before a routine acts on it."""
ENOUGH_TO_ACT = 5.0
"""Bits that the learner needs: its explanations are checked against each other in every run."""
ENOUGH_TO_CHECK = 4.0
"""Bits that a relation needs before it is checked: a check that is wrong only hands over."""
NAMED_ALIKE = 8.0
"""Bits that equal names are worth to the learner: argument `country`, field `country`."""
INCREDIBLE = 10.0
"""Bits from which a second match is no coincidence: an id in the request, not the number 100."""
EQUAL_NAMES = 6.0
"""Bits for an argument and a field of the same name, such as `country`."""
OWN_INPUT = 12.0
"""Bits for an argument and an input of the same name: the caller chose the name."""
EXTREMES = 4.0
"""Bits that being the least or most costs: some item is it by one of about sixteen measures."""
OWN_REASON = 6.0
"""Bits for the item of a list that is the reason for a call: that item is what it acts on."""
SMALL = 3.5
"""Values below this many bits (true, 1, 10) stand everywhere, so a match says next to nothing."""


class Caution(msgspec.Struct, frozen=True):
    """How much the learner must know before a routine may act; all thresholds that depend on it.

    constant: examples that must agree on a value before it is written down as constant. repeated:
    the same for a value that may come from elsewhere, though nobody knows how.

    by_person: a person compiles, sees what was assumed and answers for it. Then an explanation
    needs no evidence but that it is the plain one: values come from inputs, from the request, and
    from earlier results, in this order, and the rest is constant.
    """

    constant: int
    repeated: int
    by_person: bool = False


BY_ITSELF = Caution(constant=8, repeated=8)
CONSTANTS_SHOWN = Caution(constant=1, repeated=1)
BY_PERSON = Caution(constant=1, repeated=3, by_person=True)
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


def of_match(
    value: Any, places: int, *, equal_names: bool = False, same_task: bool = False
) -> float:
    """Return the evidence that a value comes from a place that holds it.

    places: how many values it could have matched by chance; of equal names where they count.
    same_task: the same task is done again. Equal names are enough then, even for an id such as 1,
    and the number of places does not count: whatever else holds the value must agree.
    """
    if same_task:
        return information(value) + (OWN_INPUT if equal_names else 0.0)
    name = EQUAL_NAMES if equal_names else 0.0
    return max(0.0, information(value) + name - math.log2(max(places, 1)))


def of_choice(count: int, tasks: int = 1) -> float:
    """Return the evidence of a choice among `count` that the request does not name.

    Each different task adds as much; the bits of the chosen id don't count, because some id had to
    be chosen.
    """
    return math.log2(max(count, 1)) * tasks


def of_constant(tasks: int = 1) -> float:
    """Return the evidence that a value is a constant: nothing from one task."""
    return EQUAL_NAMES * (tasks - 1)


def of_separation(sizes: Sequence[int], kinds: int, places: int) -> float:
    """Return the evidence that a field decides between ways, which its values separate.

    sizes: how many traces went each way. kinds: how many values, each in one way only; ids are
    as many as traces, and say nothing. places: how many fields could have separated them.
    """
    whole = math.lgamma(sum(sizes) + 1) - sum(math.lgamma(size + 1) for size in sizes)
    by_chance = (kinds - 1) * math.log2(max(len(sizes), 2)) + math.log2(max(places, 1))
    return max(0.0, whole / math.log(2) - by_chance)


def of_mention(value: Any, words: int, codes: int) -> float:
    """Return the evidence that a value comes from the request that mentions it.

    words, codes: how many words, and how many words with a digit, it could have matched there.
    """
    text = str(value)
    rivals = codes if any(map(str.isdigit, text)) else 1 + words / 8
    return max(0.0, information(value) - math.log2(max(rivals, 1)))


def is_incredible(value: Any) -> bool:
    """Return whether two independent places can't hold this value by chance."""
    return information(value) >= INCREDIBLE
