"""Ledger: the rows of the jobs of a queue: which wait, which a worker has, how the others ended.

They are in a SQLite file next to the log, or in a schema of the log's own PostgreSQL, with the
running workers. The rows hold ids, kinds and states, never names of subjects, inputs or results.

A worker takes a job by writing its id into the row, in a transaction that no two workers share: a
SQLite file has one writer at a time, and PostgreSQL skips rows that somebody else has locked. The
row is freed again if the worker gives it back or dies.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from em.errors import StoreUnreachable, UsageError
from em.store.session import SqlSession, delete, select
from em.store.sqlite import FileConnection, FileConnections, enter_wal
from em.values.files import is_unicode
from em.values.times import now_micros
from em.work.job import State

if TYPE_CHECKING:
    import psycopg

SCHEMA = "em_queue"
"""The schema of the tables on PostgreSQL."""
BUSY = 30.0
"""Seconds to wait for another writer."""

TABLES = """
CREATE TABLE jobs(
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, queue TEXT NOT NULL, worker TEXT,
    deaths INTEGER NOT NULL DEFAULT 0, outcome TEXT, ended_at BIGINT, key TEXT UNIQUE);
CREATE INDEX jobs_by_outcome ON jobs(outcome, id);
CREATE INDEX jobs_by_kind ON jobs(kind, id);
CREATE INDEX jobs_free ON jobs(queue, id) WHERE outcome IS NULL AND worker IS NULL;
CREATE INDEX jobs_taken ON jobs(worker) WHERE outcome IS NULL AND worker IS NOT NULL;
CREATE TABLE workers(id TEXT PRIMARY KEY, beat BIGINT NOT NULL, place TEXT NOT NULL)
"""

Outcome = Literal["done", "waiting", "failed", "cancelled"]
_OPEN = "outcome IS NULL"
_FREE = "outcome IS NULL AND worker IS NULL"
_STATES = {"queued": _FREE, "running": "outcome IS NULL AND worker IS NOT NULL", "open": _OPEN}


class JobRow(NamedTuple):
    """The row of a job. deaths: how many workers died while they ran it."""

    id: str
    kind: str
    queue: str
    worker: str | None
    deaths: int
    outcome: Outcome | None
    ended_at: int | None

    @property
    def state(self) -> State:
        """The state of the job."""
        return self.outcome or ("queued" if self.worker is None else "running")


_COLUMNS = ", ".join(JobRow._fields)


class Wanted(NamedTuple):
    """Which jobs to list, or to count: then `open` stands for the queued and the running ones."""

    state: State | Literal["open"] | None = None
    kind: str | None = None
    queue: str | None = None

    def fits(self, entry: JobRow) -> bool:
        """Return whether a row is one of these."""
        return (
            self.state in (None, entry.state)
            and self.kind in (None, entry.kind)
            and self.queue in (None, entry.queue)
        )

    def where(self) -> tuple[str, list[str]]:
        """Return the condition in SQL, with its parameters."""
        parts, params = ["1 = 1"], list[str]()
        if self.state in _STATES:
            parts.append(_STATES[self.state])
        elif self.state is not None:
            parts.append("outcome = ?")
            params.append(self.state)
        for column, value in (("kind", self.kind), ("queue", self.queue)):
            if value is not None:
                parts.append(f"{column} = ?")
                params.append(value)
        return " AND ".join(parts), params


class Ledger:
    """The rows of all jobs of a queue. `make` creates the tables."""

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
            return "jobs" in self._tables(session)

    def make(self) -> None:
        """Create the tables, unless they are there."""
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
            if "jobs" not in self._tables(session):
                for statement in TABLES.split(";"):
                    session.execute(statement)

    def _tables(self, session: SqlSession) -> set[str]:
        sql = "SELECT name FROM sqlite_master WHERE type = 'table'"
        if self.is_postgres:
            sql = f"SELECT tablename FROM pg_tables WHERE schemaname = '{SCHEMA}'"  # noqa: S608 - a constant
        return {name for (name,) in session.execute(sql)}

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()

    def enter(self, rows: Iterable[Sequence[str | None]]) -> None:
        """Queue jobs, except those that are there: each with kind, queue and key."""
        sql = "INSERT INTO jobs(id, kind, queue, key) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
        with self.writing() as session:
            session.executemany(sql, rows)

    def take(
        self,
        worker: str,
        queue: str,
        most: int,
        *,
        limit: int | None = None,
        but_not: Sequence[str] = (),
    ) -> list[str]:
        """Give a worker jobs of a queue, the oldest first, up to `most`; return their ids.

        A worker without a heartbeat gets none.
        limit: jobs of this queue that may run at a time, over all workers.
        but_not: jobs that the worker must not get.
        """
        marks = ",".join("?" * (len(but_not) + 1))  # PostgreSQL takes no empty list
        sql = f"SELECT id FROM jobs WHERE {_FREE} AND queue = ? AND id NOT IN ({marks}) ORDER BY id"  # noqa: S608 - constants; values are bound
        sql += " LIMIT ?" + (" FOR UPDATE SKIP LOCKED" if self.is_postgres else "")
        with self.writing(queue if limit is not None else "") as session:
            # Whoever buries this worker waits for us, or we for them: a job that nobody watches
            # would be lost.
            known = "SELECT 1 FROM workers WHERE id = ?"
            known += " FOR SHARE" if self.is_postgres else ""
            if session.execute(known, (worker,)).fetchone() is None:
                return []
            if limit is not None:
                most = min(most, limit - _count(session, Wanted("running", queue=queue)))
            found = session.execute(sql, (queue, "", *but_not, max(0, most))).fetchall()
            for (job_id,) in found:
                session.execute("UPDATE jobs SET worker = ? WHERE id = ?", (worker, job_id))
        return [job_id for (job_id,) in found]

    def free(self, worker: str) -> None:
        """Queue the jobs again that a worker has, and remove it from the running ones."""
        sql = f"UPDATE jobs SET worker = NULL WHERE {_OPEN} AND worker = ?"  # noqa: S608 - a constant
        with self.writing() as session:
            session.execute("DELETE FROM workers WHERE id = ?", (worker,))
            session.execute(sql, (worker,))

    def bury(self, worker: str, beat: int) -> int | None:
        """Queue the jobs of a dead worker again; return how many, and count its death for each.

        None if its heartbeat has advanced, or somebody else was first.
        """
        jobs = f"UPDATE jobs SET worker = NULL, deaths = deaths + 1 WHERE {_OPEN} AND worker = ?"  # noqa: S608 - a constant
        with self.writing() as session:
            gone = "DELETE FROM workers WHERE id = ? AND beat = ?"
            if not session.execute(gone, (worker, beat)).rowcount:
                return None
            return session.execute(jobs, (worker,)).rowcount

    def beat(self, worker: str, place: str) -> None:
        """Advance the heartbeat of a worker; the first one makes it known."""
        sql = (
            "INSERT INTO workers(id, beat, place) VALUES (?, 1, ?)"
            " ON CONFLICT(id) DO UPDATE SET beat = workers.beat + 1"
        )
        with self.writing() as session:
            session.execute(sql, (worker, place))

    def workers(self) -> list[tuple[str, int, str]]:
        """Return the running workers, each with its heartbeat and its place."""
        return [tuple(row) for row in self._read("SELECT id, beat, place FROM workers", ())]

    def end(self, job_id: str, outcome: Outcome) -> None:
        """Store how a job ended, unless it has ended."""
        sql = f"UPDATE jobs SET outcome = ?, ended_at = ? WHERE id = ? AND {_OPEN}"  # noqa: S608 - a constant
        with self.writing() as session:
            session.execute(sql, (outcome, now_micros(), job_id))

    def queues_with_work(self) -> Iterator[str]:
        """Yield the names of the queues that have jobs for a worker."""
        last = ""
        sql = f"SELECT min(queue) FROM jobs WHERE {_FREE} AND queue > ?"  # noqa: S608 - a constant
        while True:
            with self.reading() as session:
                (found,) = session.execute(sql, (last,)).fetchone()
            if found is None:
                return
            yield found
            last = found

    def waiting(self, most: int) -> int:
        """Count the jobs that have not ended, up to `most`."""
        sql = f"SELECT count(*) FROM (SELECT id FROM jobs WHERE {_OPEN} LIMIT ?) AS found"  # noqa: S608 - a constant
        return int(self._read(sql, (most,))[0][0])

    def with_key(self, key: str) -> str | None:
        """Return the id of the job that was queued with this key."""
        return next(
            (row[0] for row in self._read("SELECT id FROM jobs WHERE key = ?", (key,))), None
        )

    def find(self, ids: Sequence[str]) -> dict[str, JobRow]:
        """Return the rows of these jobs, by id."""
        with self.reading() as session:
            return {row[0]: JobRow(*row) for row in select(session, _COLUMNS, "jobs", "id", ids)}

    def newest(self, wanted: Wanted, size: int) -> Iterator[JobRow]:
        """Yield jobs, the newest first; reads `size` of them at a time."""
        last = "z"  # behind every id, which is hexadecimal
        where, params = wanted.where()
        sql = f"SELECT {_COLUMNS} FROM jobs WHERE {where} AND id < ? ORDER BY id DESC LIMIT ?"  # noqa: S608 - constants; values are bound
        while rows := self._read(sql, (*params, last, size)):
            yield from (JobRow(*row) for row in rows)
            if len(rows) < size:
                return
            last = rows[-1][0]

    def count(self, wanted: Wanted) -> int:
        """Count jobs."""
        with self.reading() as session:
            return _count(session, wanted)

    def clear(self, until: int, most: int) -> int:
        """Remove jobs that ended before a moment, up to `most`; return how many."""
        sql = "SELECT id FROM jobs WHERE outcome IS NOT NULL AND coalesce(ended_at, 0) < ? LIMIT ?"
        with self.writing() as session:
            found = [row[0] for row in session.execute(sql, (until, most)).fetchall()]
            return delete(session, "jobs", "id", found)

    def _read(self, sql: str, params: Sequence[Any]) -> list[Any]:
        with self.reading() as session:
            return session.execute(sql, params).fetchall()


def _count(session: SqlSession, wanted: Wanted) -> int:
    where, params = wanted.where()
    return int(session.execute(f"SELECT count(*) FROM jobs WHERE {where}", params).fetchone()[0])  # noqa: S608 - constants; values are bound


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
