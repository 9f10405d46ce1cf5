"""Passage: a part of an event's text that recall finds, and where it lies in the index.

A passage has a number: its scope (a subject), then its slot within the scope. Neighbours in a
conversation have slots beside each other, so ranking sees them without reading anything. A posting
is that number with the passage's shape behind it (`words.shape_of`).
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

SLOT_BITS = 32
SHAPE_BITS = 8
REACH = 3
"""How far a passage's neighbours count."""
FIRST_DOCUMENT = 1 << 61
"""Vectors of documents lie beside those of passages, from this number on: no passage has one."""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """What was found: a text with its event, when it happened, and how well it fits.

    `score` is comparable within one answer only. `neighbours` are the passages around it, in
    reading order, where they were asked for.
    """

    event_id: str
    text: str
    at: datetime
    recorded_at: datetime
    score: float
    subject: str | None
    stream: str
    kind: str
    speaker: str | None
    role: str | None
    session: str | None
    start: int
    number: int
    neighbours: Sequence["Passage"] = ()


class Within(msgspec.Struct, frozen=True):
    """Where to search: one subject, or all of them; and when it happened."""

    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def holds(self, at: datetime) -> bool:
        """Whether a moment is within the times."""
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


class Mark(msgspec.Struct, frozen=True):
    """What ranking needs of a passage besides its words."""

    number: int
    shape: int
    seq: int
    speaker: str | None
    role: str | None
    at: int


def scope_range(scope: int) -> tuple[int, int]:
    """The first and the last number that a scope's passages may have."""
    return scope << SLOT_BITS, ((scope + 1) << SLOT_BITS) - 1
