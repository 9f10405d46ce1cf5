"""The store in a PostgreSQL database with pgvector (extra `postgres`)."""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import lru_cache, partial
from typing import Any, cast

import msgspec

from em import deadline
from em.errors import (
    EmError,
    MissingExtra,
    NotFound,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
)
from em.log.chain import SALT_BYTES, hash_body, text_around_pos
from em.log.event import Event, EventQuery
from em.redaction.redactor import Redactor
from em.store.events import LooseChain, PageQuery, bounded, event_of
from em.store.lanes import (
    FOLDING,
    MARKS,
    NEWEST,
    WHOLE,
    crosses_streams,
    enter,
    enter_alone,
    enter_quietly,
    keys_of,
    lock_key,
    refuse_replica,
    settled,
    stream_name,
)
from em.store.migrations import pending, postgres_statements
from em.store.preparation import PreparedCommit, PreparedEvent
from em.store.protocol import SHAPE_BITS, Commit, Committed, Health, Within
from em.store.register import FOLDED_AT_ONCE, fold
from em.store.search_index import (
    MatchSigns,
    PassageRow,
    SearchIndex,
    embedder_of,
    numbers_of,
    put_vectors,
    time_conditions,
)
from em.store.session import Params, Rows, SqlSession, Transaction
from em.store.sql import SqlStore, check_busy_timeout
from em.values.times import now_micros

try:
    import psycopg
    from psycopg import errors as pg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout
except ImportError as error:
    raise MissingExtra("postgres", "a postgresql:// address") from error


class PostgresIndex(SearchIndex):
    """The search index in a PostgreSQL database: tsvector for words, pgvector for vectors.

    Postings are put in order here: with ORDER BY, the server would walk the numbers and not the
    words.
    """

    signs = MatchSigns(" | ", " & ", "'")

    def insert_passages(
        self, session: SqlSession, rows: Sequence[PassageRow], terms: Sequence[str]
    ) -> None:
        """Insert passages with their words."""
        session.executemany(
            "INSERT INTO passages VALUES"
            " (?,?,?,?,?,?,?,?, array_to_tsvector(string_to_array(?, ' ')))",
            [(*row, text) for row, text in zip(rows, terms, strict=True)],
        )

    def delete_passages(self, session: SqlSession, postings: Sequence[int]) -> None:
        """Delete passages, their words and their vectors."""
        numbers = [posting >> SHAPE_BITS for posting in postings]
        for table in ("passages", "vectors"):
            session.execute(f"DELETE FROM {table} WHERE number = ANY(?)", (numbers,))  # noqa: S608 - one of two words

    def postings_sql(self, session: SqlSession, within: Within) -> tuple[str, list[int]]:
        """Return the SQL of the postings in a scope. Its first parameter is the match."""
        when, moments = time_conditions(within)
        sql = f"SELECT (p.number << {SHAPE_BITS}) | p.shape FROM passages AS p WHERE p.words @@ ?::tsquery"  # noqa: E501, S608 - fixed words; values are bound
        bounds = list(numbers_of(session, within))
        return f"{sql} AND p.number BETWEEN ? AND ?{when}", bounds + moments

    next_scopes = ("nextval('scopes_said')", "-nextval('scopes_lessons')")

    def __init__(self, reading: Transaction, writing: Transaction, sharing: Transaction) -> None:
        super().__init__(reading, writing)
        self._sharing = sharing

    def put_vectors(self, identity: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Store vectors of length 1 by the numbers of their passages."""
        texts = {number: _vector(vector) for number, vector in vectors.items()}
        with self._sharing() as session:
            if embedder_of(session) == identity:
                put_vectors(session, identity, texts, "?::vector")
                return
        # Another embedder's vectors are deleted: nobody must add some meanwhile.
        with self._writing() as session:
            put_vectors(session, identity, texts, "?::vector")

    def nearest_of(
        self, session: SqlSession, vector: Sequence[float], within: Within, limit: int
    ) -> list[tuple[int, float]]:
        """Return numbers and similarities of the passages nearest to a vector."""
        when, moments = time_conditions(within)
        bound: list[int | str] = [*moments]
        if tags := within.tags:
            when += " AND p.words @@ ?::tsquery"
            bound.append(self.match(tags))
        join = " JOIN passages AS p ON p.number = v.number" if when else ""
        sql = (
            "SELECT v.number, -(v.vector <#> ?::vector) AS score FROM vectors AS v"  # noqa: S608 - fixed words; values are bound
            f"{join} WHERE v.number BETWEEN ? AND ?{when}"
            " ORDER BY score DESC, v.number LIMIT ?"
        )
        params = (_vector(vector), *numbers_of(session, within), *bound, limit)
        return [(row[0], row[1]) for row in session.execute(sql, params)]

    def similarities_of(
        self, session: SqlSession, vector: Sequence[float], numbers: Sequence[int]
    ) -> dict[int, float]:
        """Return how near passages are to a vector."""
        sql = "SELECT number, -(vector <#> ?::vector) FROM vectors WHERE number = ANY(?)"
        rows = session.execute(sql, (_vector(vector), list(numbers)))
        return {row[0]: row[1] for row in rows}


def _vector(vector: Sequence[float]) -> str:
    return msgspec.json.encode([float(x) for x in vector]).decode()


MAX_CONNECTIONS = 32
COPY_FROM = 50
"""The number of events from which COPY is faster than INSERT."""

FOLD_EVERY, FOLD_SECONDS = 128, 1.0
"""A commit that is the 128th since, or comes a second later, chains what was entered so far."""
PATIENCE = 1.0
"""Seconds that a reader waits for older commits that are under way, to read newer ones too."""
COUNTED = 100_000
"""Up to how many events are counted one by one."""
ATTEMPTS = 5
"""How often a commit is tried that the server ended to resolve a deadlock."""
TABLES = (
    *("events", "artefacts", "cards", "records", "requests", "derivations"),
    *("passages", "threads", "vectors", "lessons", "scopes", "owners", "flags"),
    *("register", "unchained", "tallies", "summaries", "tickets"),
)
"""The tables that hold content, or what points to it."""
LOCK_STEP = 1.0
"""Seconds to wait for a table at a time when scrubbing: others queue behind who waits."""
_OLDER_READERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND pid <> pg_backend_pid() AND age(backend_xmin) > age(%s::xid)"
)


class PostgresSession:
    """A psycopg connection that takes statements written with `?`.

    side_by_side: whether others may commit meanwhile. Not while tables are migrated.
    """

    def __init__(
        self, connection: "psycopg.Connection[tuple[Any, ...]]", *, side_by_side: bool = True
    ) -> None:
        self.connection = connection
        self.side_by_side = side_by_side

    def execute(self, sql: str, params: Params = ()) -> Rows:
        """Run one statement."""
        return self.connection.execute(_translate(sql), params)

    def executemany(self, sql: str, rows: Iterable[Params]) -> None:
        """Run one statement for each row."""
        each = list(rows)
        if len(each) == 1:
            self.connection.execute(_translate(sql), each[0])
        else:
            self.connection.cursor().executemany(_translate(sql), each)


@lru_cache(maxsize=512)
def _translate(sql: str) -> bytes:
    return sql.replace("?", "%s").encode()


_ERRORS: tuple[tuple[tuple[type[Exception], ...], type[StoreError], str, str], ...] = (
    (
        (PoolTimeout,),
        StoreBusy,
        f"no connection was free: the server does not answer, or all {MAX_CONNECTIONS} are in use",
        "try again, or raise EM_BUSY_TIMEOUT",
    ),
    (
        (pg.LockNotAvailable,),
        StoreBusy,
        "another process has locked the log for writing for too long",
        "try again, or raise EM_BUSY_TIMEOUT",
    ),
    (
        (pg.ReadOnlySqlTransaction, pg.InsufficientPrivilege),
        StoreReadOnly,
        "the server refused to write: {}",
        "connect to the primary, as a user who may write",
    ),
    (
        (pg.DiskFull,),
        StoreFull,
        "the server's disk is full; nothing was changed",
        "free some space there, then try again",
    ),
    (
        (pg.DeadlockDetected,),
        StoreBusy,
        "the server ended the commit, because it and another waited for each other",
        "try again",
    ),
    ((pg.QueryCanceled,), StoreBusy, "the server canceled the query: {}", ""),
)

_APPEND = (
    "SELECT * FROM em_append(%s,%s,%s,%s,%s,%s,%s,%s::int,%s::bigint,%s::bigint,%s,%s,%s,%s,%s)"
)
LONGEST_STATEMENT = 86_400.0
"""Seconds of a deadline from which no limit is set."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection, with the seconds that its statements may take; None for any time."""

    seconds: float | None = None

    def limit(self, left: float | None) -> None:
        """Let the server end statements after the time left.

        Setting it costs a round trip, so about the same limit is left as it is.
        """
        now = self.seconds
        if left is None or left > LONGEST_STATEMENT:
            if now is not None:
                self.execute("RESET statement_timeout")
                self.seconds = None
            return
        left = max(left, 0.001)
        if now is None or not 0.9 * left <= now <= 1.2 * left + 0.05:
            milliseconds = str(int(left * 1000))
            self.execute("SELECT set_config('statement_timeout', %s, false)", (milliseconds,))
            self.seconds = left


POLL = 0.25
"""Seconds after which a thread that waits for a connection checks whether connecting failed."""
# em reports failed connections itself: keep the pool from printing them too.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


_opening = threading.Lock()
"""Held while a forked process opens its own pool, so that its threads open one."""
_settling = threading.Lock()
"""Held while a store notes how far the log is settled."""


def _renew_locks() -> None:
    global _opening, _settling
    _opening, _settling = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_renew_locks)


class ServerConnections:
    """The connections to one database: a pool, and a new pool in each forked process.

    configure: sets up a new connection.
    timeout: seconds to wait for a connection.
    """

    def __init__(self, url: str, configure: Callable[[Connection], None], timeout: float) -> None:
        self._url = url
        self._configure = configure
        self._timeout = timeout
        self._options: dict[str, Any] = {
            "autocommit": True,
            "connect_timeout": max(2, int(timeout)),
            "application_name": "em",
        }
        self._opened = os.getpid(), self._open()

    def _open(self) -> "ConnectionPool[Connection]":
        self._failed_at = 0.0
        return ConnectionPool(
            self._url,
            connection_class=Connection,
            kwargs=self._options,
            min_size=0,
            max_size=MAX_CONNECTIONS,
            configure=self._configure,
            # Fail at once; the next thread that needs a connection tries again.
            reconnect_timeout=0,
            reconnect_failed=self._note_failure,
            open=True,
        )

    def _note_failure(self, _pool: object) -> None:
        self._failed_at = time.monotonic()

    @contextmanager
    def connection(self, *, is_limited: bool = False) -> Iterator[Connection]:
        """Lend this thread a connection for as long as the block lasts.

        is_limited: its statements end with the deadline of what runs here. A write never does.
        """
        pool = self._pool_of_this_process()
        connection = self._take(pool)
        limit = deadline.current() if is_limited else None
        try:
            connection.limit(None if limit is None else limit.at - time.monotonic())
            yield connection
        finally:
            pool.putconn(connection)

    def _pool_of_this_process(self) -> "ConnectionPool[Connection]":
        pid, pool = self._opened
        if pid == os.getpid():
            return pool
        with _opening:
            pid, pool = self._opened
            if pid != os.getpid():
                # A forked process must not touch the parent's connections, not even to close them.
                pool._closed = True
                pool = self._open()
                self._opened = os.getpid(), pool
        return pool

    def _take(self, pool: "ConnectionPool[Connection]") -> Connection:
        began = time.monotonic()
        while True:
            try:
                return pool.getconn(POLL)
            except PoolTimeout:
                is_late = time.monotonic() - began > self._timeout
                if self._failed_at >= began:
                    # Connect here to raise the reason, which the pool does not report.
                    try:
                        psycopg.connect(self._url, **self._options).close()
                    except pg.TooManyConnections:
                        # A server that has no room left for one more: wait for one of ours.
                        if is_late or not pool.get_stats().get("pool_size"):
                            raise
                if is_late:
                    raise

    def drop_idle(self) -> None:
        """Replace the idle connections by new ones."""
        pid, pool = self._opened
        if pid == os.getpid():
            pool.drain()

    def close(self) -> None:
        """Close the idle connections now, and the others when they are returned."""
        pid, pool = self._opened
        if pid == os.getpid():
            pool.close()


class PostgresStore(SqlStore):
    """A log in a PostgreSQL database, in the first schema of the search path.

    Commits to different streams run side by side. `seq` has gaps, and a commit may become visible
    after one with greater numbers. So a reader across streams ends where nothing can still appear
    before: see `em.store.lanes`.
    """

    _driver_error = psycopg.Error
    _inserts_at_once = True

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        busy_timeout: float = 30.0,
        synchronous: str = "normal",
        redactor: Redactor | None = None,
    ) -> None:
        index = PostgresIndex(self._reading, self._writing, self._sharing)
        super().__init__(index, redactor)
        self._settled = 0
        self._unfolded = 0
        self._folded_at = time.monotonic()
        self._url = url
        self._place = describe(url)
        check_busy_timeout(busy_timeout)
        self._busy_timeout = busy_timeout
        # PostgreSQL flushes each commit by default; `normal` leaves the server's setting alone.
        self._synchronous = synchronous
        self._pool = ServerConnections(url, self._configure, busy_timeout)
        try:
            self._migrate(create=create)
            self.index.bring_up_to_date()
        except BaseException:
            self._pool.close()
            raise

    @property
    def location(self) -> str:
        """The address, without its password."""
        return self._place

    def _configure(self, connection: Connection) -> None:
        # A stricter level would take the snapshot before the locks of a commit.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        settings = {
            # The same for statements that are transactions of their own.
            "default_transaction_isolation": "read committed",
            # Every wait for a lock is bounded.
            "lock_timeout": str(max(1, int(self._busy_timeout * 1000))),
            # A frozen or disconnected process that holds locks must not block others for long.
            "idle_in_transaction_session_timeout": str(max(1, int(self._busy_timeout * 2000))),
        }
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))
        if self._synchronous == "full":
            connection.execute("SET synchronous_commit = on")

    def _explain(self, error: Exception) -> EmError:
        reason = _first_line(error)
        if isinstance(error, PoolClosed):
            return StoreError("this store was closed", fix="open it again")
        if isinstance(error, psycopg.OperationalError) and _is_connection_error(error):
            self._pool.drop_idle()
            return StoreUnreachable(
                f"can't reach the server: {reason}",
                place=self._place,
                fix="check the address and that the server is running",
            )
        limit = deadline.current()
        if isinstance(error, pg.QueryCanceled) and limit is not None:
            return limit.error()
        for drivers, kind, message, fix in _ERRORS:
            if isinstance(error, drivers):
                return kind(message.format(reason), place=self._place, fix=fix)
        return StoreError(f"PostgreSQL says: {reason}", place=self._place)

    @contextmanager
    def _reading(self, *, is_limited: bool = True) -> Iterator["PostgresSession"]:
        with self._translated(), self._pool.connection(is_limited=is_limited) as connection:
            yield PostgresSession(connection)

    @contextmanager
    def _snapshot(self) -> Iterator[SqlSession]:
        with self._reading(is_limited=False) as session, session.connection.transaction():
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield session

    def _writing(self) -> AbstractContextManager[SqlSession]:
        return self._transaction(enter_alone)

    def _sharing(self) -> AbstractContextManager[SqlSession]:
        return self._transaction(enter_quietly)

    @contextmanager
    def _transaction(self, enter: Callable[[SqlSession], None]) -> Iterator[SqlSession]:
        with self._reading(is_limited=False) as session, session.connection.transaction():
            enter(session)
            yield session

    @contextmanager
    def _holding(self, name: str) -> Iterator[SqlSession]:
        with self._sharing() as session:
            session.execute("SELECT pg_advisory_xact_lock(?)", (lock_key(name),))
            yield session

    def _committing(self, commits: Sequence[PreparedCommit]) -> AbstractContextManager[SqlSession]:
        keys = keys_of(commits)
        return self._writing() if keys is None else self._transaction(partial(enter, keys=keys))

    def commit(self, commit: Commit) -> Committed:
        """Write a commit in one transaction."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                committed = super().commit(commit)
            except StoreBusy as error:
                if attempt == ATTEMPTS or not isinstance(error.__cause__, pg.DeadlockDetected):
                    raise
            else:
                break
        self._note_commit()
        return committed

    def commit_all(self, commits: Iterable[Commit]) -> int:
        """Write many commits in one transaction, and return how many events they had."""
        count = super().commit_all(commits)
        self._note_commit()
        return count

    def _note_commit(self) -> None:
        """Chain what commits entered, if it is time."""
        self._unfolded += 1
        if self._unfolded >= FOLD_EVERY or time.monotonic() > self._folded_at + FOLD_SECONDS:
            self.chain_register()

    def chain_register(self) -> None:
        """Chain what commits entered into the register, unless another process is at it."""
        self._unfolded, self._folded_at = 0, time.monotonic()
        # It is not lost if this fails: the next one does it.
        with suppress(StoreError), self._reading(is_limited=False) as session:
            while _fold_some(session) == FOLDED_AT_ONCE:
                pass

    def _new_chain(self) -> LooseChain:
        return LooseChain(self._insert_events)

    def _insert_at_once(
        self, event: PreparedEvent, expected: Mapping[str, int], *, only_rows: bool
    ) -> list[Event] | None:
        stream, text = event.stream, event.text
        if text is None or expected.keys() - {stream}:
            return None
        salt, at = os.urandom(SALT_BYTES), now_micros()
        named = (event.id, stream, event.subject, event.kind, event.v, at, at)
        content = (text.decode(), salt, hash_body(salt, text))
        where = (WHOLE, lock_key(stream_name(stream)), expected.get(stream))
        params = (*where, *named, *content, *text_around_pos(*named))
        with self._translated(), self._pool.connection() as connection:
            row = connection.execute(_APPEND, params, prepare=True).fetchone()
        seq, pos, own = row or (None, 0, b"")
        if seq is None:
            return None  # the full commit says why
        if only_rows:
            return []
        start = (seq, event.id, stream, pos, *named[2:])
        return [event_of(event, (*start, *content, own))]

    def _end_for(self, query: EventQuery) -> int:
        patience = time.monotonic() + PATIENCE
        pause = 0.001
        while True:
            with self._translated(), self._pool.connection(is_limited=True) as connection:
                # Two statements, in this order: each sees what is committed when it begins.
                found = connection.execute(f"{NEWEST}; {MARKS}", prepare=False)
                ((newest, is_replica),) = found.fetchall()
                found.nextset()
                end = settled(newest, (row[0] for row in found.fetchall()))
            if not crosses_streams(query):
                return int(newest)
            if is_replica:
                refuse_replica(query, self._place)
                return int(newest)
            with _settling:
                # What was settled once stays so, though a mark may have been set late.
                end = self._settled = max(self._settled, end)
            if end >= newest or time.monotonic() > patience:
                return min(int(newest), end)
            time.sleep(pause)
            pause = min(pause * 2, 0.05)

    def _migrate(self, *, create: bool) -> None:
        with self._reading() as session:
            current = _schema(session)
        if not pending(current, self._place):
            return
        if current == 0 and not create:
            raise NotFound(
                "there is no log in this database",
                place=self._place,
                fix="append something first, or name another with --db or EM_DB",
            )
        with self._writing() as session:
            assert isinstance(session, PostgresSession)
            session.side_by_side = False
            session.execute(
                "CREATE TABLE IF NOT EXISTS em_schema("
                "number INTEGER PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())"
            )
            for step in pending(_schema(session), self._place):
                for statement in postgres_statements(step):
                    session.execute(statement)
                session.execute("INSERT INTO em_schema(number) VALUES (?)", (step.number,))
            if current == 0:
                self._name_database(session)
        if current == 0:
            self.database.note_as_own()

    def _fetch(self, page: PageQuery, max_bytes: int) -> list[tuple[Any, ...]]:
        with self._translated(), self._pool.connection(is_limited=True) as connection:
            cursor = connection.cursor()
            rows = cursor.stream(_translate(page.sql), page.params, size=500)
            with closing(cast("Generator[tuple[Any, ...]]", rows)):
                return bounded(rows, max_bytes)

    def _insert_events(self, session: SqlSession, rows: Sequence[tuple[Any, ...]]) -> None:
        if len(rows) < COPY_FROM:
            marks = ",".join("?" * len(rows[0]))
            session.executemany(f"INSERT INTO events VALUES ({marks})", rows)  # noqa: S608 - question marks
            return
        assert isinstance(session, PostgresSession)
        with session.connection.cursor().copy("COPY events FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def _scrub(self) -> None:
        """Write the tables and their indexes anew, once no session can see the erased rows.

        Vacuuming alone frees their space and leaves their bytes in the pages. Each table is locked
        while it is copied.
        """
        until = time.monotonic() + self._busy_timeout
        with self._translated(), self._pool.connection() as connection:
            session = PostgresSession(connection)
            mark = self._scrub_asked(session)
            self._await_readers(connection, until)
            try:
                for table in TABLES:
                    self._rewrite(connection, table, until)
            finally:
                self._configure(connection)
        self._scrub_done(mark)

    def _await_readers(self, connection: Connection, until: float) -> None:
        newer = connection.execute("SELECT pg_current_xact_id()::xid::text").fetchone()
        assert newer is not None
        while connection.execute(_OLDER_READERS, newer).fetchone() != (0,):
            if time.monotonic() > until:
                raise self._unfinished("another session is still reading rows of the time before")
            time.sleep(0.05)

    def _rewrite(self, connection: Connection, table: str, until: float) -> None:
        """Write one table anew; raise StoreBusy if that is not possible in time."""
        while True:
            left = max(0.001, min(LOCK_STEP, until - time.monotonic()))
            try:
                problem = rewrite_table(connection, table, left)
            except pg.LockNotAvailable:
                problem = f"another session is using the table {table}"
            if not problem:
                return
            if time.monotonic() > until:
                raise self._unfinished(problem)
            time.sleep(0.05)

    def _unfinished(self, problem: str) -> StoreBusy:
        fix = "once that is settled, run `em forget --finish`"
        return StoreBusy(f"erased, not yet scrubbed: {problem}", place=self._place, fix=fix)

    def health(self, *, deep: bool = False) -> Health:
        """Report the condition of the store. PostgreSQL checks its pages: `deep` adds nothing."""
        with self._reading() as session:
            settings = {
                name: str(session.execute(f"SHOW {name}").fetchone()[0])
                for name in ("synchronous_commit", "lock_timeout", "server_encoding")
            }
            (version,) = session.execute("SHOW server_version").fetchone()
            (size,) = session.execute("SELECT pg_database_size(current_database())").fetchone()
            events = _count_events(session)
            waiting = self._scrub_asked(session) is not None
            schema = _schema(session)
        encoding = settings["server_encoding"]
        problems = (
            [] if encoding == "UTF8" else [f"the server's encoding must be UTF8, it is {encoding}"]
        )
        return Health(
            backend="postgresql",
            location=self._place,
            version=version,
            schema=schema,
            events=events,
            size_bytes=size,
            scrub_pending=waiting,
            settings=settings,
            problems=problems,
        )

    def close(self) -> None:
        """Close every connection."""
        if self._unfolded:
            self.chain_register()
        self._pool.close()


def _fold_some(session: PostgresSession) -> int:
    """Chain some of what is to be entered. Return how much, 0 if another process is at it."""
    with session.connection.transaction():
        (mine,) = session.execute("SELECT pg_try_advisory_xact_lock(?)", (FOLDING,)).fetchone()
        if not mine:
            return 0
        # After a crash of the server it is done again: no need to wait for the disk.
        session.execute("SET LOCAL synchronous_commit = off")
        return fold(session)


def describe(url: str) -> str:
    """Return an address as it may be shown: without its password."""
    unclear = StoreUnreachable(
        # The driver's own message may quote the password.
        "the PostgreSQL address can't be parsed",
        place="db",
        fix="write postgresql://user:password@host:5432/database; percent-encode / and @ in it",
    )
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise unclear from None
    if "@" in str(parts.get("dbname", "")) or "@" in str(parts.get("host", "")):
        raise unclear
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"


def rewrite_table(connection: Connection, table: str, lock_seconds: float) -> str:
    """Write a table and its indexes into new files, and return why old rows are left, if any are.

    The server only warns if it may not rewrite a table, and copies rows that somebody may still
    see. So the proof is a new file, and the number of such rows, which it tells in its notice.
    """
    invisible: list[int] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        # "0 dead row versions cannot be removed yet", in the language of the server.
        found = re.search(r"\d+", notice.message_detail or "")
        invisible.extend([int(found[0])] if found else [])

    file = "SELECT pg_relation_filenode(%s)"
    before = connection.execute(file, (table,)).fetchone()
    milliseconds = str(max(1, int(lock_seconds * 1000)))
    connection.execute("SELECT set_config('lock_timeout', %s, false)", (milliseconds,))
    connection.add_notice_handler(note)
    try:
        connection.execute(f"VACUUM (FULL, VERBOSE) {table}".encode())
    finally:
        connection.remove_notice_handler(note)
    if connection.execute(file, (table,)).fetchone() == before:
        return f"only the owner of the table {table} may rewrite it (VACUUM FULL)"
    if not invisible or invisible[-1]:
        return f"another session may still read rows of {table} of the time before"
    return ""


def _schema(session: SqlSession) -> int:
    # Look only where tables are created: another schema on the path may have a log too.
    sql = "SELECT to_regclass(quote_ident(current_schema()) || '.em_schema')"
    if session.execute(sql).fetchone()[0] is None:
        return 0
    (number,) = session.execute("SELECT COALESCE(MAX(number), 0) FROM em_schema").fetchone()
    return int(number)


def _count_events(session: SqlSession) -> int:
    """Count the events; of very many the server has an estimate."""
    sql = "SELECT COUNT(*) FROM (SELECT 1 FROM events LIMIT ?) AS counted"
    (count,) = session.execute(sql, (COUNTED,)).fetchone()
    if count == COUNTED:
        sql = "SELECT reltuples::bigint FROM pg_class WHERE oid = 'events'::regclass"
        (estimate,) = session.execute(sql).fetchone()
        return max(int(count), int(estimate))
    return int(count)


def _is_connection_error(error: psycopg.Error) -> bool:
    if isinstance(error, PoolTimeout):
        return False
    state = error.sqlstate or ""
    return not state or state.startswith(("08", "57P"))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
