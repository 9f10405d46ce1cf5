"""Chaining events to their streams: each gets its number, its position and its hashes.

The end of the log is remembered from one commit to the next, so that an append needs no look-up. If
another process wrote meanwhile, the next number is taken: the insert fails before anything is in,
the end is read, and the work done again. What is remembered was committed, so it is never ahead.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from em.errors import ChainConflict, PositionConflict
from em.log.chain import SALT_BYTES, START, hash_body, hash_event
from em.log.event import Event
from em.store.derivations import Derivation, derivations_of, put_derivations
from em.store.preparation import PreparedEvent
from em.store.session import Session
from em.values.times import from_micros, now_micros, to_micros

STREAMS_REMEMBERED = 64

InsertEvents = Callable[[Session, Sequence[tuple[Any, ...]]], None]
Head = tuple[int, bytes]
"""Position and hash of a stream's last event."""


class Tip(NamedTuple):
    """The end of the log: the newest number, and the heads of some streams."""

    newest: int
    heads: dict[str, Head]

    def head(self, session: Session, stream: str) -> Head:
        """The head of a stream, looked up if it is not known."""
        known = self.heads.get(stream)
        return read_head(session, stream) if known is None else known


class Chain:
    """Appends events. `taken` is what a back end raises where a number is taken.

    Where that would spoil the transaction it is left out, and nothing is remembered.
    """

    def __init__(
        self, insert_events: InsertEvents, taken: type[Exception] | tuple[()] = ()
    ) -> None:
        self._insert_events = insert_events
        self._taken = taken
        self._remembered: Tip | None = None

    def remember(self, tip: Tip | None) -> None:
        """Take note of where the log ended after a commit."""
        if self._taken:
            self._remembered = tip

    def append(
        self,
        session: Session,
        prepared: Sequence[PreparedEvent],
        recorded_at: int,
        expected: Mapping[str, int],
    ) -> tuple[list[Event], Tip | None]:
        """Chain the events to their streams and insert them; and the end of the log then."""
        remembered, self._remembered = self._remembered, None
        if not prepared:
            for stream, pos in expected.items():
                _check_position(stream, pos, read_head(session, stream)[0])
            return [], None
        if remembered is not None:
            try:
                return self._append(session, prepared, recorded_at, expected, remembered)
            except (self._taken, PositionConflict, ChainConflict):  # type: ignore[misc]  # an empty tuple remembers nothing
                pass  # it may be out of date: what is really there decides
        tip = _read_tip(session, prepared[0].stream)
        return self._append(session, prepared, recorded_at, expected, tip)

    def insert_at_once(
        self, session: Session, event: PreparedEvent, expected: Mapping[str, int]
    ) -> list[Event] | None:
        """One new event outside of a transaction: a statement is one of its own.

        None if the end of the log is not known, or is not where it was: then nothing was written.
        """
        remembered, self._remembered = self._remembered, None
        if remembered is None:
            return None
        try:
            events, tip = self._append(session, [event], now_micros(), expected, remembered)
        except (self._taken, PositionConflict):  # type: ignore[misc]  # as above
            return None
        self._remembered = tip
        return events

    def _append(
        self,
        session: Session,
        prepared: Sequence[PreparedEvent],
        recorded_at: int,
        expected: Mapping[str, int],
        tip: Tip,
    ) -> tuple[list[Event], Tip]:
        for stream, pos in expected.items():
            _check_position(stream, pos, tip.head(session, stream)[0])
        heads = dict(tip.heads) if len(tip.heads) < STREAMS_REMEMBERED else {}
        salts = os.urandom(SALT_BYTES * len(prepared))
        rows: list[tuple[Any, ...]] = []
        events: list[Event] = []
        derivations: list[Derivation] = []
        for n, item in enumerate(prepared):
            head = heads.get(item.stream) or tip.head(session, item.stream)
            seal = _import if item.imported is not None else _seal
            salt = salts[n * SALT_BYTES : (n + 1) * SALT_BYTES]
            row, event = seal(item, tip.newest + 1 + n, head, salt, recorded_at)
            heads[item.stream] = (event.pos, row[-1])
            rows.append(row)
            events.append(event)
            if item.sources:
                derivations += derivations_of(item.sources, "events", item.id)
        self._insert_events(session, rows)
        put_derivations(session, derivations)
        return events, Tip(tip.newest + len(rows), heads)


def _read_tip(session: Session, stream: str) -> Tip:
    newest, pos, own = session.execute(_NEWEST_AND_HEAD, (stream,)).fetchone()
    return Tip(newest or 0, {stream: (pos or 0, own or START)})


# Both in one statement: where nothing is remembered, every append waits for this.
_NEWEST_AND_HEAD = (
    "SELECT (SELECT MAX(seq) FROM events), head.pos, head.hash FROM (SELECT 1) AS one"
    " LEFT JOIN (SELECT pos, hash FROM events WHERE stream = ? ORDER BY pos DESC LIMIT 1) AS head"
    " ON 1 = 1"
)


def _check_position(stream: str, expected: int, actual: int) -> None:
    if actual != expected:
        raise PositionConflict(
            f"expected the stream at position {expected}, it is at {actual}",
            place=f"stream {stream!r}",
            fix="read what is new, then decide again",
            expected=expected,
            actual=actual,
        )


def read_head(session: Session, stream: str) -> tuple[int, bytes]:
    """Position and hash of a stream's last event."""
    row = session.execute(
        "SELECT pos, hash FROM events WHERE stream = ? ORDER BY pos DESC LIMIT 1", (stream,)
    ).fetchone()
    return (row[0], row[1]) if row else (0, START)


@lru_cache(maxsize=4)
def _moment(micros: int) -> datetime:
    """The moment of a commit, which all its events share."""
    return from_micros(micros)


def _seal(
    item: PreparedEvent, seq: int, head: tuple[int, bytes], salt: bytes, recorded_at: int
) -> tuple[tuple[Any, ...], Event]:
    """Give a new event its position, times and hashes."""
    assert item.text is not None
    pos = head[0] + 1
    at = recorded_at if item.at is None else item.at
    body_hash = hash_body(salt, item.text)
    own = hash_event(
        head[1],
        item.id,
        item.stream,
        pos,
        item.subject,
        item.kind,
        item.v,
        at,
        recorded_at,
        body_hash,
    )
    start = (seq, item.id, item.stream, pos, item.subject, item.kind, item.v)
    row = (*start, at, recorded_at, item.text.decode(), salt, body_hash, own)
    recorded = _moment(recorded_at)
    event = Event(
        *start,
        recorded if item.at is None else from_micros(at),
        recorded,
        item.body,
        salt.hex(),
        body_hash.hex(),
        own.hex(),
    )
    return row, event


def _import(
    item: PreparedEvent, seq: int, head: tuple[int, bytes], _salt: bytes, _recorded_at: int
) -> tuple[tuple[Any, ...], Event]:
    """Keep an imported event as it is, if it continues its stream and its hashes fit."""
    event = item.imported
    assert event is not None
    if event.pos != head[0] + 1:
        raise _misfit(item, f"it is at position {event.pos}, the stream ends at {head[0]}")
    salt = None if event.body is None else bytes.fromhex(event.salt or "")
    body_hash, own = bytes.fromhex(event.body_hash), bytes.fromhex(event.hash)
    at, recorded_at = to_micros(event.at), to_micros(event.recorded_at)
    start = (event.id, event.stream, event.pos, event.subject, event.kind, event.v)
    if own != hash_event(head[1], *start, at, recorded_at, body_hash):
        raise _misfit(item, "its hash does not fit its fields and the event before it")
    text = None if item.text is None else item.text.decode()
    row = (seq, *start, at, recorded_at, text, salt, body_hash, own)
    return row, msgspec.structs.replace(event, seq=seq)


def _misfit(item: PreparedEvent, why: str) -> ChainConflict:
    return ChainConflict(
        why,
        place=f"event {item.id} of stream {item.stream!r}",
        fix="import into an empty log, or with --rechain to append it as new",
    )
