"""Event: one thing that happened. Draft: an event that has not been appended yet."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from em.errors import InputError
from em.values.canonical import Json

MAX_NAME = 512
"""Length of a stream's or a subject's name."""


class Draft(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a writer says of an event; the store adds the rest."""

    stream: str
    kind: str
    body: Json
    subject: str | None = None
    at: datetime | None = None
    v: int = 1
    id: str | None = None


class Event(msgspec.Struct, frozen=True, gc=False):
    """One thing that happened, as the log holds it. `body` is None once it was erased."""

    seq: int
    id: str
    stream: str
    pos: int
    subject: str | None
    kind: str
    v: int
    at: datetime
    recorded_at: datetime
    body: Json | None
    salt: str | None
    body_hash: str
    hash: str

    @property
    def erased(self) -> bool:
        """Whether the body was erased on request."""
        return self.body is None


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to read. They come oldest first; `newest` picks the last `limit` of them.

    Those behind `after` and before `before`, both numbers of events (`seq`).
    """

    stream: str | None = None
    subject: str | None = None
    kinds: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    after: int = 0
    before: int | None = None
    ids: Sequence[str] = ()
    limit: int | None = None
    newest: bool = False
    by_stream: bool = False


def check_name(name: Any, field: str) -> str:
    """A stream's or subject's name: text that can be printed, stored and typed."""
    if type(name) is str and _is_name(name):
        return name
    raise InputError(
        f"{str(name)[:60]!r} is no name",
        place=field,
        fix=f"use 1 to {MAX_NAME} printable characters",
    )


@lru_cache(maxsize=4096)
def _is_name(name: str) -> bool:
    return 0 < len(name) <= MAX_NAME and name.isprintable()


class Row(msgspec.Struct, frozen=True):
    """An event as it lies in the table, for those who check it or copy it byte for byte."""

    seq: int
    id: str
    stream: str
    pos: int
    subject: str | None
    kind: str
    v: int
    at: int
    recorded_at: int
    body: str | None
    salt: bytes | None
    body_hash: bytes
    hash: bytes
