"""Weight: how much a recording says for an explanation of a value, in bits.

An explanation may be acted on if its being wrong would be a coincidence of `ENOUGH` bits; it is
dropped only if its being right would be one of as many. The figures are rough on purpose: they
separate ids from small numbers, not 9 bits from 11.
"""

import math
from typing import Any

from em.compiler.evidence import information

ENOUGH = 10.0
"""Bits of evidence that an explanation needs before a behaviour acts on it."""
EQUAL_NAMES = 6.0
"""Bits for a result that has a value under the name of the argument that it repeats."""
OWN_INPUT = 12.0
"""Bits for an argument and an input, or a field, of the same name."""
EXTREMES = 4.0
"""Bits that being the least or most costs: some item is it by one of about sixteen measures."""
SMALL = 3.5
"""Values below this many bits (true, 1, 10) stand everywhere, so a match says next to nothing."""


def of_match(value: Any, *, equal_names: bool) -> float:
    """Return the evidence that a value comes from a result that holds it.

    The same task is done again: equal names are enough, even for an id such as 1, and the number of
    places does not count, because whatever else holds the value must agree.
    """
    return information(value) + (OWN_INPUT if equal_names else 0.0)


def of_stated(value: Any, places: int) -> float:
    """Return the evidence that a value comes from the task; places: how many values that has."""
    return max(0.0, information(value) - math.log2(max(places, 1)))


def of_choice(count: int) -> float:
    """Return the evidence of a choice among `count` that the task does not name.

    The bits of the chosen id don't count, because some id had to be chosen.
    """
    return math.log2(max(count, 1))


def of_constant(tasks: int = 1) -> float:
    """Return the evidence that a value is a constant: nothing from one task."""
    return EQUAL_NAMES * (tasks - 1)


def of_mention(value: Any, words: int, codes: int) -> float:
    """Return the evidence that a value comes from the text that mentions it.

    words, codes: how many words, and how many words with a digit, it could have matched there.
    """
    rivals = codes if any(map(str.isdigit, str(value))) else 1 + words / 8
    return max(0.0, information(value) - math.log2(max(rivals, 1)))


def is_incredible(value: Any) -> bool:
    """Return whether two independent places can't hold this value by chance."""
    return information(value) >= ENOUGH
