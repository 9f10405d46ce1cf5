"""The tables of the search index: passages of events, their words, and their scopes.

A passage is a part of an event's text. Its number is the number of its scope (a subject's
utterances, or its lessons) and a slot in it; neighbours in a conversation have neighbouring slots.
Passages are written in the transaction that writes their events.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.errors import NotFound
from em.log.event import TRACE_PREFIX
from em.log.kinds import SEARCHED, detail, details, searched_text
from em.store.preparation import PreparedEvent, with_pieces
from em.store.protocol import (
    REACH,
    SHAPE_BITS,
    SLOT_BITS,
    IndexStatus,
    Passage,
    PassageMark,
    Within,
    scope_range,
)
from em.store.session import SqlSession, Transaction, select, select_numbers
from em.text import ANALYSIS
from em.values.canonical import Json
from em.values.times import from_micros, moment, to_micros

GAP = REACH + 1
"""Slots left free between passages that are not neighbours."""
BLOCK = 64
"""Slots that a stream reserves at once, where several streams of a subject alternate."""
SESSION_PAUSE = 3 * 3_600 * 1_000_000
"""Microseconds of silence after which a new conversation begins."""


class PassageRow(NamedTuple):
    """A row of the table `passages`."""

    number: int
    shape: int
    seq: int
    start: int
    end: int
    at: int
    speaker: str | None
    role: str | None


def scope_name(within: Within) -> str:
    """Name a scope in the table. No subject's name is empty or has a line break."""
    return ("\n" if within.lessons else "") + (within.subject or "")


class _Scope:
    """The slots of a scope while a commit is written."""

    def __init__(self, session: SqlSession, table: "SearchIndex", within: Within) -> None:
        name = scope_name(within)
        sql = "SELECT number, next FROM scopes WHERE subject = ?"
        row = session.execute(sql, (name,)).fetchone()
        if row is None:
            number = table.next_scopes[within.lessons]
            sql = (
                "INSERT INTO scopes(number, subject, next, passages, stamp)"  # noqa: S608 - fixed words
                f" VALUES ({number}, ?, 0, 0, 0) RETURNING number, next"
            )
            row = session.execute(sql, (name,)).fetchone()
        self.number: int = row[0]
        self.next: int = row[1]
        self.added = 0
        self.threads: dict[str, _Thread] = {}

    def thread(self, session: SqlSession, stream: str) -> "_Thread":
        """Return the slots of one of its streams; read once per commit."""
        self.threads[stream] = found = _Thread(session, self, stream)
        return found

    def save(self, session: SqlSession) -> None:
        """Store which slots are taken."""
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
    """The slots of a stream within a scope, where neighbours are side by side."""

    def __init__(self, session: SqlSession, scope: _Scope, stream: str) -> None:
        self._scope, self._stream = scope, stream
        sql = "SELECT next, ends, at, session FROM threads WHERE scope = ? AND stream = ?"
        row = session.execute(sql, (scope.number, stream)).fetchone()
        self._next: int
        self._ends: int
        self._at: int | None
        self._session: str | None
        self._next, self._ends, self._at, self._session = row or (0, 0, None, None)

    def row(self) -> tuple[Any, ...]:
        """Return the row for the table `threads`, without the scope."""
        return self._stream, self._next, self._ends, self._at, self._session

    def take(self, count: int, at: int, session: str | None) -> int:
        """Take `count` slots and return the first; leave a gap after another session."""
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
            block = count  # no stream reserved slots after this one: extend it
        else:
            first, block = scope.next + GAP, max(count, BLOCK)
        self._ends = scope.next = first + block
        return first


def index_events(
    session: SqlSession, table: "SearchIndex", items: Sequence[tuple[PreparedEvent, int, int]]
) -> None:
    """Index events, each given with its seq and the time it happened."""
    scopes: dict[str | None, _Scope] = {}
    rows: list[PassageRow] = []
    terms: list[str] = []
    for event, seq, at in items:
        scope = scopes.get(event.subject)
        if scope is None:
            scope = scopes[event.subject] = _Scope(session, table, Within(event.subject))
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
        # SQLite's word index takes numbers fastest in ascending order.
        order = sorted(range(len(rows)), key=rows.__getitem__)
        rows, terms = [rows[n] for n in order], [terms[n] for n in order]
    table.insert_passages(session, rows, terms)
    for scope in scopes.values():
        scope.save(session)


class LessonRow(NamedTuple):
    """An event that holds a lesson."""

    seq: int
    id: str
    stream: str
    subject: str | None
    kind: str
    at: int
    body: str | None


_LESSON = "e.seq, e.id, e.stream, e.subject, e.kind, e.at, e.body"


def put_lessons(
    session: SqlSession, table: "SearchIndex", lessons: Mapping[str, str | None]
) -> None:
    """Index an event of each stream as its lesson, in place of the former one."""
    streams = list(lessons)
    before = [row[0] for row in select(session, "seq", "lessons", "stream", streams)]
    remove_passages(session, table, before, "number < 0")
    ids = [event_id for event_id in lessons.values() if event_id is not None]
    rows = [LessonRow(*row) for row in select(session, _LESSON, "events AS e", "e.id", ids)]
    # In the order of the log, so that ties in a search are broken in the same way each time.
    found = {row.stream: row for row in sorted(rows) if lessons.get(row.stream) == row.id}
    for stream, event_id in lessons.items():
        if event_id is not None and stream not in found:
            raise NotFound(f"stream {stream!r} has no event {event_id!r}", place="lessons")
    session.executemany(
        "INSERT INTO lessons(stream, seq) VALUES (?, ?)",
        [(row.stream, row.seq) for row in found.values()],
    )
    _index_lessons(session, table, list(found.values()))


def _index_lessons(session: SqlSession, table: "SearchIndex", lessons: Sequence[LessonRow]) -> None:
    """Index lessons, with gaps between them: a lesson has no neighbours."""
    from em.text.terms import pieces

    scopes: dict[str | None, _Scope] = {}
    rows: list[tuple[PassageRow, str]] = []
    for lesson in lessons:
        text = searched_text(lesson.kind, msgspec.json.decode(lesson.body or "null"))
        if not text:
            continue
        scope = scopes.get(lesson.subject)
        if scope is None:
            within = Within(lesson.subject, lessons=True)
            scope = scopes[lesson.subject] = _Scope(session, table, within)
        parts = pieces(text, from_micros(lesson.at), None)
        number = (scope.number << SLOT_BITS) + scope.next + GAP
        scope.next += GAP + len(parts)
        scope.added += len(parts)
        for n, (start, end, terms, shape) in enumerate(parts):
            row = PassageRow(number + n, shape, lesson.seq, start, end, lesson.at, None, None)
            rows.append((row, terms))
    rows.sort()
    table.insert_passages(session, [row for row, _ in rows], [terms for _, terms in rows])
    for scope in scopes.values():
        scope.save(session)


def find_passages(session: SqlSession, seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return number and seq of the passages of events."""
    sql = "SELECT number, seq FROM passages WHERE seq IN ({})"
    return select_numbers(session, sql, seqs)


def remove_passages(
    session: SqlSession, table: "SearchIndex", seqs: Sequence[int], condition: str = "1 = 1"
) -> int:
    """Delete the passages of events that meet a condition. Return how many there were."""
    session.executemany("DELETE FROM lessons WHERE seq = ?", [(seq,) for seq in seqs])
    numbers: list[int] = []
    postings: list[int] = []
    sql = f"SELECT number, shape FROM passages WHERE seq IN ({{}}) AND {condition}"  # noqa: S608 - fixed words; values are bound
    for number, shape in select_numbers(session, sql, seqs):
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
        # The name of a session may hold part of what was forgotten.
        session.execute("UPDATE threads SET session = NULL WHERE scope = ?", (scope,))
    return len(postings)


ANALYSED = "analysis"
"""The flag that holds the number of the analysis which made the passages."""


def _is_current(session: SqlSession) -> bool:
    """Return whether everything is indexed by this em's analysis."""
    return _flag(session, ANALYSED) == str(ANALYSIS)


def _flag(session: SqlSession, name: str) -> str | None:
    row = session.execute("SELECT value FROM flags WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def _put_flag(session: SqlSession, name: str, value: str) -> None:
    session.execute(
        "INSERT INTO flags(name, value) VALUES (?, ?)"
        " ON CONFLICT(name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def _reindex_lessons(session: SqlSession, table: "SearchIndex") -> None:
    after = 0
    sql = (
        f"SELECT {_LESSON} FROM lessons AS l JOIN events AS e ON e.seq = l.seq"  # noqa: S608 - fixed words; values are bound
        " WHERE l.seq > ? AND e.body IS NOT NULL ORDER BY l.seq LIMIT 1000"
    )
    while rows := [LessonRow(*row) for row in session.execute(sql, (after,)).fetchall()]:
        after = rows[-1].seq
        _index_lessons(session, table, rows)


def _reindex(session: SqlSession, table: "SearchIndex") -> None:
    """Index all events again."""
    postings = session.execute("SELECT number, shape FROM passages").fetchall()
    table.delete_passages(session, [number << SHAPE_BITS | shape for number, shape in postings])
    # Passages get new numbers, so no vector belongs to one any more.
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
    _reindex_lessons(session, table)
    _put_flag(session, ANALYSED, str(ANALYSIS))


def _searched_rows(session: SqlSession, after: int) -> list[Any]:
    kinds = sorted(SEARCHED)
    sql = (
        "SELECT seq, id, stream, subject, kind, v, at, body FROM events"  # noqa: S608 - question marks; values are bound
        f" WHERE seq > ? AND body IS NOT NULL AND kind IN ({','.join('?' * len(kinds))})"
        " ORDER BY seq LIMIT 1000"
    )
    return session.execute(sql, (after, *kinds)).fetchall()


NOWHERE = (1, 0)
"""An empty range of numbers, for a subject without passages."""
LAST_NUMBER = 2**54 - 1
"""The largest number of a passage: with its shape appended it still fits in 63 bits."""

_PASSAGES = (
    "SELECT p.number, p.starts, p.ends, p.at, p.speaker, p.role,"
    " e.id, e.recorded_at, e.subject, e.stream, e.kind, e.body"
    " FROM passages AS p JOIN events AS e ON e.seq = p.seq WHERE p.number IN ({})"
    " AND e.body IS NOT NULL"
)


def numbers_of(session: SqlSession, within: Within) -> tuple[int, int]:
    """Return the range of numbers that the passages of a scope have."""
    if within.subject is None:
        return (-LAST_NUMBER, -1) if within.lessons else (0, LAST_NUMBER)
    sql = "SELECT number FROM scopes WHERE subject = ?"
    row = session.execute(sql, (scope_name(within),)).fetchone()
    return NOWHERE if row is None else scope_range(row[0])


def _scope_condition(within: Within) -> tuple[str, list[str]]:
    """Return the condition that selects the rows of `scopes`, with its parameters."""
    if within.subject is None:
        return ("number < 0" if within.lessons else "number > 0"), []
    return "subject = ?", [scope_name(within)]


def read_scope(session: SqlSession, within: Within) -> tuple[int, int]:
    """Return the number of passages of a scope, and its stamp."""
    condition, params = _scope_condition(within)
    sql = f"SELECT SUM(passages), SUM(stamp) FROM scopes WHERE {condition}"  # noqa: S608 - fixed words; values are bound
    passages, stamp = session.execute(sql, params).fetchone()
    return int(passages or 0), int(stamp or 0)


def time_conditions(within: Within) -> tuple[str, list[int]]:
    """Return the condition on `p.at` (the table `passages`), with its parameters."""
    conditions, params = "", []
    for sign, bound in ((">=", within.since), ("<", within.until)):
        if bound is not None:
            conditions += f" AND p.at {sign} ?"
            params.append(to_micros(moment(bound)))
    return conditions, params


def _passage(row: Sequence[Any], decoded: dict[str, tuple[str, Json]]) -> Passage:
    number, start, end, at, speaker, role, event_id, recorded_at, subject, stream, kind, body = row
    # Many passages may come from one large body: decode it once.
    if event_id not in decoded:
        content = msgspec.json.decode(body)
        decoded[event_id] = (searched_text(kind, content) or "", content)
    text, content = decoded[event_id]
    of_trace = stream.removeprefix(TRACE_PREFIX) if stream.startswith(TRACE_PREFIX) else None
    own = content.get("metadata")
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
        session=detail(content, "session"),
        agent=detail(content, "agent"),
        run=detail(content, "run") or of_trace,
        metadata=own if isinstance(own, dict) else {},
        start=start,
        number=number,
    )


EMBEDDER = "embedder"
"""The flag that names the embedder of all vectors."""


def embedder_of(session: SqlSession) -> str | None:
    """Return the identity of the embedder that made the vectors."""
    return _flag(session, EMBEDDER)


def put_vectors(
    session: SqlSession, identity: str, vectors: Mapping[int, Any], mark: str = "?"
) -> None:
    """Store vectors in the form of the back end. Skip those whose passage was deleted.

    All vectors come from one embedder: those of another are deleted in the same transaction.
    """
    if embedder_of(session) != identity:
        session.execute("DELETE FROM vectors")
        session.execute("UPDATE scopes SET stamp = stamp + 1")
        _put_flag(session, EMBEDDER, identity)
    there = "SELECT number FROM passages WHERE number IN ({})"
    existing = [row[0] for row in select_numbers(session, there, list(vectors))]
    session.executemany(
        f"INSERT INTO vectors(number, vector) VALUES (?, {mark})"  # noqa: S608 - a question mark
        " ON CONFLICT(number) DO UPDATE SET vector = excluded.vector",
        [(number, vectors[number]) for number in existing],
    )
    for scope in sorted({number >> SLOT_BITS for number in existing}):
        session.execute("UPDATE scopes SET stamp = stamp + 1 WHERE number = ?", (scope,))


class MatchSigns(NamedTuple):
    """How a back end writes which words a passage must have."""

    either: str
    both: str
    quote: str


class SearchIndex(ABC):
    """Find passages by words and by vectors. Safe to share between threads.

    A passage has a number. Its posting is the number with the shape appended (`SHAPE_BITS`). A back
    end adds the statements on words and vectors.

    reading, writing: begin a session of the store, see `SqlStore`.
    """

    signs: MatchSigns
    newest_first = ""
    """How postings are put in order, where the server does that fast."""
    next_scopes = (
        "(SELECT COALESCE(MAX(CASE WHEN number > 0 THEN number END), 0) + 1 FROM scopes)",
        "(SELECT COALESCE(MIN(CASE WHEN number < 0 THEN number END), 0) - 1 FROM scopes)",
    )
    """The SQL of the number of a new scope: of utterances from 1 up, of lessons from -1 down.

    So the sign of a passage's number tells which it is, and one range of numbers covers all of
    either.
    """

    def __init__(self, reading: Transaction, writing: Transaction) -> None:
        self._reading = reading
        self._writing = writing

    @abstractmethod
    def insert_passages(
        self, session: SqlSession, rows: Sequence["PassageRow"], terms: Sequence[str]
    ) -> None:
        """Insert passages with their words, in the order of their numbers."""

    @abstractmethod
    def delete_passages(self, session: SqlSession, postings: Sequence[int]) -> None:
        """Delete passages, their words and their vectors."""

    @abstractmethod
    def put_vectors(self, identity: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Store vectors of length 1 by the numbers of their passages.

        Vectors of another embedder are deleted: two are never mixed.
        """

    @abstractmethod
    def postings_sql(self, session: SqlSession, within: Within) -> tuple[str, list[int]]:
        """Return the SQL of the postings in a scope. Its first parameter is the match."""

    @abstractmethod
    def nearest_of(
        self, session: SqlSession, vector: Sequence[float], within: Within, limit: int
    ) -> list[tuple[int, float]]:
        """Return what `nearest` does, where the vectors are of its embedder."""

    @abstractmethod
    def similarities_of(
        self, session: SqlSession, vector: Sequence[float], numbers: Sequence[int]
    ) -> dict[int, float]:
        """Return what `similarities` does, where the vectors are of its embedder."""

    def match(self, tags: Sequence[str], *groups: Sequence[str]) -> str:
        """Return what matches one word of each group, and all tags.

        Each word is quoted, so that none is an operator.
        """
        either, both, quote = self.signs
        quoted = [[f"{quote}{word}{quote}" for word in group] for group in groups if group]
        parts = [f"({either.join(words)})" for words in quoted]
        return both.join([*parts, *(f"{quote}{tag}{quote}" for tag in tags)])

    def find(
        self,
        groups: Sequence[Sequence[str]],
        within: Within,
        limit: int,
        *,
        beside: Sequence[str] = (),
    ) -> list[list[int]]:
        """Return for each group of words the postings of the passages that have one of them.

        Newest first, at most `limit` each. beside: a passage must also have one of these words.
        """
        tags = within.tags
        with self._reading() as session:
            sql, params = self.postings_sql(session, within)
            sql += f"{self.newest_first} LIMIT ?"
            matches = (self.match(tags, group, beside) for group in groups)
            found = (session.execute(sql, (match, *params, limit)) for match in matches)
            return [sorted((row[0] for row in rows), reverse=True) for rows in found]

    def count(self, within: Within, words: Sequence[str]) -> int:
        """Count the passages that have one of the words."""
        with self._reading() as session:
            sql, params = self.postings_sql(session, within)
            counted = f"SELECT count(*) FROM ({sql}) AS found"  # noqa: S608 - fixed words; values are bound
            match = self.match(within.tags, words)
            return int(session.execute(counted, (match, *params)).fetchone()[0])

    def nearest(
        self, identity: str, vector: Sequence[float], within: Within, limit: int
    ) -> list[tuple[int, float]]:
        """Return numbers and similarities of the passages nearest to this embedder's vector."""
        with self._reading() as session:
            is_known = embedder_of(session) == identity
            return self.nearest_of(session, vector, within, limit) if is_known else []

    def similarities(
        self, identity: str, vector: Sequence[float], numbers: Sequence[int]
    ) -> dict[int, float]:
        """Return how near passages are to a vector. Passages without a vector are skipped."""
        with self._reading() as session:
            is_known = embedder_of(session) == identity
            return self.similarities_of(session, vector, numbers) if is_known else {}

    def marks(self, numbers: Sequence[int]) -> list[PassageMark]:
        """Return what ranking needs of passages. Unknown numbers are skipped."""
        sql = "SELECT number, shape, seq, speaker, role, at FROM passages WHERE number IN ({})"
        with self._reading() as session:
            return [PassageMark(*row) for row in select_numbers(session, sql, numbers)]

    def passages(self, numbers: Sequence[int]) -> list[Passage]:
        """Return passages with their texts, in no order."""
        decoded: dict[str, tuple[str, Json]] = {}
        with self._reading() as session:
            rows = select_numbers(session, _PASSAGES, numbers)
            return [_passage(row, decoded) for row in rows]

    def status(self, within: Within) -> IndexStatus:
        """Report on a scope, whenever its passages happened."""
        with self._reading() as session:
            passages, stamp = read_scope(session, within)
            return IndexStatus(passages, stamp, embedder_of(session))

    def without_vector(self, identity: str, within: Within, limit: int) -> tuple[int, list[int]]:
        """Count the passages without a vector of this embedder, and return the newest of them."""
        with self._reading() as session:
            bounds = numbers_of(session, within)
            sql = "FROM passages AS p WHERE p.number BETWEEN ? AND ?"
            if embedder_of(session) == identity:
                sql += " AND NOT EXISTS (SELECT 1 FROM vectors AS v WHERE v.number = p.number)"
            (count,) = session.execute(f"SELECT count(*) {sql}", bounds).fetchone()
            newest = f"SELECT p.number {sql} ORDER BY p.number DESC LIMIT ?"
            rows = session.execute(newest, (*bounds, limit)).fetchall()
            return count, [row[0] for row in rows]

    def bring_up_to_date(self) -> None:
        """Index what another analysis indexed."""
        with self._reading() as session:
            if _is_current(session):
                return
        with self._writing() as session:
            if not _is_current(session):
                _reindex(session, self)
