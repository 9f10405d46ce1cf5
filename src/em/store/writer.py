"""Writing a prepared commit inside a transaction that holds the write lock."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from em.errors import ChainConflict, DuplicateEvent, PositionConflict
from em.log.chain import SALT_BYTES, START, hash_body, hash_event
from em.log.event import Event
from em.store.holders import (
    Derivation,
    DocumentExtras,
    complete_request,
    derivations_of,
    put_artefact,
    put_derivations,
    put_documents,
    put_records,
    refuse_erased_sources,
)
from em.store.preparation import Prepared, PreparedEvent
from em.store.protocol import Committed
from em.store.search_index import PassageTable, index_events
from em.store.session import Session, chunks
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


class Writer:
    """The SQL of a commit. A back end says what a document adds."""

    def __init__(self, chain: Chain, extras: DocumentExtras, passages: PassageTable) -> None:
        self.chain = chain
        self._extras = extras
        self.passages = passages

    def write(self, session: Session, prepared: Prepared) -> tuple[Committed, Tip | None]:
        """Write all of it; the caller commits or rolls back. Also where the log then ends."""
        recorded_at = now_micros()
        if prepared.skip_known:
            prepared = _without_known(session, prepared)
        if prepared.given_ids:
            _refuse_duplicates(session, prepared.given_ids)
        if prepared.sources:
            refuse_erased_sources(session, prepared.sources)
        events, tip = self.chain.append(
            session, prepared.events, recorded_at, prepared.expected_pos
        )
        artefacts = [put_artefact(session, item, recorded_at) for item in prepared.artefacts]
        if prepared.records:
            put_records(session, prepared.records)
        if prepared.documents:
            put_documents(session, prepared.documents, self._extras, self.passages)
        searched = [
            (item, event.seq, recorded_at if item.at is None else item.at)
            for item, event in zip(prepared.events, events, strict=True)
            if item.pieces
        ]
        if searched:
            index_events(session, self.passages, searched)
        if prepared.request is not None:
            complete_request(session, prepared.request)
        return Committed(events, artefacts), tip


class _Known(NamedTuple):
    """What an event that is there already says; `body` is None once it was erased."""

    stream: str
    kind: str
    subject: str | None
    v: int
    at: int | None
    body: str | None
    hash: bytes

    @classmethod
    def of(cls, item: PreparedEvent) -> "_Known":
        text = None if item.text is None else item.text.decode()
        own = b"" if item.imported is None else bytes.fromhex(item.imported.hash)
        return cls(item.stream, item.kind, item.subject, item.v, item.at, text, own)

    def says(self, item: PreparedEvent) -> bool:
        """Whether the other is this event: by its hash, or by all that its writer said."""
        other = _Known.of(item)
        if other.hash:
            return self.hash == other.hash
        body = self.body if self.body is not None else other.body
        at = self.at if other.at is not None else None
        return self._replace(body=body, at=at, hash=b"") == other


def _without_known(session: Session, prepared: Prepared) -> Prepared:
    """Leave out events that are there already; those of the same id must be the same."""
    known: dict[str, _Known] = {}
    for marks, part in chunks(prepared.given_ids):
        sql = (
            f"SELECT id, stream, kind, subject, v, at, body, hash FROM events WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        )
        known |= {row[0]: _Known(*row[1:]) for row in session.execute(sql, part)}
    # A file may hold one event twice, as two exports put together do.
    new: dict[str, PreparedEvent] = {}
    for item in prepared.events:
        there = known.get(item.id) or (_Known.of(new[item.id]) if item.id in new else None)
        if there is None:
            new[item.id] = item
        elif not there.says(item):
            raise DuplicateEvent(
                "an event of that id says something else",
                place=f"event {item.id}",
                fix="import it into another log",
            )
    return prepared._replace(
        events=list(new.values()),
        given_ids=[],  # none of those that are left is there
        documents=[doc for doc in prepared.documents if known.keys().isdisjoint(doc.from_events)],
    )


def _refuse_duplicates(session: Session, ids: Sequence[str]) -> None:
    twice = [event_id for event_id, count in Counter(ids).items() if count > 1]
    for marks, part in chunks(ids):
        sql = f"SELECT id FROM events WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        twice += [row[0] for row in session.execute(sql, part)]
    if twice:
        raise DuplicateEvent("it is in the log already", place=f"event {twice[0]}", id=twice[0])
