"""The queue's database: a SQLite file next to the log, or the log's own PostgreSQL database.

It has the tables of DBOS and four of em: the running workers, their slots at providers, the ledger
of jobs, and how long their items take.
"""

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from em.errors import MissingExtra, StoreUnreachable, UsageError
from em.store.sqlite import enter_wal
from em.values.paths import is_unicode

try:
    import sqlalchemy as sa
    import sqlalchemy.dialects.postgresql
    import sqlalchemy.dialects.sqlite
    from dbos import DBOS, DBOSClient, DBOSPortableJSONSerializer
except ImportError as error:
    raise MissingExtra("distributed", "queued work") from error

__all__ = ["Database", "sa"]  # the others take `sa` from here: the extra is missed in one place

NAME = "em-work"
"""The name of the application in DBOS."""
VERSION = "1"
"""The version of the jobs, not of em: any em with this version can run them."""
TASK = "em.job"
SCHEMA = "em_queue"
"""The schema of the tables on PostgreSQL."""
BUSY = 30_000
"""Milliseconds to wait for another writer."""
CONNECTION: dict[str, Any] = {
    "application_name": "em work",
    "connect_timeout": 10,
    "tcp_user_timeout": 30_000,
}
"""Times out before a worker's lease ends if the server does not answer."""
SERIALIZER = DBOSPortableJSONSerializer()


class Database:
    """The queue's database. `make` creates its tables."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_postgres = address.startswith(("postgresql://", "postgres://"))
        self.schema = SCHEMA if self.is_postgres else None
        self.path = None if self.is_postgres else _beside(address)
        metadata = sa.MetaData(schema=self.schema)
        self.workers = sa.Table(
            "em_workers",
            metadata,
            sa.Column("id", sa.Text, primary_key=True),
            sa.Column("beat", sa.BigInteger, nullable=False),
            sa.Column("place", sa.Text, nullable=False),
        )
        self.slots = sa.Table(
            "em_slots",
            metadata,
            sa.Column("provider", sa.Text, primary_key=True),
            sa.Column("slot", sa.Integer, primary_key=True),
            sa.Column("worker", sa.Text, nullable=False),
            sa.Column("held", sa.Text, nullable=False, unique=True),
        )
        self.jobs = sa.Table(
            "em_jobs",
            metadata,
            sa.Column("id", sa.Text, primary_key=True),
            sa.Column("kind", sa.Text, nullable=False),
            sa.Column("queue", sa.Text, nullable=False),
            sa.Column("deaths", sa.Integer, nullable=False),
            sa.Column("outcome", sa.Text),
            sa.Column("key", sa.Text, unique=True),
            sa.Column("part_of", sa.Text, index=True),
            sa.Index("em_jobs_by_outcome", "outcome", "id"),
            sa.Index("em_jobs_by_kind", "kind", "id"),
        )
        self.rates = sa.Table(
            "em_rates",
            metadata,
            sa.Column("kind", sa.Text, primary_key=True),
            sa.Column("seconds", sa.Float, nullable=False),
        )
        self._metadata = metadata
        log = logging.getLogger("dbos")
        if log.level == logging.NOTSET:  # unless the user has configured it
            log.setLevel(logging.CRITICAL)
        self.engine = self._make_engine()
        dialect = sa.dialects.postgresql if self.is_postgres else sa.dialects.sqlite
        self.insert = dialect.insert

    def _make_engine(self) -> sa.Engine:
        if self.is_postgres:
            import psycopg

            # Pass the address to libpq as em's store does; SQLAlchemy would parse it differently.
            return sa.create_engine(
                "postgresql+psycopg://",
                creator=lambda: psycopg.connect(self.address, **CONNECTION),
                pool_pre_ping=True,
                pool_size=10,
                max_overflow=20,
            )
        engine = sa.create_engine(f"sqlite:///{self.path}", pool_size=10, max_overflow=20)
        sa.event.listen(engine, "connect", _prepare_connection)
        # Counting the limits and claiming a job must be one transaction.
        sa.event.listen(
            engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE")
        )
        return engine

    def exists(self) -> bool:
        """Return whether the tables exist: a job was queued, or a worker was started."""
        if self.path is not None and not Path(self.path).exists():
            return False
        with self.translated():
            return sa.inspect(self.engine).has_table("em_rates", schema=self.schema)

    def make(self) -> None:
        """Create the tables, or migrate them to the installed version of DBOS."""
        with self.translated():
            if self.is_postgres:
                url = self.address.replace("postgres://", "postgresql://", 1)
                DBOS.migrate(url, schema=SCHEMA)
                self._metadata.create_all(self.engine)
                return
            assert self.path is not None
            with _alone(self.path):
                _write_ahead(self.path)
                DBOS.migrate(f"sqlite:///{self.path}")
                self._metadata.create_all(self.engine)

    def client(self, *, patient: bool = False) -> DBOSClient:
        """Return a DBOS client. A patient one waits while the database is gone."""
        with self.translated():
            return DBOSClient(
                system_database_engine=self.engine,
                dbos_system_schema=self.schema,
                serializer=SERIALIZER,
                application_name=NAME,
                retry_connection_errors=patient,
            )

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise StoreUnreachable for errors of the database."""
        try:
            yield
        except (sa.exc.DBAPIError, sa.exc.TimeoutError, sqlite3.Error) as error:
            reason = str(getattr(error, "orig", error)).strip().partition("\n")[0]
            raise StoreUnreachable(
                f"the queue can't be reached: {reason}",
                place=str(self.path or SCHEMA),
                fix="check that the database is running and writable",
            ) from error


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


def _prepare_connection(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
    give_clock(connection)
    connection.execute(f"PRAGMA busy_timeout={BUSY}")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")


def has_clock(connection: sqlite3.Connection) -> bool:
    """Return whether the time that DBOS reads from SQLite is there: `unixepoch('subsec')`."""
    try:
        found: float | None = connection.execute("SELECT unixepoch('subsec')").fetchone()[0]
    except sqlite3.OperationalError:  # before 3.38 there was no such function at all
        return False
    return found is not None


def give_clock(connection: sqlite3.Connection) -> None:
    """Define `unixepoch('subsec')` where SQLite is older than 3.42, and returns NULL for it.

    DBOS uses it on Python 3.12 and newer, for every time that it stores. A function with one
    argument takes precedence over the built-in one, which takes any number.
    """
    if sqlite3.sqlite_version_info >= (3, 42):
        return

    def unixepoch(what: str) -> float:
        if what != "subsec":
            raise ValueError(f"only unixepoch('subsec') is defined here, not {what!r}")
        return time.time()

    connection.create_function("unixepoch", 1, unixepoch)


def queue_problem() -> str:
    """Return why a queue in a SQLite file can't work here, or an empty text: see `em doctor`."""
    with closing(sqlite3.connect(":memory:")) as connection:
        _prepare_connection(connection, None)
        if has_clock(connection):
            return ""
    return f"queues need unixepoch('subsec'), which SQLite {sqlite3.sqlite_version} can't give"


def _write_ahead(path: str) -> None:
    """Switch to write-ahead logging, which is stored in the file."""
    with closing(sqlite3.connect(path, timeout=BUSY / 1000)) as connection:
        enter_wal(connection, BUSY / 1000)


@contextmanager
def _alone(path: str) -> Iterator[None]:
    """Lock out other processes: DBOS creates its SQLite tables one statement at a time."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(f"{path}-lock", timeout=BUSY / 1000)) as lock:
        lock.isolation_level = None
        lock.execute("BEGIN EXCLUSIVE")
        yield
        lock.execute("ROLLBACK")
