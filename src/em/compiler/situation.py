"""Situation: what is known in one recording, or in one round of a loop in it, by expressions."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from em.compiler.facts import pattern_of
from em.compiler.places import is_code, plain
from em.compiler.term import field_text

FEWEST_IN_TABLE = 5
"""Entries of a mapping from names to ids."""
MOST_CROSSED = 30
"""Examples whose values are paired with those of others."""


class Known(NamedTuple):
    """A record that the routine has under a name, in one situation.

    asked: the values that it was read by, known if `asked_when`. is_context: it was read without
    asking for anything. named: the arguments that each value was given as.
    """

    name: str
    record: Any
    asked: dict[str, Any]
    when: str
    asked_when: str = ""
    is_context: bool = False
    named: Mapping[str, Collection[str]] = {}


class Said(NamedTuple):
    """A value that an expression gives in one situation."""

    text: str
    value: Any
    when: str = ""

    @property
    def holder(self) -> str:
        """The name of the record that it is a field of."""
        return self.text.partition(".")[0].partition("[")[0]

    @property
    def words(self) -> set[str]:
        """The words of the field's name."""
        found = re.split(r"[^a-z]+", self.text.rpartition(".")[2].lower())
        return {word for word in found if len(word) > 2}


class Situation(NamedTuple):
    """What is known in one example, or in one round of a loop in it."""

    inputs: dict[str, Said]
    known: list[Known]
    own: frozenset[str]
    """Names that belong to the round."""

    @property
    def told(self) -> list[Any]:
        """The values of the inputs."""
        return [one.value for one in self.inputs.values()]


class Pair(NamedTuple):
    """How two values related in one situation."""

    one: Any
    other: Any
    when: tuple[str, ...]


def fields(known: Known, *, nested: bool = True) -> Iterator[tuple[str, Any]]:
    """Yield the values of a record that stand in no list, by their expressions."""
    for place, value in () if is_table(known.record) else plain(known.record):
        if nested or len(place) <= 1:
            yield field_text(known.name, tuple(map(str, place))), value


def said_in(situation: Situation) -> list[Said]:
    """Return what inputs and records say in a situation."""
    found = [*situation.inputs.values()]
    for known in situation.known:
        found += [Said(text, value, known.when) for text, value in fields(known)]
    return found


def surprise_of(pairs: Sequence[Pair], holds: Any) -> float:
    """Return the bits that it takes for chance to let a relation hold in all pairs."""
    rows = pairs[:MOST_CROSSED]
    crossed = [
        holds(one.one, other.other) for n, one in enumerate(rows) for m, other in enumerate(rows)
        if n != m
    ]  # fmt: skip
    share = sum(crossed) / len(crossed) if crossed else 1.0
    return -math.log2(max(share, 1e-9)) * len(pairs)


def is_table(record: Any) -> bool:
    """Return whether a mapping has an id for each of many names: none of these is a field."""
    if not isinstance(record, dict) or len(record) < FEWEST_IN_TABLE:
        return False
    ids = [one for one in record.values() if is_code(one)]
    return len(ids) == len(record) and bool(pattern_of(ids))
