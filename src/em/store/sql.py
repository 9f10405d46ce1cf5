"""What SQLite and PostgreSQL share: all but connecting, searching and scrubbing.

Tickets are logins, counts for limits of requests, the key that signs forms, and plans that wait to
be committed, sealed by their tokens. They are no part of the log: nothing of what was recorded can
be read in a ticket, and no export has it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any, Self

import msgspec

from em import telemetry
from em.errors import EmError, NotFound, StoreCorrupt, StoreError, UsageError
from em.log.chain import Entry, Holding
from em.log.event import Event, EventQuery, Row, check_name
from em.redaction.redactor import Redactor
from em.store import erasure, holders
from em.store.events import (
    Chain,
    PageQuery,
    Tip,
    check_query,
    read_head,
    refuse_duplicates,
    stream_rows,
    to_event,
    to_row,
    without_known,
)
from em.store.holders import (
    ARTEFACT_COLUMNS,
    CARD_COLUMNS,
    READABLE,
    USABLE,
    complete_request,
    put_artefact,
    put_cards,
    put_records,
    refuse_erased_sources,
    restore_artefacts,
    retire_artefacts,
    to_artefact,
    to_card,
)
from em.store.lanes import request_name
from em.store.preparation import (
    PreparedCommit,
    PreparedEvent,
    prepare,
    prepare_row,
    refuse_secret_name,
)
from em.store.protocol import (
    Artefact,
    Card,
    Claim,
    Commit,
    Committed,
    Erasure,
    Held,
    Record,
)
from em.store.register import (
    changed_artefacts,
    read_holdings,
    read_register,
    register_artefacts,
)
from em.store.search_index import (
    SearchIndex,
    index_events,
    put_lessons,
)
from em.store.session import CHUNK, SqlSession, Transaction, chunks, delete, is_side_by_side
from em.store.summaries import Summaries, summarise, summarise_lessons
from em.trust import Database
from em.values.times import new_id, now_micros

_MICROSECOND = timedelta(microseconds=1)


EXPIRED_AT_ONCE = 100
"""Expired tickets that one change deletes at most: more than come in."""

HoldThing = Callable[[str], AbstractContextManager[SqlSession]]
"""Begins a transaction that changes the thing with this name."""


class Tickets:
    """The tickets in a table of either back end."""

    def __init__(self, reading: Transaction, holding: HoldThing) -> None:
        self._reading = reading
        self._holding = holding

    def get(self, name: str) -> str | None:
        """Return the value of a ticket, or None if there is none or it has expired."""
        sql = "SELECT value FROM tickets WHERE name = ? AND expires_at > ?"
        with self._reading() as session:
            row = session.execute(sql, (name, now_micros())).fetchone()
        return None if row is None else str(row[0])

    def put(self, name: str, value: str, keep: timedelta) -> str:
        """Store a ticket unless there is one; return the value of the one that is there."""
        sql = "INSERT INTO tickets(name, value, count, expires_at) VALUES (?, ?, 0, ?) ON CONFLICT DO NOTHING"  # noqa: E501 - one statement
        with self._holding(_lock_name(name)) as session:
            moment = _expire(session, name)
            session.execute(sql, (name, value, moment + keep // _MICROSECOND))
            row = session.execute("SELECT value FROM tickets WHERE name = ?", (name,)).fetchone()
            _expire_others(session, name, moment)
        return str(row[0])

    def count(self, name: str, more: int, keep: timedelta) -> int:
        """Add to the count of a ticket, and return the sum. It expires `keep` after the first."""
        sql = (
            "INSERT INTO tickets(name, value, count, expires_at) VALUES (?, '', ?, ?)"
            " ON CONFLICT(name) DO UPDATE SET count = tickets.count + excluded.count"
            " RETURNING count"
        )
        with self._holding(_lock_name(name)) as session:
            moment = _expire(session, name)
            until = moment + keep // _MICROSECOND
            count = int(session.execute(sql, (name, more, until)).fetchone()[0])
            _expire_others(session, name, moment)
            return count

    def take(self, name: str) -> str | None:
        """Remove a ticket and return its value; None if there is none or it has expired."""
        with self._holding(_lock_name(name)) as session:
            _expire(session, name)
            sql = "DELETE FROM tickets WHERE name = ? RETURNING value"
            row = session.execute(sql, (name,)).fetchone()
        return None if row is None else str(row[0])


def _lock_name(name: str) -> str:
    return f"ticket {name}"


def _expire(session: SqlSession, name: str) -> int:
    """Delete a ticket if it has expired, and return the time."""
    moment = now_micros()
    session.execute("DELETE FROM tickets WHERE name = ? AND expires_at <= ?", (name, moment))
    return moment


def _expire_others(session: SqlSession, name: str, moment: int) -> None:
    """Delete others that have expired. Wait for nobody: the own ticket is held meanwhile."""
    passing = " FOR UPDATE SKIP LOCKED" if is_side_by_side(session) else ""
    sql = f"SELECT name FROM tickets WHERE expires_at <= ? AND name <> ? LIMIT ?{passing}"  # noqa: S608 - fixed words
    rows = session.execute(sql, (moment, name, EXPIRED_AT_ONCE)).fetchall()
    delete(session, "tickets", "name", [row[0] for row in rows])


SCRUB_PENDING = "scrub_pending"
_DATABASE_ID = "SELECT value FROM flags WHERE name = 'database_id'"


class FileLost(NotFound):
    """The database was removed or replaced while a transaction wrote to it."""


class SqlStore(ABC):
    """A store on SQL. A back end adds its connections and the few statements that differ."""

    _driver_error: type[Exception]
    _number_taken: type[Exception] | tuple[()] = ()
    _inserts_at_once = False
    times_lost = 0

    def __init__(self, index: SearchIndex, redactor: Redactor | None = None) -> None:
        self.index = index
        self.redactor = redactor or Redactor()
        self.summaries = Summaries(self._reading, self._writing)
        self.tickets = Tickets(self._reading, self._holding)
        self._chain = self._new_chain()

    def _new_chain(self) -> Chain:
        return Chain(self._insert_events, self._number_taken)

    @property
    @abstractmethod
    def location(self) -> str:
        """The path or address, as it may be shown: without a password."""

    @cached_property
    def database(self) -> Database:
        """What it is known by in the user's list of trusted databases."""
        with self._reading() as session:
            row = session.execute(_DATABASE_ID).fetchone()
        if row is None:
            raise StoreCorrupt(
                "the database has lost its id, so it is not known whose it is",
                place=self.location,
                fix="restore a backup, or import its `em log export` into a new one",
            )
        return Database(row[0], self._own_place)

    def _name_database(self, session: SqlSession) -> None:
        """Give a new database the id by which its user's list of trusted databases knows it."""
        sql = "INSERT INTO flags(name, value) VALUES ('database_id', ?) ON CONFLICT DO NOTHING"
        session.execute(sql, (new_id(),))

    @property
    def _own_place(self) -> str:
        """The place by which the database is known."""
        return self.location

    @abstractmethod
    def _explain(self, error: Exception) -> EmError:
        """Return em's error for an error of the driver."""

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._driver_error as error:
            raise self._explain(error) from error

    @abstractmethod
    def _reading(self) -> AbstractContextManager[SqlSession]:
        """Begin a session that sees what is committed."""

    @abstractmethod
    def _writing(self) -> AbstractContextManager[SqlSession]:
        """Begin a transaction with the write lock; commit it, or roll it back on an error."""

    def _committing(self, _commits: Sequence[PreparedCommit]) -> AbstractContextManager[SqlSession]:
        """Begin a transaction for commits that are known: with less than the write lock, if it can.

        Commits to other streams may run at the same time then. Whatever a commit reads and changes
        must be covered by its locks: see `em.store.lanes`.
        """
        return self._writing()

    def _holding(self, _name: str) -> AbstractContextManager[SqlSession]:
        """Begin a transaction that changes one thing only, known by this name."""
        return self._writing()

    @abstractmethod
    def _fetch(self, page: PageQuery, max_bytes: int) -> list[tuple[Any, ...]]:
        """Fetch a page of events; see `FetchPage`."""

    @abstractmethod
    def _insert_events(self, session: SqlSession, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows into the table of events."""

    def _insert_at_once(
        self, event: PreparedEvent, expected: Mapping[str, int], *, only_rows: bool
    ) -> list[Event] | None:
        """Commit one event with one statement; return None if that is not possible.

        only_rows: return no events, for a caller who does not look at them.
        """
        return None

    @abstractmethod
    def _scrub(self) -> None:
        """Remove the remains of erased bodies from the files. Raise StoreBusy if one is read."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def commit(self, commit: Commit) -> Committed:
        """Write a commit in one transaction."""
        if not telemetry.is_on():
            return self._commit(commit)
        sizes = {"em.events": len(commit.events), "em.artefacts": len(commit.artefacts)}
        with telemetry.span("em.commit", {**sizes, "em.records": len(commit.records)}):
            committed = self._commit(commit)
        telemetry.count("em.commits")
        telemetry.count("em.events", len(committed.events))
        return committed

    def _commit(self, commit: Commit) -> Committed:
        try:
            return self._commit_once(commit)
        except FileLost:  # nothing of it is stored: the next use begins a new file
            return self._commit_once(commit)

    def _commit_once(self, commit: Commit) -> Committed:
        if self._inserts_at_once and len(commit.events) == 1:
            event = prepare_row(commit, self.redactor)
            if event is not None:
                events = self._insert_at_once(
                    event, commit.expected_pos, only_rows=commit.only_rows
                )
                if events is not None:
                    return Committed(events, ())
        prepared = prepare(commit, self.redactor)
        with self._committing([prepared]) as session:
            committed, tip, erased = self._write(session, prepared)
        self._chain.remember(tip)
        if erased:
            self._try_to_scrub()
        return committed

    def commit_all(self, commits: Iterable[Commit]) -> int:
        """Write many commits in one transaction, and return how many events they had."""
        with telemetry.span("em.commit") as span:
            count = self._commit_all(commits)
            span.set("em.events", count)
        telemetry.count("em.commits")
        telemetry.count("em.events", count)
        return count

    def _commit_all(self, commits: Iterable[Commit]) -> int:
        count, erased = 0, False
        each = (prepare(commit, self.redactor) for commit in commits)
        known = list(each) if isinstance(commits, Sequence) else None
        ready: Iterable[PreparedCommit] = each if known is None else known
        with self._writing() if known is None else self._committing(known) as session:
            for prepared in ready:
                if prepared.skip_known:
                    prepared = without_known(session, prepared)  # noqa: PLW2901 - what is left
                # Nobody looks at the events, unless they erase others.
                is_plain = not any(item.kind == "erased" for item in prepared.events)
                _, _, also = self._write(session, prepared, only_rows=is_plain)
                count += len(prepared.events)
                erased |= also
        if erased:
            self._try_to_scrub()
        return count

    def streams(self, prefix: str) -> Iterator[str]:
        """Return the names of the streams that begin with a prefix, in their order."""
        sql = "SELECT MIN(stream) FROM events WHERE stream > ? AND stream < ?"
        last, beyond = prefix, prefix + chr(0x10FFFF)
        while True:
            with self._reading() as session:
                (found,) = session.execute(sql, (last, beyond)).fetchone()
            if found is None:
                return
            yield found
            last = found

    def _write(
        self, session: SqlSession, prepared: PreparedCommit, *, only_rows: bool = False
    ) -> tuple[Committed, Tip | None, bool]:
        """Write a commit, and erase what imported tombstones name.

        only_rows: return no events, for a caller who does not look at them.
        """
        if prepared.skip_known:
            prepared = without_known(session, prepared)
        committed, tip = self._insert(session, prepared, only_rows=only_rows)
        if not any(event.kind == "erased" for event in committed.events):
            return committed, tip, False
        erased = erasure.erase_as_imported(session, self._chain, self.index, committed.events)
        if erased:
            self._ask_for_scrub(session)
        return committed, None, erased

    def _insert(
        self, session: SqlSession, prepared: PreparedCommit, *, only_rows: bool
    ) -> tuple[Committed, Tip | None]:
        """Insert all rows of a commit. Return the result and the new end of the log."""
        recorded_at = now_micros()
        if prepared.given_ids:
            refuse_duplicates(session, prepared.given_ids)
        if prepared.sources:
            refuse_erased_sources(session, prepared.sources)
        events, seqs, tip = self._chain.append(
            session, prepared.events, recorded_at, prepared.expected_pos, only_rows=only_rows
        )
        artefacts = [put_artefact(session, item, recorded_at) for item in prepared.artefacts]
        if prepared.records:
            put_records(session, prepared.records)
        if prepared.lessons:
            put_lessons(session, self.index, prepared.lessons)
        searched = [
            (item, seq, recorded_at if item.at is None else item.at)
            for seq, item in zip(seqs, prepared.events, strict=True)
            if item.pieces
        ]
        if searched:
            index_events(session, self.index, searched)
        summarise(session, zip(prepared.events, seqs, strict=True), recorded_at)
        if prepared.request is not None:
            complete_request(session, prepared.request)
        retired = retire_artefacts(session, prepared.retire, recorded_at)
        restore_artefacts(session, prepared.restore)
        put_cards(session, prepared.cards)
        changed = [*(artefact.id for artefact in artefacts), *retired, *prepared.restore]
        register_artefacts(session, changed)
        if changed:
            summarise_lessons(session, changed)
        if changed or prepared.records:
            tip = None  # the register has entries behind those of the events
        return Committed(events, artefacts, retired), tip

    def _try_to_scrub(self) -> str:
        """Scrub; if it fails, return why. The mark then stays, and `health` reports it."""
        try:
            self._scrub()
        except StoreError as error:
            return str(error)
        return ""

    def read(self, query: EventQuery) -> Iterator[Event]:
        """Stream events, oldest first, up to the newest there was when reading began."""
        return map(to_event, self._stream(query, raw=False))

    def rows(self, query: EventQuery) -> Iterator[Row]:
        """Stream events as `read` does, undecoded."""
        return map(to_row, self._stream(query, raw=True))

    def _stream(self, query: EventQuery, *, raw: bool) -> Iterator[tuple[Any, ...]]:
        check_query(query)
        return stream_rows(query, self._end_for(query), self._fetch, raw=raw)

    def _end_for(self, _query: EventQuery) -> int:
        """Return the seq up to which a query may read."""
        with self._reading() as session:
            (newest,) = session.execute("SELECT MAX(seq) FROM events").fetchone()
        return newest or 0

    @abstractmethod
    def _snapshot(self) -> AbstractContextManager[SqlSession]:
        """Begin a session that sees one moment, however much it reads."""

    def register(self, after: int = 0) -> Iterator[Entry | Holding]:
        """Stream the entries of the register, then artefacts and records, as of one moment."""
        with self._snapshot() as session:
            yield from read_register(session, after)
            yield from read_holdings(session)

    def head(self, stream: str) -> tuple[int, str]:
        """Return position and hash of a stream's last event; `(0, "")` where there is none."""
        with self._reading() as session:
            head = read_head(session, stream)
        return head.pos, head.hash.hex()

    def artefact(self, kind: str, name: str, version: int | None = None) -> Artefact | None:
        """Return one version of an artefact; without a number the newest that is not retired."""
        which = "retired_at IS NULL" if version is None else "version = ?"
        params = (kind, name) if version is None else (kind, name, version)
        sql = (
            f"SELECT {ARTEFACT_COLUMNS} FROM artefacts WHERE kind = ? AND name = ? AND {which}"  # noqa: S608 - fixed words; values are bound
            " ORDER BY version DESC LIMIT 1"
        )
        with self._reading() as session:
            row = session.execute(sql, params).fetchone()
        return to_artefact(row) if row else None

    def artefacts(self, kind: str | None = None, name: str | None = None) -> Iterator[Artefact]:
        """Return every version, by kind, name and number."""
        given = {"kind": kind, "name": name}
        for row in self._paged(
            ARTEFACT_COLUMNS, "artefacts", given, ("kind", "name", "version"), (1, 2, 3)
        ):
            yield to_artefact(row)

    def cards(self, kind: str, *, retired: bool = False) -> Iterator[Card]:
        """Return every version that is in use and not erased, by name and number."""
        also = READABLE if retired else USABLE
        for row in self._paged(
            CARD_COLUMNS, "artefacts", {"kind": kind}, ("name", "version"), (1, 2), also=also
        ):
            yield to_card(row)

    def changed_artefacts(self, since: int | None = None) -> tuple[int, bool]:
        """Return how far the register goes, and whether artefacts may have changed since then."""
        with self._reading() as session:
            return changed_artefacts(session, since)

    def records(
        self,
        subject: str,
        type: str | None = None,  # noqa: A002 - the noun's own field
        ids: Sequence[str] = (),
    ) -> Iterator[Record]:
        """Return a subject's records, by type and id; of the given ids only, if any are given."""
        columns = "subject, type, id, body, from_events"
        for wanted in chunks(sorted(set(ids))) if ids else [None]:
            rows = self._paged(
                columns,
                "records",
                {"subject": subject, "type": type},
                ("type", "id"),
                (1, 2),
                wanted=wanted,
            )
            yield from map(_to_record, rows)

    def _paged(
        self,
        columns: str,
        table: str,
        given: dict[str, str | None],
        key: tuple[str, ...],
        at: tuple[int, ...],
        wanted: tuple[str, Sequence[str]] | None = None,
        also: str = "",
    ) -> Iterator[tuple[Any, ...]]:
        """Stream rows in pages, in the order of `key`, which is in the columns `at`."""
        where = [f"{column} = ?" for column, value in given.items() if value is not None]
        params = [value for value in given.values() if value is not None]
        if wanted is not None:
            marks, ids = wanted
            where.append(f"id IN ({marks})")
            params += ids
        if also:
            where.append(also)
        order = ", ".join(key)
        after: tuple[Any, ...] = ()
        while True:
            beyond = [f"({order}) > ({','.join('?' * len(key))})"] if after else []
            conditions = " AND ".join([*where, *beyond]) or "1 = 1"
            sql = f"SELECT {columns} FROM {table} WHERE {conditions} ORDER BY {order} LIMIT ?"  # noqa: S608 - fixed words; values are bound
            with self._reading() as session:
                rows = session.execute(sql, (*params, *after, CHUNK)).fetchall()
            yield from rows
            if len(rows) < CHUNK:
                return
            after = tuple(rows[-1][n] for n in at)

    def holders(self, event_ids: Sequence[str]) -> list[Held]:
        """Return the events and artefacts that state that they were made of these events."""
        with self._reading() as session:
            return list(holders.holders_of(session, event_ids))

    def claim(self, key: str, fingerprint: str, *, lease: timedelta, keep: timedelta) -> Claim:
        """Claim a request key. A claim not completed within `lease` may be taken over."""
        check_name(key, "request key")
        refuse_secret_name(key, self.redactor)
        with self._holding(request_name(key)) as session:
            return holders.claim(session, key, fingerprint, lease, keep)

    def release(self, key: str, owner: str) -> None:
        """Give up a claim without an outcome, so that the request may be tried again."""
        with self._holding(request_name(key)) as session:
            holders.release(session, key, owner)

    def erase(
        self,
        event_ids: Sequence[str],
        *,
        subjects: Sequence[str] = (),
        reason: str = "",
        dry_run: bool = False,
    ) -> Erasure:
        """Erase bodies and everything made of them, then scrub."""
        if dry_run:
            with self._reading() as session:
                return erasure.find_going(session, event_ids, subjects).erasure(is_dry_run=True)
        reason, erased = self.redactor.text(reason), Erasure()
        if event_ids or subjects:
            with self._writing() as session:
                chain, index = self._chain, self.index
                erased = erasure.erase(session, chain, index, event_ids, subjects, reason)
                self._ask_for_scrub(session)
        # The erasure is committed, whether scrubbing succeeds or not.
        problem = self._try_to_scrub()
        return msgspec.structs.replace(erased, scrubbed=not problem, scrub_problem=problem)

    def _ask_for_scrub(self, session: SqlSession) -> None:
        session.execute(
            "INSERT INTO flags(name, value) VALUES (?, ?)"
            " ON CONFLICT(name) DO UPDATE SET value = excluded.value",
            (SCRUB_PENDING, new_id()),
        )

    def _scrub_asked(self, session: SqlSession) -> str | None:
        """Return the mark of the last erasure that is not scrubbed yet."""
        sql = "SELECT value FROM flags WHERE name = ?"
        row = session.execute(sql, (SCRUB_PENDING,)).fetchone()
        return None if row is None else str(row[0])

    def _scrub_done(self, mark: str | None) -> None:
        """Remove the mark, unless another erasure has set its own since."""
        with self._writing() as session:
            sql = "DELETE FROM flags WHERE name = ? AND value = ?"
            session.execute(sql, (SCRUB_PENDING, mark or ""))


def _to_record(row: tuple[Any, ...]) -> Record:
    return Record(
        subject=row[0],
        type=row[1],
        id=row[2],
        body=msgspec.json.decode(row[3]),
        from_events=tuple(msgspec.json.decode(row[4])),
    )


def check_busy_timeout(seconds: float) -> None:
    """Raise UsageError unless the timeout is positive and at most a day."""
    if not 0 < seconds <= 86_400:
        raise UsageError(
            f"busy_timeout must be from 0 to 86400 seconds, got {seconds}",
            place="busy_timeout",
            fix="pass a number of seconds such as 30",
        )
