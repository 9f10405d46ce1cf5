"""The queue's database: a SQLite file next to the log, or a schema in the log's own PostgreSQL.

It has the jobs, the running workers, their slots at providers, and how long the items of jobs take.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from em.errors import StoreUnreachable, UsageError
from em.store.session import SqlSession
from em.store.sqlite import FileConnection, FileConnections, enter_wal
from em.values.files import is_unicode

if TYPE_CHECKING:
    import psycopg

SCHEMA = "em_queue"
"""The schema of the tables on PostgreSQL."""
BUSY = 30.0
"""Seconds to wait for another writer."""

TABLES = """
CREATE TABLE jobs(
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, queue TEXT NOT NULL, worker TEXT,
    deaths INTEGER NOT NULL DEFAULT 0, outcome TEXT, ended_at BIGINT, key TEXT UNIQUE,
    part_of TEXT);
CREATE INDEX jobs_by_outcome ON jobs(outcome, id);
CREATE INDEX jobs_by_kind ON jobs(kind, id);
CREATE INDEX jobs_by_part ON jobs(part_of) WHERE part_of IS NOT NULL;
CREATE INDEX jobs_free ON jobs(queue, id) WHERE outcome IS NULL AND worker IS NULL;
CREATE INDEX jobs_taken ON jobs(worker) WHERE outcome IS NULL AND worker IS NOT NULL;
CREATE TABLE workers(id TEXT PRIMARY KEY, beat BIGINT NOT NULL, place TEXT NOT NULL);
CREATE TABLE slots(
    provider TEXT NOT NULL, slot INTEGER NOT NULL, worker TEXT NOT NULL, held TEXT NOT NULL UNIQUE,
    PRIMARY KEY(provider, slot));
CREATE TABLE rates(kind TEXT PRIMARY KEY, seconds DOUBLE PRECISION NOT NULL)
"""

ADOPTION = """
INSERT INTO jobs(id, kind, queue, deaths, outcome, ended_at, key, part_of)
    SELECT id, kind, queue, deaths, outcome, (
        SELECT completed_at * 1000 FROM workflow_status WHERE workflow_uuid = em_jobs.id
    ), key, part_of FROM em_jobs;
INSERT INTO rates SELECT kind, seconds FROM em_rates;
DROP TABLE em_jobs; DROP TABLE em_rates; DROP TABLE em_slots; DROP TABLE em_workers
"""
"""Takes over the jobs of a queue that DBOS ran. What was under way is queued again."""


class Database:
    """The queue's database. `make` creates its tables."""

    def __init__(self, address: str) -> None:
        self.is_postgres = address.startswith(("postgresql://", "postgres://"))
        self.path = None if self.is_postgres else _beside(address)
        if self.is_postgres:
            import psycopg

            from em.store import postgres  # first: it says which extra is missing

            self._driver_error: type[Exception] = psycopg.Error
            self._pool: Any = postgres.ServerConnections(address, _prepare_postgres, BUSY)
            self._session: Callable[[Any], SqlSession] = postgres.PostgresSession
        else:
            self._driver_error = sqlite3.Error
            self._pool = FileConnections(self._connect, _is_usable, lambda: None, limit=16)
            self._session = lambda connection: connection

    def _connect(self) -> FileConnection:
        connection = sqlite3.connect(
            str(self.path),
            timeout=BUSY,
            isolation_level=None,
            check_same_thread=False,
            factory=FileConnection,
        )
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    @contextmanager
    def reading(self) -> Iterator[SqlSession]:
        """Begin a session without a transaction. Raise StoreUnreachable for the driver's errors."""
        with self._translated(), self._pool.connection() as connection:
            yield self._session(connection)

    @contextmanager
    def writing(self, alone: str = "") -> Iterator[SqlSession]:
        """Begin a transaction. Those with the same name in `alone` run one after the other."""
        with self.reading() as session:
            # On SQLite there is only one writer at a time anyway.
            session.execute("BEGIN" if self.is_postgres else "BEGIN IMMEDIATE")
            try:
                if alone and self.is_postgres:
                    session.execute("SELECT pg_advisory_xact_lock(hashtext(?))", (alone,))
                yield session
            except BaseException:
                with suppress(self._driver_error):
                    session.execute("ROLLBACK")
                raise
            session.execute("COMMIT")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._driver_error as error:
            self._pool.drop_idle()
            reason = str(error).strip().partition("\n")[0]
            raise StoreUnreachable(
                f"the queue can't be reached: {reason}",
                place=str(self.path or SCHEMA),
                fix="check that the database is running and writable",
            ) from error

    def exists(self) -> bool:
        """Return whether the tables exist: a job was queued, or a worker was started."""
        if self.path is not None and not Path(self.path).exists():
            return False
        with self.reading() as session:
            return not {"jobs", "em_jobs"}.isdisjoint(self._tables(session))

    def make(self) -> None:
        """Create the tables, with the jobs of a queue that an older em left."""
        if self.path is not None:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        with self.reading() as session:
            if "jobs" in self._tables(session):
                return
        if self.path is not None:
            with self._translated(), self._pool.connection() as connection:
                enter_wal(connection, BUSY)
        with self.writing(SCHEMA) as session:
            if self.is_postgres:
                session.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            found = self._tables(session)
            if "jobs" in found:
                return
            for statement in (TABLES + (";" + ADOPTION if "em_jobs" in found else "")).split(";"):
                session.execute(statement)

    def _tables(self, session: SqlSession) -> set[str]:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
        if self.is_postgres:
            sql = f"SELECT tablename FROM pg_tables WHERE schemaname = '{SCHEMA}'"  # noqa: S608 - a constant
        return {name for (name,) in session.execute(sql)}

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


def _is_usable(connection: FileConnection) -> bool:
    return not connection.in_transaction


def _prepare_postgres(connection: "psycopg.Connection") -> None:
    connection.execute(f"SET search_path TO {SCHEMA}")


def _beside(address: str) -> str:
    if address == ":memory:":
        raise UsageError(
            "a log that is only in memory can't have a queue",
            place="db",
            fix="name a file or a postgresql:// address",
        )
    path = Path(address).expanduser().absolute()
    if not is_unicode(str(path)):
        raise UsageError(
            "a log whose path is not UTF-8 can't have a queue",
            place=str(path),
            fix="rename the folder, or name another log with --db",
        )
    return str(path.with_name(f"{path.stem}.queue{path.suffix}"))
