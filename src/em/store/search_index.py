"""The word index: what is searched of events, written in the transaction that writes the events."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from em.log.kinds import SEARCHED, detail, details, searched_text
from em.store.preparation import PreparedEvent, with_pieces
from em.store.protocol import (
    FIRST_DOCUMENT,
    REACH,
    SHAPE_BITS,
    SLOT_BITS,
    Mark,
    Passage,
    Within,
    scope_range,
)
from em.store.session import Session, chunks, select_numbers
from em.text.words import ANALYSIS
from em.values.times import from_micros, moment, to_micros

GAP = REACH + 1
"""Free slots between passages that are no neighbours."""
BLOCK = 64
"""Slots that a stream gets at once where several streams of a subject take turns."""
SESSION_PAUSE = 3 * 3_600 * 1_000_000
"""After so many microseconds a conversation begins anew."""


class PassageRow(NamedTuple):
    """A passage as it lies in the table."""

    number: int
    shape: int
    seq: int
    start: int
    end: int
    at: int
    speaker: str | None
    role: str | None


class PassageTable(Protocol):
    """How a back end keeps passages and finds their words."""

    def insert_passages(
        self, session: Session, rows: Sequence[PassageRow], terms: Sequence[str]
    ) -> None:
        """Insert passages with their words, in the order of their numbers."""

    def delete_passages(self, session: Session, postings: Sequence[int]) -> None:
        """Delete passages, their words and their vectors."""

    def delete_document_vectors(self, session: Session, nums: Sequence[int]) -> None:
        """Delete the vectors of documents."""


class _Scope:
    """The slots of a subject, while a commit is written."""

    def __init__(self, session: Session, subject: str | None) -> None:
        name = subject or ""  # which no name is
        sql = "SELECT number, next FROM scopes WHERE subject = ?"
        row = session.execute(sql, (name,)).fetchone()
        if row is None:
            sql = (
                "INSERT INTO scopes(number, subject, next, passages, stamp)"
                " SELECT COALESCE(MAX(number), 0) + 1, ?, 0, 0, 0 FROM scopes"
                " RETURNING number, next"
            )
            row = session.execute(sql, (name,)).fetchone()
        self.number: int = row[0]
        self.next: int = row[1]
        self.added = 0
        self.threads: dict[str, _Thread] = {}

    def thread(self, session: Session, stream: str) -> "_Thread":
        """The slots of one of its streams, read once in a commit."""
        self.threads[stream] = found = _Thread(session, self, stream)
        return found

    def save(self, session: Session) -> None:
        """Write down which slots are taken."""
        session.execute(
            "UPDATE scopes SET next = ?, passages = passages + ? WHERE number = ?",
            (self.next, self.added, self.number),
        )
        session.executemany(
            "INSERT INTO threads(scope, stream, next, ends, at, session) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT(scope, stream) DO UPDATE SET next = excluded.next, ends = excluded.ends,"
            " at = excluded.at, session = excluded.session",
            [(self.number, *thread.row()) for thread in self.threads.values()],
        )


class _Thread:
    """The slots of a stream within a scope: neighbours in it lie side by side."""

    def __init__(self, session: Session, scope: _Scope, stream: str) -> None:
        self._scope, self._stream = scope, stream
        sql = "SELECT next, ends, at, session FROM threads WHERE scope = ? AND stream = ?"
        row = session.execute(sql, (scope.number, stream)).fetchone()
        self._next: int
        self._ends: int
        self._at: int | None
        self._session: str | None
        self._next, self._ends, self._at, self._session = row or (0, 0, None, None)

    def row(self) -> tuple[Any, ...]:
        """As the table keeps it."""
        return self._stream, self._next, self._ends, self._at, self._session

    def take(self, count: int, at: int, session: str | None) -> int:
        """The first of so many slots, away from what was said in another session."""
        apart = self._at is not None and (
            session != self._session or abs(at - self._at) > SESSION_PAUSE
        )
        self._at, self._session = at, session
        first = self._next + GAP * apart
        if first + count > self._ends:
            first = self._reserve(first, count)
        self._next = first + count
        return first

    def _reserve(self, first: int, count: int) -> int:
        scope = self._scope
        if self._ends == scope.next and self._at is not None:
            block = count  # nobody came after it: it goes on where it is
        else:
            first, block = scope.next + GAP, max(count, BLOCK)
        self._ends = scope.next = first + block
        return first


def index_events(
    session: Session, table: PassageTable, items: Sequence[tuple[PreparedEvent, int, int]]
) -> None:
    """Index events, given with their seq and the moment they happened."""
    scopes: dict[str | None, _Scope] = {}
    rows: list[PassageRow] = []
    terms: list[str] = []
    for event, seq, at in items:
        scope = scopes.get(event.subject)
        if scope is None:
            scope = scopes[event.subject] = _Scope(session, event.subject)
        thread = scope.threads.get(event.stream) or scope.thread(session, event.stream)
        speaker, role, sitting = details(event.body)
        slot = thread.take(len(event.pieces), at, sitting)
        number = (scope.number << SLOT_BITS) + slot
        for start, end, words, shape in event.pieces:
            rows.append(PassageRow(number, shape, seq, start, end, at, speaker, role))
            terms.append(words)
            number += 1
        scope.added += len(event.pieces)
    if len(scopes) > 1 or any(len(scope.threads) > 1 for scope in scopes.values()):
        # The word index of SQLite takes numbers fastest in their order.
        order = sorted(range(len(rows)), key=rows.__getitem__)
        rows, terms = [rows[n] for n in order], [terms[n] for n in order]
    table.insert_passages(session, rows, terms)
    for scope in scopes.values():
        scope.save(session)


def remove_passages(session: Session, table: PassageTable, seqs: Sequence[int]) -> int:
    """Remove what was searched of events; how many passages there were."""
    numbers: list[int] = []
    postings: list[int] = []
    for marks, part in chunks([str(seq) for seq in seqs]):
        sql = f"SELECT number, shape FROM passages WHERE seq IN ({marks})"  # noqa: S608 - question marks; values are bound
        for number, shape in session.execute(sql, [int(seq) for seq in part]).fetchall():
            numbers.append(number)
            postings.append(number << SHAPE_BITS | shape)
    if not postings:
        return 0
    table.delete_passages(session, postings)
    counts: dict[int, int] = {}
    for number in numbers:
        scope = number >> SLOT_BITS
        counts[scope] = counts.get(scope, 0) + 1
    for scope, count in counts.items():
        session.execute(
            "UPDATE scopes SET passages = passages - ?, stamp = stamp + 1 WHERE number = ?",
            (count, scope),
        )
        # The name of a session may say something of what was said in it.
        session.execute("UPDATE threads SET session = NULL WHERE scope = ?", (scope,))
    return len(postings)


ANALYSED = "analysis"
"""The flag that says by which analysis the passages were made."""


def is_current(session: Session) -> bool:
    """Whether the passages were made by this em's analysis."""
    sql = "SELECT value FROM flags WHERE name = ?"
    row = session.execute(sql, (ANALYSED,)).fetchone()
    return row is not None and row[0] == str(ANALYSIS)


def reindex(session: Session, table: PassageTable) -> None:
    """Index all events again, within the caller's transaction."""
    postings = session.execute("SELECT number, shape FROM passages").fetchall()
    table.delete_passages(session, [number << SHAPE_BITS | shape for number, shape in postings])
    # The numbers are given out anew, so no vector fits any more.
    session.execute("DELETE FROM flags WHERE name = 'embedder'")
    for emptied in ("DELETE FROM threads", "DELETE FROM scopes"):
        session.execute(emptied)
    after = 0
    while rows := _searched_rows(session, after):
        after = rows[-1][0]
        items = []
        for seq, event_id, stream, subject, kind, v, at, body in rows:
            content = msgspec.json.decode(body)
            event = PreparedEvent(event_id, stream, subject, kind, v, at, None, content, None)
            items.append((with_pieces(event, from_micros(at)), seq, at))
        if found := [item for item in items if item[0].pieces]:
            index_events(session, table, found)
    session.execute(
        "INSERT INTO flags(name, value) VALUES (?, ?)"
        " ON CONFLICT(name) DO UPDATE SET value = excluded.value",
        (ANALYSED, str(ANALYSIS)),
    )


def _searched_rows(session: Session, after: int) -> list[Any]:
    kinds = sorted(SEARCHED)
    sql = (
        "SELECT seq, id, stream, subject, kind, v, at, body FROM events"  # noqa: S608 - question marks; values are bound
        f" WHERE seq > ? AND body IS NOT NULL AND kind IN ({','.join('?' * len(kinds))})"
        " ORDER BY seq LIMIT 1000"
    )
    return session.execute(sql, (after, *kinds)).fetchall()


NOWHERE = (1, 0)
"""A range without numbers, for a subject of whom nothing was said."""
DOCUMENTS = "\ndocuments"
"""Stands for all documents where a subject is asked for; it is no name that a subject may have."""

_PASSAGES = (
    "SELECT p.number, p.starts, p.ends, p.at, p.speaker, p.role,"
    " e.id, e.recorded_at, e.subject, e.stream, e.kind, e.body"
    " FROM passages AS p JOIN events AS e ON e.seq = p.seq WHERE p.number IN ({})"
    " AND e.body IS NOT NULL"
)


def numbers_of(session: Session, subject: str | None) -> tuple[int, int]:
    """The range of numbers that a subject's passages have; of all, without a subject."""
    if subject is None:
        return 0, FIRST_DOCUMENT - 1
    if subject == DOCUMENTS:
        return FIRST_DOCUMENT, 2**62
    sql = "SELECT number FROM scopes WHERE subject = ?"
    row = session.execute(sql, (subject,)).fetchone()
    return NOWHERE if row is None else scope_range(row[0])


def count_passages(session: Session, subject: str | None) -> int:
    """How many passages a subject has; all, without a subject."""
    condition, params = ("", ()) if subject is None else (" WHERE subject = ?", (subject,))
    sql = f"SELECT COALESCE(SUM(passages), 0) FROM scopes{condition}"  # noqa: S608 - fixed words; values are bound
    return int(session.execute(sql, params).fetchone()[0])


def time_conditions(within: Within) -> tuple[str, list[int]]:
    """When it happened, as SQL on the table `passages` (alias `p`)."""
    conditions, params = "", []
    for sign, bound in ((">=", within.since), ("<", within.until)):
        if bound is not None:
            conditions += f" AND p.at {sign} ?"
            params.append(to_micros(moment(bound)))
    return conditions, params


def read_marks(session: Session, numbers: Sequence[int]) -> list[Mark]:
    """What ranking needs of passages, in no order; numbers that nothing has are passed over."""
    sql = "SELECT number, shape, seq, speaker, role, at FROM passages WHERE number IN ({})"
    return [Mark(*row) for row in select_numbers(session, sql, numbers)]


def read_passages(session: Session, numbers: Sequence[int]) -> list[Passage]:
    """Passages with their texts, in no order."""
    decoded: dict[str, tuple[str, str | None]] = {}
    return [_passage(row, decoded) for row in select_numbers(session, _PASSAGES, numbers)]


def _passage(row: Sequence[Any], decoded: dict[str, tuple[str, str | None]]) -> Passage:
    number, start, end, at, speaker, role, event_id, recorded_at, subject, stream, kind, body = row
    # Many passages may come from one large body.
    if event_id not in decoded:
        content = msgspec.json.decode(body)
        decoded[event_id] = (searched_text(kind, content) or "", detail(content, "session"))
    text, session = decoded[event_id]
    return Passage(
        event_id=event_id,
        text=text[start:end],
        at=from_micros(at),
        recorded_at=from_micros(recorded_at),
        score=0.0,
        subject=subject,
        stream=stream,
        kind=kind,
        speaker=speaker,
        role=role,
        session=session,
        start=start,
        number=number,
    )
