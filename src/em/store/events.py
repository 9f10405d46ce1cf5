"""The table of events: read it in pages, append to it with the hash chain."""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import msgspec

from em import deadline
from em.errors import (
    ChainConflict,
    DuplicateEvent,
    ForeignStream,
    PositionConflict,
    StoreCorrupt,
    UsageError,
)
from em.log.chain import LAG, SALT_BYTES, START, STREAM, hash_body, hash_event
from em.log.event import Event, EventQuery, Row, check_name
from em.store.holders import Derivation, derivations_of, put_derivations
from em.store.preparation import PreparedCommit, PreparedEvent
from em.store.register import (
    End,
    Item,
    append_entries,
    chain_entries,
    chain_entry,
    put_entries,
)
from em.store.session import SqlSession, chunks
from em.values.times import from_micros, moment, now_micros, to_micros

COLUMNS = "seq, id, stream, pos, subject, kind, v, at, recorded_at, body, salt, body_hash, hash"
MAX_NAMES = 10_000
PAGE_ROWS = 2_000
PAGE_BYTES = 16 * 1024 * 1024
MOST_MERGED = 20
"""Kinds of a query that are read one by one and merged; more are sorted."""
_SEQ, _STREAM, _POS, _BODY = 0, 2, 3, 9
_decode = msgspec.json.Decoder().decode


class PageQuery(NamedTuple):
    """The SQL of one page of events. `raw`: rows may hold bytes that are not UTF-8."""

    sql: str
    params: list[Any]
    raw: bool


class FetchPage(Protocol):
    """Fetch the rows of a page."""

    def __call__(self, page: PageQuery, max_bytes: int) -> list[tuple[Any, ...]]:
        """Return the rows; stop early once their bodies exceed `max_bytes` in all."""


def check_query(query: EventQuery) -> None:
    """Raise UsageError for a query that no event can match: a bad name or number."""
    for place in ("stream", "subject"):
        name = getattr(query, place)
        if name is not None:
            check_name(name, place)
    for place in ("kinds", "ids"):
        names = getattr(query, place)
        if len(names) > MAX_NAMES:
            raise UsageError(
                f"{place} takes at most {MAX_NAMES:,} values, got {len(names):,}", place=place
            )
        for name in names:
            check_name(name, place)
    for place in ("limit", "after", "before"):
        number: object = getattr(query, place)
        if number is not None and (not isinstance(number, int) or not 0 <= number < 2**62):
            raise UsageError(
                f"{place} must be a whole number from 0 on, got {number!r}", place=place
            )
    if query.newest and query.limit is None:
        raise UsageError("newest=True needs a limit", place="limit", fix="pass limit=10")


def stream_rows(
    query: EventQuery, newest_seq: int, fetch: FetchPage, *, raw: bool = False
) -> Iterator[tuple[Any, ...]]:
    """Stream the rows of a query in its order, up to the event `newest_seq`."""
    if query.before is not None:
        newest_seq = min(newest_seq, query.before - 1)
    if query.newest:
        page = _newest_page(query, newest_seq)._replace(raw=raw)
        yield from reversed(fetch(page, max_bytes=1 << 62))
        return
    left = query.limit if query.limit is not None else 1 << 62
    last: tuple[Any, ...] | None = None
    while left > 0:
        deadline.check()
        size = min(left, PAGE_ROWS)
        page = _page(query, newest_seq, last, size)._replace(raw=raw)
        rows = fetch(page, max_bytes=PAGE_BYTES)
        yield from rows
        if not rows:
            return
        left -= len(rows)
        last = rows[-1]


def _of_kinds(
    query: EventQuery, page: Callable[[EventQuery], PageQuery], order: str, size: int
) -> PageQuery:
    """Return a page of several kinds: the first of each, merged. An index has each in its order."""
    kinds = dict.fromkeys(query.kinds)
    each = [page(msgspec.structs.replace(query, kinds=[kind])) for kind in kinds]
    numbers = [one.sql.replace(COLUMNS, "seq", 1) for one in each]
    union = " UNION ALL ".join(f"SELECT seq FROM ({sql}) AS one" for sql in numbers)  # noqa: S608 - made here; values are bound
    where = f"seq IN (SELECT seq FROM ({union}) AS found ORDER BY {order} LIMIT ?)"  # noqa: S608 - as above
    params = [value for one in each for value in one.params]
    return PageQuery(f"{_select([where])} ORDER BY {order}", [*params, size], raw=False)


def _has_several_kinds(query: EventQuery) -> bool:
    is_bound = query.stream is not None or query.subject is not None or bool(query.ids)
    return 1 < len(query.kinds) <= MOST_MERGED and not is_bound and not query.by_stream


def _page(query: EventQuery, newest_seq: int, last: tuple[Any, ...] | None, size: int) -> PageQuery:
    if _has_several_kinds(query):
        return _of_kinds(query, lambda one: _page(one, newest_seq, last, size), "seq", size)
    where, params = _conditions(query, newest_seq)
    if query.by_stream:
        order = "stream, pos"
        if last is not None:
            where.append("(stream, pos) > (?, ?)")
            params += [last[_STREAM], last[_POS]]
    elif query.stream is not None:
        # Within a stream, pos and seq grow together, and pos has the better index.
        order = "pos"
        if last is not None:
            where.append("pos > ?")
            params.append(last[_POS])
    else:
        order = "seq"
        where.append("seq > ?")
        params.append(query.after if last is None else last[_SEQ])
    return PageQuery(_select(where) + f" ORDER BY {order} LIMIT ?", [*params, size], raw=False)


def _newest_page(query: EventQuery, newest_seq: int) -> PageQuery:
    if _has_several_kinds(query):
        size = query.limit or 0
        return _of_kinds(query, lambda one: _newest_page(one, newest_seq), "seq DESC", size)
    where, params = _conditions(query, newest_seq)
    order = "seq" if query.stream is None else "pos"  # as above
    return PageQuery(
        _select(where) + f" ORDER BY {order} DESC LIMIT ?", [*params, query.limit], raw=False
    )


def _select(where: list[str]) -> str:
    return f"SELECT {COLUMNS} FROM events WHERE {' AND '.join(where)}"  # noqa: S608 - fixed words; values are bound


def _conditions(query: EventQuery, newest_seq: int) -> tuple[list[str], list[Any]]:
    where: list[str] = ["seq <= ?"]
    params: list[Any] = [newest_seq]
    if query.after and (query.by_stream or query.newest or query.stream is not None):
        where.append("seq > ?")
        params.append(query.after)
    for column in ("stream", "subject"):
        value = getattr(query, column)
        if value is not None:
            where.append(f"{column} = ?")
            params.append(value)
    # `|| ''`: look up the stream. SQLite prefers the kind, and would read all of its events.
    kind = "kind" if query.stream is None else "kind || ''"
    for column, values in ((kind, query.kinds), ("id", query.ids)):
        if values:
            where.append(f"{column} IN ({','.join('?' * len(values))})")
            params += values
    if query.since is not None:
        where.append("at >= ?")
        params.append(to_micros(moment(query.since, "since")))
    if query.until is not None:
        where.append("at < ?")
        params.append(to_micros(moment(query.until, "until")))
    return where, params


def bounded(rows: Iterator[tuple[Any, ...]], max_bytes: int) -> list[tuple[Any, ...]]:
    """Return rows until their bodies exceed `max_bytes` in all."""
    taken: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        taken.append(row)
        size += len(row[_BODY] or "")
        if size > max_bytes:
            break
    return taken


def to_event(row: tuple[Any, ...]) -> Event:
    """Decode a row into its event. Raise StoreCorrupt if it was tampered with."""
    seq, event_id, stream, pos, subject, kind, v, at, recorded_at, body, salt, body_hash, own = row
    try:
        return Event(
            seq,
            event_id,
            stream,
            pos,
            subject,
            kind,
            v,
            from_micros(at),
            from_micros(recorded_at),
            None if body is None else _decode(body),
            None if salt is None else salt.hex(),
            body_hash.hex(),
            own.hex(),
        )
    except (msgspec.DecodeError, AttributeError, TypeError, OverflowError) as error:
        raise StoreCorrupt(
            f"event {event_id} can't be read: {error}",
            place=f"stream {stream!r}, position {pos}",
            fix="run `em log verify` to see what else was changed",
        ) from error


def to_row(row: tuple[Any, ...]) -> Row:
    """Return a row undecoded."""
    return Row(*row)


STREAMS_REMEMBERED = 64


InsertEvents = Callable[[SqlSession, Sequence[tuple[Any, ...]]], None]
InsertRegistered = Callable[[SqlSession, tuple[Any, ...], tuple[Any, ...]], None]
"""Inserts the row of an event and the register's entry with one statement."""


class StreamHead(NamedTuple):
    """Position and hash of a stream's last event; `owner`: whom the stream is about, if known."""

    pos: int = 0
    hash: bytes = START
    owner: str | None = None


class Tip(NamedTuple):
    """The end of the log: the newest seq, the heads of some streams, the end of the register."""

    newest: int
    heads: dict[str, StreamHead]
    end: End

    def head(self, session: SqlSession, stream: str) -> StreamHead:
        """Return the head of a stream; read it if it is not known."""
        known = self.heads.get(stream)
        return read_head(session, stream) if known is None else known


class ChainedEvents(NamedTuple):
    """What an append wrote: the events, their numbers, and the end of the log if it is known."""

    events: list[Event]
    seqs: Sequence[int]
    tip: Tip | None


NOTHING = ChainedEvents([], (), None)


class Chain:
    """Appends events to their streams, and the streams' new heads to the register.

    It remembers the end of the log between commits, so that most appends read little. While the
    newest event and the end of the register stand where they were, nobody else has written.
    An event that is appended alone, to a stream that has others, is entered in the register with
    one of the next: see `LAG`. That keeps such an append at one page less.
    taken: the back end's error for a number that is taken: one statement is a transaction of its
    own there.
    """

    def __init__(
        self, insert_events: InsertEvents, taken: type[Exception] | tuple[()] = ()
    ) -> None:
        self._insert_events = insert_events
        self._taken = taken
        self._remembered: Tip | None = None
        self._to_enter: dict[str, StreamHead] = {}
        self._entered: dict[str, StreamHead] = {}

    def remember(self, tip: Tip | None) -> None:
        """Remember where the log ended after a commit."""
        self._remembered = tip
        for stream, head in self._entered.items():
            if self._to_enter.get(stream) is head:  # no other thread has appended since
                self._to_enter.pop(stream, None)

    @property
    def is_behind(self) -> bool:
        """Whether there are heads that are not in the register yet."""
        return bool(self._to_enter)

    def catch_up(self, session: SqlSession) -> None:
        """Enter the heads that are not in the register yet."""
        self._remembered = None
        append_entries(session, self._late_items(session))
        self._to_enter = {}

    def _late_items(self, session: SqlSession, without: Sequence[str] = ()) -> list[Item]:
        """Return what is to be entered of earlier appends."""
        items: list[Item] = []
        for stream, head in list(self._to_enter.items()):
            if stream not in without:
                # Somebody else may have appended since. What was cut off is still missed.
                newest = max(head, read_head(session, stream), key=lambda one: one.pos)
                items.append((STREAM, stream, newest.pos, newest.hash))
        return items

    def append(
        self,
        session: SqlSession,
        prepared: Sequence[PreparedEvent],
        recorded_at: int,
        expected: Mapping[str, int],
        *,
        only_rows: bool = False,
    ) -> ChainedEvents:
        """Chain events to their streams and insert them.

        only_rows: return no events, for a caller who does not look at them.
        """
        remembered, self._remembered = self._remembered, None
        self._entered = {}
        if not prepared:
            for stream, pos in expected.items():
                _check_position(stream, pos, read_head(session, stream).pos)
            return NOTHING
        tip = _read_tip(session, prepared[0].stream)
        if remembered is not None and (remembered.newest, remembered.end) == (tip.newest, tip.end):
            tip = remembered
        for stream, pos in expected.items():
            _check_position(stream, pos, tip.head(session, stream).pos)
        seqs = range(tip.newest + 1, tip.newest + 1 + len(prepared))
        heads = dict(tip.heads) if len(tip.heads) < STREAMS_REMEMBERED else {}
        links = _link_events(
            prepared, seqs, recorded_at, heads, lambda stream: tip.head(session, stream)
        )
        late = self._late_items(session, [item[1] for item in links.items])
        entries = chain_entries(tip.end, late + links.items)
        self._insert_events(session, links.rows)
        put_entries(session, entries)
        links.put_rest(session)
        self._entered = dict(self._to_enter)
        events = [] if only_rows else list(map(event_of, prepared, links.rows))
        end = End(entries[-1][0], entries[-1][-1])
        return ChainedEvents(events, seqs, Tip(seqs[-1], heads, end))

    def insert_at_once(
        self,
        session: SqlSession,
        event: PreparedEvent,
        expected: Mapping[str, int],
        insert_registered: InsertRegistered,
        *,
        only_rows: bool = False,
    ) -> list[Event] | None:
        """Append one event with one statement, which is a transaction of its own.

        Return None, and write nothing, if the end of the log is not known or has moved.
        only_rows: return no events, for a caller who does not look at them.
        """
        remembered, self._remembered = self._remembered, None
        if remembered is None or len(self._to_enter) >= STREAMS_REMEMBERED:
            return None
        newest, heads, end = remembered
        stream, subject = event.stream, event.subject
        head = heads.get(stream) or read_head(session, stream)
        pos, _, owner = head
        if subject is not None and subject != owner:
            return None  # the stream gets an owner, which is a second statement
        if expected.get(stream, pos) != pos or len(expected) > 1:
            return None
        row = _seal(event, newest + 1, head, os.urandom(SALT_BYTES), now_micros())
        new_head = StreamHead(pos + 1, row[-1], owner)
        try:
            if pos % (LAG + 1):
                self._insert_events(session, (row,))
                self._to_enter[stream] = new_head
            else:
                entry = chain_entry(end, STREAM, stream, pos + 1, row[-1])
                insert_registered(session, row, entry)
                self._to_enter.pop(stream, None)
                end = End(entry[0], entry[-1])
        except self._taken:
            return None  # the remembered end is stale
        if len(heads) >= STREAMS_REMEMBERED:
            heads = {}
        heads[stream] = new_head
        self._remembered = Tip(newest + 1, heads, end)
        return [] if only_rows else [event_of(event, row)]


class LooseChain(Chain):
    """Appends events while others append to other streams: nothing is remembered between commits.

    The caller has locked the streams, or all of the log. `seq` comes from a sequence, after the
    lock: it grows with the position within a stream. The register is chained later, in batches.
    """

    def remember(self, tip: Tip | None) -> None:
        """Remember nothing: the end of the log is never known."""

    def append(
        self,
        session: SqlSession,
        prepared: Sequence[PreparedEvent],
        recorded_at: int,
        expected: Mapping[str, int],
        *,
        only_rows: bool = False,
    ) -> ChainedEvents:
        """Chain events to their streams and insert them."""
        streams = dict.fromkeys((*expected, *(item.stream for item in prepared)))
        seqs, heads = _draw(session, len(prepared), list(streams))
        for stream, pos in expected.items():
            _check_position(stream, pos, heads[stream].pos)
        if not prepared:
            return NOTHING
        links = _link_events(prepared, seqs, recorded_at, heads, heads.__getitem__)
        self._insert_events(session, links.rows)
        append_entries(session, links.items)
        links.put_rest(session)
        events = [] if only_rows else list(map(event_of, prepared, links.rows))
        return ChainedEvents(events, seqs, None)


class _Links(NamedTuple):
    """What events become: their rows, items of the register, and rows of other tables."""

    rows: list[tuple[Any, ...]]
    items: list[Item]
    derivations: list[Derivation]
    owners: dict[str, str]

    def put_rest(self, session: SqlSession) -> None:
        """Insert the rows that stand beside the events."""
        put_derivations(session, self.derivations)
        if self.owners:
            _put_owners(session, self.owners)


def _link_events(
    prepared: Sequence[PreparedEvent],
    seqs: Sequence[int],
    recorded_at: int,
    heads: dict[str, StreamHead],
    read: Callable[[str], StreamHead],
) -> _Links:
    """Link events to their streams.

    heads: the known heads, which become those after the events. read: finds one that is missing.
    """
    salts = os.urandom(SALT_BYTES * len(prepared))
    rows: list[tuple[Any, ...]] = []
    derivations: list[Derivation] = []
    owners: dict[str, str] = {}
    touched: dict[str, None] = {}
    for n, item in enumerate(prepared):
        head = heads.get(item.stream) or read(item.stream)
        seal = _import if item.imported is not None else _seal
        salt = salts[n * SALT_BYTES : (n + 1) * SALT_BYTES]
        row = seal(item, seqs[n], head, salt, recorded_at)
        owner = head.owner
        if item.subject is not None and item.subject != owner:
            owner = owners[item.stream] = _owner(item, owner)
        heads[item.stream] = StreamHead(row[_POS], row[-1], owner)
        touched[item.stream] = None
        rows.append(row)
        if item.sources:
            derivations += derivations_of(item.sources, "events", item.id)
    items: list[Item] = [
        (STREAM, stream, heads[stream].pos, heads[stream].hash) for stream in touched
    ]
    return _Links(rows, items, derivations, owners)


def _read_tip(session: SqlSession, stream: str) -> Tip:
    newest, n, link, pos, own, owner = session.execute(_TIP, (stream, stream)).fetchone()
    head = StreamHead(pos or 0, own or START, owner)
    return Tip(newest or 0, {stream: head}, End(n or 0, link or START))


_TIP = (
    "SELECT (SELECT MAX(seq) FROM events), (SELECT MAX(n) FROM register),"
    " (SELECT link FROM register ORDER BY n DESC LIMIT 1),"
    " head.pos, head.hash, owners.subject FROM (SELECT 1) AS one"
    " LEFT JOIN (SELECT pos, hash FROM events WHERE stream = ? ORDER BY pos DESC LIMIT 1) AS head"
    " ON 1 = 1 LEFT JOIN owners ON owners.stream = ?"
)
_HEAD = (
    "SELECT pos, hash, (SELECT subject FROM owners WHERE owners.stream = events.stream)"
    " FROM events WHERE stream = ? ORDER BY pos DESC LIMIT 1"
)
_DRAW = (
    "SELECT (SELECT array_agg(nextval('events_seq')) FROM generate_series(1, ?)),"
    " wanted.stream, head.pos, head.hash, owners.subject"
    " FROM (VALUES {}) AS wanted(stream) LEFT JOIN LATERAL ("
    " SELECT pos, hash FROM events WHERE events.stream = wanted.stream"
    " ORDER BY pos DESC LIMIT 1) AS head ON TRUE"
    " LEFT JOIN owners ON owners.stream = wanted.stream"
)
"""For PostgreSQL: SQLite has no LATERAL."""


def _owner(item: PreparedEvent, owner: str | None) -> str:
    """Return the owner of a stream after this event. Raise ForeignStream if it is another's.

    A tombstone may be about several, and an exported event proves by its hash that it stood there.
    """
    assert item.subject is not None
    if owner is None:
        return item.subject
    if item.kind == "erased" or item.imported is not None:
        return owner
    raise ForeignStream(
        f"the stream is about {owner!r}; an event about {item.subject!r} can't be written to it",
        place=f"stream {item.stream!r}",
        fix="write to a stream of its own for each subject",
    )


def _put_owners(session: SqlSession, owners: Mapping[str, str]) -> None:
    session.executemany(
        "INSERT INTO owners(stream, subject) VALUES (?, ?) ON CONFLICT DO NOTHING",
        list(owners.items()),
    )


def _check_position(stream: str, expected: int, actual: int) -> None:
    if actual != expected:
        raise PositionConflict(
            f"expected the stream at position {expected}, it is at {actual}",
            place=f"stream {stream!r}",
            fix="read the new events, then decide again",
            expected=expected,
            actual=actual,
        )


def read_head(session: SqlSession, stream: str) -> StreamHead:
    """Return the head of a stream; that of a stream without events is at position 0."""
    row = session.execute(_HEAD, (stream,)).fetchone()
    return StreamHead(*row) if row else StreamHead()


def _draw(
    session: SqlSession, count: int, streams: Sequence[str]
) -> tuple[list[int], dict[str, StreamHead]]:
    """Draw numbers for new events, and read the heads of streams, with one statement."""
    seqs: list[int] = []
    heads: dict[str, StreamHead] = {}
    for start in range(0, len(streams), 300):
        part = streams[start : start + 300]
        sql = _DRAW.format(",".join("(?)" for _ in part))
        for drawn, stream, pos, own, owner in session.execute(sql, (count, *part)).fetchall():
            heads[stream] = StreamHead(pos or 0, own or START, owner)
            seqs = drawn or seqs
        count = 0
    return seqs, heads


@lru_cache(maxsize=4)
def _moment(micros: int) -> datetime:
    """Convert the time of a commit once for all its events."""
    return from_micros(micros)


def _seal(
    item: PreparedEvent, seq: int, head: StreamHead, salt: bytes, recorded_at: int
) -> tuple[Any, ...]:
    """Return the row of a new event, with its position, times and hashes."""
    # Every append waits for this: unpacking once is faster than reading fields one by one.
    event_id, stream, subject, kind, v, at, text = item[:7]
    assert text is not None
    pos = head[0] + 1
    if at is None:
        at = recorded_at
    body_hash = hash_body(salt, text)
    fields = (event_id, stream, pos, subject, kind, v, at, recorded_at)
    own = hash_event(head[1], *fields, body_hash)
    return (seq, *fields, text.decode(), salt, body_hash, own)


def event_of(item: PreparedEvent, row: tuple[Any, ...]) -> Event:
    """Return the event of a row that was just made."""
    if item.imported is not None:
        return msgspec.structs.replace(item.imported, seq=row[_SEQ])
    seq, event_id, stream, pos, subject, kind, v, at, recorded_at, _, salt, body_hash, own = row
    recorded = _moment(recorded_at)
    return Event(
        seq,
        event_id,
        stream,
        pos,
        subject,
        kind,
        v,
        recorded if item.at is None else from_micros(at),
        recorded,
        item.body,
        salt.hex(),
        body_hash.hex(),
        own.hex(),
    )


def _import(
    item: PreparedEvent, seq: int, head: StreamHead, _salt: bytes, _recorded_at: int
) -> tuple[Any, ...]:
    """Return the row of an imported event, if it continues its stream and its hashes fit."""
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
    return (seq, *start, at, recorded_at, text, salt, body_hash, own)


def _misfit(item: PreparedEvent, why: str) -> ChainConflict:
    return ChainConflict(
        why,
        place=f"event {item.id} of stream {item.stream!r}",
        fix="import into an empty log, or with --rechain to append it as new",
    )


class _StoredContent(NamedTuple):
    """The content of an event that is in the log; `body` is None once it was erased."""

    stream: str
    kind: str
    subject: str | None
    v: int
    at: int | None
    body: str | None
    hash: bytes

    @classmethod
    def of(cls, item: PreparedEvent) -> "_StoredContent":
        text = None if item.text is None else item.text.decode()
        own = b"" if item.imported is None else bytes.fromhex(item.imported.hash)
        return cls(item.stream, item.kind, item.subject, item.v, item.at, text, own)

    def equals(self, item: PreparedEvent) -> bool:
        """Compare by hash where both have one, else by all that its writer gave."""
        other = _StoredContent.of(item)
        if other.hash:
            return self.hash == other.hash
        body = self.body if self.body is not None else other.body
        at = self.at if other.at is not None else None
        return self._replace(body=body, at=at, hash=b"") == other


def without_known(session: SqlSession, prepared: PreparedCommit) -> PreparedCommit:
    """Leave out events that are in the log. Raise DuplicateEvent if one of them differs."""
    known: dict[str, _StoredContent] = {}
    for marks, part in chunks(prepared.given_ids):
        sql = (
            f"SELECT id, stream, kind, subject, v, at, body, hash FROM events WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        )
        known |= {row[0]: _StoredContent(*row[1:]) for row in session.execute(sql, part)}
    # A file may hold an event twice, as two concatenated exports do.
    new: dict[str, PreparedEvent] = {}
    for item in prepared.events:
        there = known.get(item.id) or (_StoredContent.of(new[item.id]) if item.id in new else None)
        if there is None:
            new[item.id] = item
        elif not there.equals(item):
            raise DuplicateEvent(
                "the log has another event with this id",
                place=f"event {item.id}",
                fix="import it into another log",
            )
    return prepared._replace(
        events=list(new.values()),
        given_ids=[],  # the events that are left are not in the log
        skip_known=False,
    )


def refuse_duplicates(session: SqlSession, ids: Sequence[str]) -> None:
    """Raise DuplicateEvent for an id that is given twice or is in the log already."""
    twice = [event_id for event_id, count in Counter(ids).items() if count > 1]
    for marks, part in chunks(ids):
        sql = f"SELECT id FROM events WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        twice += [row[0] for row in session.execute(sql, part)]
    if twice:
        raise DuplicateEvent(
            "an event with this id is in the log already", place=f"event {twice[0]}", id=twice[0]
        )
