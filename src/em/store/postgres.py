"""The store in a PostgreSQL database with pgvector (extra `postgres`)."""

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from typing import Any, cast

import msgspec

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
from em.redaction.redactor import Redactor
from em.store.events import FetchPage, Page, bounded
from em.store.migrations import pending
from em.store.protocol import SHAPE_BITS, Health, Within
from em.store.search_index import PassageRow, numbers_of, time_conditions
from em.store.session import Params, Rows, Session
from em.store.sql import SqlIndex, SqlStore, check_busy_timeout
from em.store.vectors import embedder_of, put_vectors

try:
    import psycopg
    from psycopg import errors as pg
    from psycopg.conninfo import conninfo_to_dict
    from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout
except ImportError as error:
    raise MissingExtra("postgres", "a postgresql:// address") from error


class PostgresIndex(SqlIndex):
    """The search index in a PostgreSQL database: tsvector for words, pgvector for vectors."""

    def insert_passages(
        self, session: Session, rows: Sequence[PassageRow], terms: Sequence[str]
    ) -> None:
        """Insert passages with their words."""
        session.executemany(
            "INSERT INTO passages VALUES"
            " (?,?,?,?,?,?,?,?, array_to_tsvector(string_to_array(?, ' ')))",
            [(*row, text) for row, text in zip(rows, terms, strict=True)],
        )

    def delete_passages(self, session: Session, postings: Sequence[int]) -> None:
        """Delete passages, their words and their vectors."""
        numbers = [posting >> SHAPE_BITS for posting in postings]
        for table in ("passages", "vectors"):
            session.execute(f"DELETE FROM {table} WHERE number = ANY(?)", (numbers,))  # noqa: S608 - one of two words

    def find(
        self,
        groups: Sequence[Sequence[str]],
        within: Within,
        limit: int,
        *,
        beside: Sequence[str] = (),
    ) -> list[list[int]]:
        """Return for each group of words the postings of the passages that have one of them."""
        also = (f" & ({_any(beside)})" if beside else "") + _all(within.tags)
        with self._reading() as session:
            sql, params = _words_sql(session, within)
            # Sort here: with ORDER BY, the server would walk the numbers instead of the words.
            return [
                sorted(
                    (
                        row[0]
                        for row in session.execute(sql, (f"({_any(group)}){also}", *params, limit))
                    ),
                    reverse=True,
                )
                for group in groups
            ]

    def count(self, within: Within, words: Sequence[str]) -> int:
        """Count the passages that have one of the words."""
        with self._reading() as session:
            sql, params = _words_sql(session, within)
            counted = f"SELECT count(*) FROM ({sql}) AS found"  # noqa: S608 - fixed words; values are bound
            match = f"({_any(words)}){_all(within.tags)}"
            return int(session.execute(counted, (match, *params, None)).fetchone()[0])

    def put_vectors(self, identity: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Store vectors of length 1 by the numbers of their passages."""
        texts = {number: _vector(vector) for number, vector in vectors.items()}
        with self._writing() as session:
            put_vectors(session, identity, texts, "?::vector")

    def nearest(
        self, identity: str, vector: Sequence[float], within: Within, limit: int
    ) -> list[tuple[int, float]]:
        """Return numbers and similarities of the passages nearest to this embedder's vector."""
        when, moments = time_conditions(within)
        bound: list[int | str] = [*moments]
        if tags := within.tags:
            when += " AND p.words @@ ?::tsquery"
            bound.append(_all(tags).removeprefix(" & "))
        join = " JOIN passages AS p ON p.number = v.number" if when else ""
        sql = (
            "SELECT v.number, -(v.vector <#> ?::vector) AS score FROM vectors AS v"  # noqa: S608 - fixed words; values are bound
            f"{join} WHERE v.number BETWEEN ? AND ?{when}"
            " ORDER BY score DESC, v.number LIMIT ?"
        )
        with self._reading() as session:
            if embedder_of(session) != identity:
                return []
            bounds = numbers_of(session, within)
            params = (_vector(vector), *bounds, *bound, limit)
            return [(row[0], row[1]) for row in session.execute(sql, params)]

    def similarities(
        self, identity: str, vector: Sequence[float], numbers: Sequence[int]
    ) -> dict[int, float]:
        """Return how near passages are to a vector. Passages without a vector are skipped."""
        sql = "SELECT number, -(vector <#> ?::vector) FROM vectors WHERE number = ANY(?)"
        with self._reading() as session:
            if embedder_of(session) != identity:
                return {}
            rows = session.execute(sql, (_vector(vector), list(numbers)))
            return {row[0]: row[1] for row in rows}


def _vector(vector: Sequence[float]) -> str:
    return msgspec.json.encode([float(x) for x in vector]).decode()


def _words_sql(session: Session, within: Within) -> tuple[str, list[int]]:
    """Return the SQL for the postings of a match in a scope. Its first parameter is the match."""
    when, moments = time_conditions(within)
    sql = f"SELECT (p.number << {SHAPE_BITS}) | p.shape FROM passages AS p WHERE p.words @@ ?::tsquery"  # noqa: E501, S608 - fixed words; values are bound
    bounds = list(numbers_of(session, within))
    return f"{sql} AND p.number BETWEEN ? AND ?{when} LIMIT ?", bounds + moments


def _any(words: Sequence[str]) -> str:
    """Match any of the words. Each is quoted, so that none is an operator."""
    return " | ".join(f"'{word}'" for word in words)


def _all(tags: Sequence[str]) -> str:
    """Match all of the tags too."""
    return "".join(f" & '{tag}'" for tag in tags)


MAX_CONNECTIONS = 16
COPY_FROM = 50
"""The number of events from which COPY is faster than INSERT."""

_WRITE_LOCK = int.from_bytes(b"em-write")
TABLES = (
    *("events", "artefacts", "cards", "records", "requests", "derivations"),
    *("passages", "threads", "vectors", "lessons", "scopes", "owners", "flags"),
    *("register", "tallies"),
)
"""The tables that hold content, or what points to it."""
LOCK_STEP = 1.0
"""Seconds to wait for a table at a time when scrubbing: others queue behind who waits."""
_SAMPLES = "pg_catalog.pg_statistic"
SAMPLES_PENDING = "samples_pending"
"""The flag with the file of the server's samples that has values of em's columns."""
_OLDER_READERS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    " AND pid <> pg_backend_pid() AND age(backend_xmin) > age(%s::xid)"
)


class PostgresSession:
    """A psycopg connection that takes statements written with `?`."""

    def __init__(self, connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
        self.connection = connection

    def execute(self, sql: str, params: Params = ()) -> Rows:
        """Run one statement."""
        return self.connection.execute(_translate(sql), params)

    def executemany(self, sql: str, rows: Iterable[Params]) -> None:
        """Run one statement for each row."""
        self.connection.cursor().executemany(_translate(sql), list(rows))


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
    ((pg.QueryCanceled,), StoreBusy, "the server canceled the query: {}", ""),
)

Connection = psycopg.Connection[tuple[Any, ...]]
POLL = 0.25
"""Seconds after which a thread that waits for a connection checks whether connecting failed."""
# em reports failed connections itself: keep the pool from printing them too.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())


_opening = threading.Lock()
"""Held while a forked process opens its own pool, so that its threads open one."""


def _renew_lock() -> None:
    global _opening  # noqa: PLW0603 - a child must not wait for a thread that only its parent has
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


class Connections:
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
    def connection(self) -> Iterator[Connection]:
        """Lend this thread a connection for as long as the block lasts."""
        pool = self._pool_of_this_process()
        connection = self._take(pool)
        try:
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
                if self._failed_at >= began:
                    # Connect here to raise the reason, which the pool does not report.
                    psycopg.connect(self._url, **self._options).close()
                if time.monotonic() - began > self._timeout:
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

    An advisory lock orders all commits. Each takes its `seq` numbers and commits under the lock, so
    a reader that follows the log by `seq` skips no late commit, and there are no gaps.
    """

    _driver_error = psycopg.Error

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        busy_timeout: float = 30.0,
        synchronous: str = "normal",
        redactor: Redactor | None = None,
    ) -> None:
        super().__init__(PostgresIndex(self._reading, self._writing), redactor)
        self._url = url
        self._place = describe(url)
        check_busy_timeout(busy_timeout)
        self._busy_timeout = busy_timeout
        # PostgreSQL flushes each commit by default; `normal` leaves the server's setting alone.
        self._synchronous = synchronous
        self._pool = Connections(url, self._configure, busy_timeout)
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
        # A stricter level would take the snapshot before the lock that orders commits.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        # Set it for the session, so that every wait for a lock is bounded.
        milliseconds = str(max(1, int(self._busy_timeout * 1000)))
        connection.execute("SELECT set_config('lock_timeout', %s, false)", (milliseconds,))
        # A frozen or disconnected process that holds the lock must not block all others.
        idle = str(max(1, int(self._busy_timeout * 2000)))
        connection.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, false)", (idle,)
        )
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
        for drivers, kind, message, fix in _ERRORS:
            if isinstance(error, drivers):
                return kind(message.format(reason), place=self._place, fix=fix)
        return StoreError(f"PostgreSQL says: {reason}", place=self._place)

    @contextmanager
    def _reading(self) -> Iterator["PostgresSession"]:
        with self._translated(), self._pool.connection() as connection:
            yield PostgresSession(connection)

    @contextmanager
    def _snapshot(self) -> Iterator[Session]:
        with self._reading() as session, session.connection.transaction():
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield session

    @contextmanager
    def _writing(self) -> Iterator[Session]:
        with (
            self._translated(),
            self._pool.connection() as connection,
            connection.transaction(),
        ):
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_WRITE_LOCK,))
            yield PostgresSession(connection)

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
            session.execute(
                "CREATE TABLE IF NOT EXISTS em_schema("
                "number INTEGER PRIMARY KEY, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())"
            )
            for step in pending(_schema(session), self._place):
                for statement in step.postgres.split(";\n"):
                    if statement.strip():
                        session.execute(statement)
                step.then(session)
                session.execute("INSERT INTO em_schema(number) VALUES (?)", (step.number,))
        if current == 0:
            self.database.note_as_own()

    @property
    def _fetch_page(self) -> FetchPage:
        return self._fetch

    def _fetch(self, page: Page, max_bytes: int) -> list[tuple[Any, ...]]:
        with self._translated(), self._pool.connection() as connection:
            cursor = connection.cursor()
            rows = cursor.stream(_translate(page.sql), page.params, size=500)
            with closing(cast("Generator[tuple[Any, ...]]", rows)):
                return bounded(rows, max_bytes)

    def _insert_events(self, session: Session, rows: Sequence[tuple[Any, ...]]) -> None:
        if len(rows) < COPY_FROM:
            marks = ",".join("?" * len(rows[0]))
            session.executemany(f"INSERT INTO events VALUES ({marks})", rows)  # noqa: S608 - question marks
            return
        assert isinstance(session, PostgresSession)
        with session.connection.cursor().copy("COPY events FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def scrub(self) -> None:
        """Write the tables and their indexes anew, once no session can see the erased rows.

        Vacuuming alone frees their space and leaves their bytes in the pages. Each table is locked
        while it is copied.
        """
        deadline = time.monotonic() + self._busy_timeout
        with self._translated(), self._pool.connection() as connection:
            session = PostgresSession(connection)
            mark = self._scrub_asked(session)
            self._await_readers(connection, deadline)
            try:
                for table in TABLES:
                    self._rewrite(connection, table, deadline)
                self._drop_samples(session, deadline)
            finally:
                self._configure(connection)
        self._scrub_done(mark)

    def _await_readers(self, connection: Connection, deadline: float) -> None:
        newer = connection.execute("SELECT pg_current_xact_id()::xid::text").fetchone()
        assert newer is not None
        while connection.execute(_OLDER_READERS, newer).fetchone() != (0,):
            if time.monotonic() > deadline:
                raise self._unfinished("another session is still reading rows of the time before")
            time.sleep(0.05)

    def _rewrite(self, connection: Connection, table: str, deadline: float) -> None:
        """Write one table anew; raise StoreBusy if that is not possible before the deadline."""
        while True:
            left = max(0.001, min(LOCK_STEP, deadline - time.monotonic()))
            try:
                problem = rewrite_table(connection, table, left)
            except pg.LockNotAvailable:
                problem = f"another session is using the table {table}"
            if not problem:
                return
            if time.monotonic() > deadline:
                raise self._unfinished(problem)
            time.sleep(0.05)

    def _drop_samples(self, session: PostgresSession, deadline: float) -> None:
        """Write the server's samples anew, if it took some of content before migration 5."""
        row = session.execute(
            "SELECT value = pg_relation_filenode(?)::text FROM flags WHERE name = ?",
            (_SAMPLES, SAMPLES_PENDING),
        ).fetchone()
        if row is None:
            return
        if row[0]:
            self._rewrite(session.connection, _SAMPLES, deadline)
        session.execute("DELETE FROM flags WHERE name = ?", (SAMPLES_PENDING,))

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
            (events,) = session.execute("SELECT COALESCE(MAX(seq), 0) FROM events").fetchone()
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
        self._pool.close()


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


def _schema(session: Session) -> int:
    # Look only where tables are created: another schema on the path may have a log too.
    sql = "SELECT to_regclass(quote_ident(current_schema()) || '.em_schema')"
    if session.execute(sql).fetchone()[0] is None:
        return 0
    (number,) = session.execute("SELECT COALESCE(MAX(number), 0) FROM em_schema").fetchone()
    return int(number)


def _is_connection_error(error: psycopg.Error) -> bool:
    if isinstance(error, PoolTimeout):
        return False
    state = error.sqlstate or ""
    return not state or state.startswith(("08", "57P"))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
