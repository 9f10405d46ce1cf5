"""Writing a prepared commit inside a transaction that holds the write lock."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from em.errors import ChainConflict, DuplicateEvent, PositionConflict
from em.models.chain import SALT_BYTES, START, hash_body, hash_event
from em.models.event import Event
from em.models.times import from_micros, now, to_micros
from em.store.holders import (
    Derivation,
    EncodeVector,
    complete_request,
    derivations_of,
    put_artefact,
    put_derivations,
    put_documents,
    put_records,
)
from em.store.prepare import Prepared, PreparedEvent
from em.store.protocol import Committed
from em.store.session import Session, chunks

InsertEvents = Callable[[Session, Sequence[tuple[Any, ...]]], None]


class Writer:
    """The SQL of a commit. A back end says how it inserts events and what a vector looks like."""

    def __init__(self, insert_events: InsertEvents, encode_vector: EncodeVector) -> None:
        self._insert_events = insert_events
        self._encode_vector = encode_vector

    def write(
        self, session: Session, prepared: Prepared, expected_pos: Mapping[str, int]
    ) -> Committed:
        """Write all of it; the caller commits or rolls back."""
        recorded_at = to_micros(now())
        for stream, pos in expected_pos.items():
            _check_position(session, stream, pos)
        _refuse_duplicates(session, prepared.given_ids)
        events = self.append(session, prepared.events, recorded_at)
        artefacts = [put_artefact(session, item, recorded_at) for item in prepared.artefacts]
        put_records(session, prepared.records)
        put_documents(session, prepared.documents, self._encode_vector)
        if prepared.request is not None:
            complete_request(session, prepared.request)
        return Committed(events, artefacts)

    def append(
        self, session: Session, prepared: Sequence[PreparedEvent], recorded_at: int
    ) -> list[Event]:
        """Chain the events to their streams and insert them."""
        if not prepared:
            return []
        (newest,) = session.execute("SELECT COALESCE(MAX(seq), 0) FROM events").fetchone()
        heads: dict[str, tuple[int, bytes]] = {}
        salts = os.urandom(SALT_BYTES * len(prepared))
        rows: list[tuple[Any, ...]] = []
        events: list[Event] = []
        derivations: list[Derivation] = []
        for n, item in enumerate(prepared):
            head = heads.get(item.stream) or read_head(session, item.stream)
            seal = _import if item.imported is not None else _seal
            salt = salts[n * SALT_BYTES : (n + 1) * SALT_BYTES]
            row, event = seal(item, newest + 1 + n, head, salt, recorded_at)
            heads[item.stream] = (event.pos, row[-1])
            rows.append(row)
            events.append(event)
            if item.body is not None and "from_events" in item.body:
                derivations += derivations_of(item.body["from_events"], "events", item.id)
        self._insert_events(session, rows)
        put_derivations(session, derivations)
        return events


def read_head(session: Session, stream: str) -> tuple[int, bytes]:
    """Position and hash of a stream's last event."""
    row = session.execute(
        "SELECT pos, hash FROM events WHERE stream = ? ORDER BY pos DESC LIMIT 1", (stream,)
    ).fetchone()
    return (row[0], row[1]) if row else (0, START)


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
    event = Event(
        *start,
        from_micros(at),
        from_micros(recorded_at),
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
    try:
        salt = None if event.salt is None else bytes.fromhex(event.salt)
        body_hash, own = bytes.fromhex(event.body_hash), bytes.fromhex(event.hash)
    except ValueError:
        raise _misfit(item, "a hash that is not hexadecimal") from None
    at, recorded_at = to_micros(event.at), to_micros(event.recorded_at)
    start = (event.id, event.stream, event.pos, event.subject, event.kind, event.v)
    if own != hash_event(head[1], *start, at, recorded_at, body_hash):
        raise _misfit(item, "its hash does not fit its fields and the event before it")
    if item.text is not None and body_hash != hash_body(salt or b"", item.text):
        raise _misfit(item, "its body is not the one that was hashed")
    text = None if item.text is None else item.text.decode()
    row = (seq, *start, at, recorded_at, text, salt, body_hash, own)
    return row, msgspec.structs.replace(event, seq=seq)


def _misfit(item: PreparedEvent, why: str) -> ChainConflict:
    return ChainConflict(
        why,
        place=f"event {item.id} of stream {item.stream!r}",
        fix="import into an empty log, or with --rechain to append it as new",
    )


def _check_position(session: Session, stream: str, expected: int) -> None:
    actual = read_head(session, stream)[0]
    if actual != expected:
        raise PositionConflict(
            f"expected the stream at position {expected}, it is at {actual}",
            place=f"stream {stream!r}",
            fix="read what is new, then decide again",
            expected=expected,
            actual=actual,
        )


def _refuse_duplicates(session: Session, ids: Sequence[str]) -> None:
    twice = len(ids) != len(set(ids)) and next(item for item in ids if ids.count(item) > 1)
    for marks, part in chunks(ids):
        sql = f"SELECT id FROM events WHERE id IN ({marks}) LIMIT 1"  # noqa: S608 - question marks; values are bound
        twice = twice or next((row[0] for row in session.execute(sql, part)), False)
    if twice:
        raise DuplicateEvent("it is in the log already", place=f"event {twice}", id=twice)
