"""Sequence: the order of the writes that recordings of one kind of task made.

Mostly one recording made all of them, and the others some. Where recordings took different turns,
a refund here and an invoice there, their orders are merged if they don't contradict each other.
"""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from em.compiler.example import Example

Body = tuple[str, ...]
"""Tools that are called one after the other, perhaps in several rounds."""


def sequence_of(examples: Sequence[Example]) -> list[Body] | None:
    """Return the writes of a kind in their order; None if it is not clear what the order is.

    If a shorter recording fits the longest in several ways, it is not known which it left out.
    """
    longest = max(examples, key=lambda one: len(one.writes))
    most = max(examples, key=lambda one: len(one.kind))
    if all(_ways(one.kind, most.kind) == 1 for one in examples):
        return longest.bodies if longest.kind == most.kind else most.bodies
    return _merged([one.bodies for one in examples])


def _ways(short: Sequence[str], long: Sequence[str]) -> int:
    """Return in how many ways some writes are a part of others, in their order."""
    found = [1] + [0] * len(short)
    for tool in long:
        for number in range(len(short), 0, -1):
            if short[number - 1] == tool:
                found[number] += found[number - 1]
    return found[-1]


def _merged(sequences: Sequence[Sequence[Body]]) -> list[Body] | None:
    """Return one order that all sequences keep to, in which each tool has one place.

    Recordings that have no write in common are of different kinds.
    """
    bodies = dict.fromkeys(body for one in sequences for body in one)
    tools = [tool for body in bodies for tool in body]
    is_one = any(all(body in one for one in sequences) for body in bodies)
    is_clear = len({*tools}) == len(tools)
    if not is_one or not is_clear or any(len({*one}) < len(one) for one in sequences):
        return None
    before: dict[Body, dict[Body, None]] = {body: {} for body in bodies}
    for one in sequences:
        for first, then in pairwise(one):
            before[then][first] = None
    try:
        return [*TopologicalSorter(before).static_order()]
    except CycleError:
        return None
