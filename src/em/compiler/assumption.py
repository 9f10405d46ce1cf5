"""Assumption: what a person who compiles takes for granted about a value of one recording.

A value that is small stands everywhere, so a place that has it needs the same name. What nothing
explains is constant, unless it looks like something that differs from run to run: then it is an
input.
"""

import re
from collections.abc import Sequence
from typing import Any

from em.compiler.evidence import ENOUGH_TO_ACT, SMALL_NUMBER, information, is_small
from em.compiler.example import Example, Read
from em.compiler.places import folded, is_exactly, is_scalar, lists_in, walk

PROSE = 10
"""Words from which on a text that was read is prose: somebody had to understand it."""
_DATE = re.compile(r"\d{4}-\d\d(-\d\d)?|\d{1,2}[./]\d{1,2}[./](\d{4}|\d\d)|\d{1,2}:\d\d")


def is_number(value: Any) -> bool:
    """Return whether a value is a number and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_given(value: Any, place_name: str, name: str, example: Example, before: int) -> bool:
    """Return whether an input that has a value is what an argument of this name is taken from.

    A small value of another name must be the only one: no result has it, no other argument, and
    the input is not needed for an argument of its own name.
    """
    if not is_small(value) or folded(place_name) == folded(name):
        return True
    args = [row for call in example.calls for row in call.args.items()]
    is_needed = any(folded(one) == folded(place_name) for one, _ in args)
    names = {one for one, held in args if is_exactly(held, value)}
    is_held = any(read.holds(value) for read in example.reads[:before])
    return not is_needed and not is_held and len(names) <= 1


def is_computed(value: Any, net: float, numbers: Sequence[Any], rivals: int) -> bool:
    """Return whether others gave a number, hardly by chance.

    net: the evidence in bits. numbers: all that were known. rivals: how many ways of computing it
    there are. A decimal or a negative number is no constant, so where two numbers were known that
    are not small, the one way to compute it is enough.
    """
    if net >= ENOUGH_TO_ACT:
        return True
    is_odd = isinstance(value, float) or value < 0
    return is_odd and rivals == 1 and len(numbers) == 2 and has_bits(numbers)


def has_bits(numbers: Sequence[Any]) -> bool:
    """Return whether numbers are so large that computing with them gives nothing by chance."""
    return sum(map(information, numbers)) >= 2 * ENOUGH_TO_ACT


def is_constant(value: Any, example: Example, before: int) -> bool:
    """Return whether a value that nothing explains is the same in every run."""
    if not is_scalar(value):
        return not value
    if value is None or isinstance(value, bool):
        return True
    if _NUMERAL.fullmatch(str(value)):
        return _is_constant_number(value, example, before)
    return not _DATE.fullmatch(str(value)) and not has_prose(example, before)


def _is_constant_number(value: Any, example: Example, before: int) -> bool:
    """Return whether a number is no count, no date, stands in no result, and was not computed."""
    reads = example.reads[:before]
    lists = [one for read in reads for _, one in lists_in(read.result)]
    is_count = value != 1 and any(len(one) == value for one in lists)
    if is_count or _DATE.fullmatch(str(value)) or any(_holds(read, value) for read in reads):
        return False
    is_few = str(value).isdigit() and len(str(value)) < len(str(SMALL_NUMBER))
    # A number can only have been computed where another one was known.
    return is_few or not _has_numbers(example, before)


_NUMERAL = re.compile(r"-?\d+(?:[.,]\d+)*")
_NUMBER_IN_TEXT = re.compile(r"(?<![\w.,/-])\d+(?:[.,]\d+)?(?![\w/-]|[.,]\d)")


def _has_numbers(example: Example, before: int) -> bool:
    """Return whether a number or a date was known."""
    known = [value for _, _, value in walk(example.inputs)]
    known += [one for read in example.reads[:before] for _, _, one in walk(read.result)]
    known += [example.request]
    return any(
        is_number(one)
        or (isinstance(one, str) and (_NUMBER_IN_TEXT.search(one) or _DATE.search(one)))
        for one in known
    )


def _holds(read: Read, value: Any) -> bool:
    """Return whether a result has a number, also as a word of a text."""
    return read.holds(value) or any(
        isinstance(one, str) and re.search(rf"(?<![\w.,]){re.escape(str(value))}(?![\w])", one)
        for _, _, one in walk(read.result)
    )


def has_prose(example: Example, before: int) -> bool:
    """Return whether a text was read that somebody had to understand."""
    return any(
        isinstance(value, str) and len(value.split()) >= PROSE
        for read in example.reads[:before]
        if not read.tool.startswith("#")
        for _, _, value in walk(read.result)
    )
