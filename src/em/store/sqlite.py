"""The store in an SQLite file. Several threads and processes may use it at once.

A backup is a copy of one moment, made while others write.
"""

import fcntl
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from em import deadline
from em.errors import (
    EmError,
    InputError,
    NotADatabase,
    NotFound,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnreachable,
    UsageError,
)
from em.log.event import Event
from em.redaction.redactor import Redactor
from em.store.events import PageQuery, bounded
from em.store.migrations import pending, sqlite_statements
from em.store.preparation import PreparedEvent
from em.store.protocol import SHAPE_BITS, Health, Store, Within
from em.store.search_index import (
    MatchSigns,
    PassageRow,
    SearchIndex,
    numbers_of,
    put_vectors,
    time_conditions,
)
from em.store.session import SqlSession, Transaction
from em.store.sql import FileLost, SqlStore, check_busy_timeout
from em.store.vectors import Matrices, similarities, to_blob
from em.trust import Database

if TYPE_CHECKING:
    from em.log.verify import Report

INSTRUCTIONS = 200_000
"""Instructions of SQLite's machine between two looks at the deadline: about a millisecond."""
FORK_WAIT = 2.0
"""Seconds that a fork waits for connections to become idle."""


Identity = tuple[int, int]
"""The device and the number of a file, as long as somebody has it open."""


def identity_of(path: str) -> Identity | None:
    """Return which file is at a path; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class FileConnection(sqlite3.Connection):
    """A connection with the file that it has open, and its write-ahead log once it has one."""

    file: Identity | None = None
    log: Identity | None = None


class FileConnections:
    """The connections to one file: one for each thread at work, none shared, none across a fork.

    Idle connections are used again, and up to `limit` are opened. `look` is called before each
    use. A fork waits until no connection is in use: otherwise the child could inherit a lock of
    SQLite's that no thread of its own holds and that is never released.
    """

    def __init__(
        self,
        open_one: Callable[[], "FileConnection"],
        usable: Callable[["FileConnection"], bool],
        look: Callable[[], None],
        limit: int,
    ) -> None:
        self._open_one = open_one
        self._usable = usable
        self._look = look
        self._limit = limit
        self._closed = False
        self._start()
        _all_connections.add(self)

    def _start(self) -> None:
        self._pid = os.getpid()
        self._idle: list[FileConnection] = []
        # Of a store that nobody closed and nobody has any more. Python 3.13 warns otherwise.
        weakref.finalize(self, _close_idle, self._idle, self._pid).atexit = False
        self._free = threading.Semaphore(self._limit)
        self._write_lock = threading.RLock()

    def write_lock(self) -> "threading.RLock":
        """Return the lock that the writing threads of this process share."""
        if self._pid != os.getpid():
            self._start()
        return self._write_lock

    @contextmanager
    def connection(self) -> Iterator[FileConnection]:
        """Lend this thread a connection for as long as the block lasts."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def take(self) -> FileConnection:
        """Lend this thread a connection until `give_back`."""
        if self._pid != os.getpid():
            # A child process must not touch the parent's connections, not even to close them.
            self._start()
        self._look()
        if self._closed:
            raise StoreError("this store was closed", fix="open it again")
        self._free.acquire()
        try:
            with suppress(IndexError):
                return self._idle.pop()
            return self._open_one()
        except BaseException:
            self._free.release()
            raise

    def give_back(self, connection: FileConnection) -> None:
        """Take a connection back; close it if it can't be used again."""
        try:
            if self._usable(connection) and not self._closed:
                self._idle.append(connection)
            else:
                connection.close()
        finally:
            self._free.release()

    def pause(self) -> Callable[[], None]:
        """Wait briefly until no connection is in use. Call what is returned to lend them again."""
        end, free, taken = time.monotonic() + FORK_WAIT, self._free, 0
        while taken < self._limit and free.acquire(timeout=max(0.0, end - time.monotonic())):
            taken += 1
        return lambda: free.release(taken) if taken else None

    def logs(self) -> set[Identity]:
        """Return the write-ahead logs that idle connections have open."""
        return {idle.log for idle in self._idle if idle.log is not None}

    def drop_idle(self) -> None:
        """Close the idle connections, so that the next use connects again."""
        _close_idle(self._idle, self._pid)

    def close(self) -> None:
        """Close the idle connections now, and the others when they are given back."""
        self._closed = True
        self.drop_idle()


def _close_idle(idle: list[FileConnection], pid: int) -> None:
    """Close connections, if this is the process that opened them."""
    while idle and pid == os.getpid():
        with suppress(IndexError):  # another thread has just taken it
            idle.pop().close()


_all_connections: weakref.WeakSet[FileConnections] = weakref.WeakSet()
_paused: list[Callable[[], None]] = []


def _before_fork() -> None:
    _paused.extend(connections.pause() for connections in list(_all_connections))


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop()()


# The child starts with no connections when it first uses them: see `Connections.take`.
os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_paused.clear,
)


class SqliteIndex(SearchIndex):
    """The search index in an SQLite file: FTS5 for words, matrices in memory for vectors.

    folder: where large graphs of vectors are saved; None saves none.
    """

    signs = MatchSigns(" OR ", " AND ", '"')
    newest_first = " ORDER BY w.rowid DESC"

    def __init__(self, reading: Transaction, writing: Transaction, folder: Path | None) -> None:
        super().__init__(reading, writing)
        self.matrices = Matrices(folder)

    def insert_passages(
        self, session: SqlSession, rows: Sequence[PassageRow], terms: Sequence[str]
    ) -> None:
        """Insert passages with their words."""
        session.executemany("INSERT INTO passages VALUES (?,?,?,?,?,?,?,?)", rows)
        session.executemany(
            "INSERT INTO words(rowid, terms) VALUES (?, ?)",
            [
                (row.number << SHAPE_BITS | row.shape, text)
                for row, text in zip(rows, terms, strict=True)
            ],
        )

    def delete_passages(self, session: SqlSession, postings: Sequence[int]) -> None:
        """Delete passages, their words and their vectors."""
        session.executemany("DELETE FROM words WHERE rowid = ?", [(item,) for item in postings])
        self.matrices.forget_files()
        numbers = [(posting >> SHAPE_BITS,) for posting in postings]
        session.executemany("DELETE FROM passages WHERE number = ?", numbers)
        session.executemany("DELETE FROM vectors WHERE number = ?", numbers)

    def postings_sql(self, session: SqlSession, within: Within) -> tuple[str, list[int]]:
        """Return the SQL of the postings in a scope. Its first parameter is the match."""
        first, last = numbers_of(session, within)
        sql = "SELECT w.rowid FROM words AS w"
        when, moments = time_conditions(within)
        if when:
            sql += f" JOIN passages AS p ON p.number = w.rowid >> {SHAPE_BITS}"
        # FTS5 seeks to a range of numbers, so the words of other scopes are not read.
        bounds = [first << SHAPE_BITS, ((last + 1) << SHAPE_BITS) - 1]
        return f"{sql} WHERE words MATCH ? AND w.rowid BETWEEN ? AND ?{when}", bounds + moments

    def put_vectors(self, identity: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Store vectors of length 1 by the numbers of their passages."""
        blobs = {number: to_blob(vector) for number, vector in vectors.items()}
        with self._writing() as session:
            put_vectors(session, identity, blobs)

    def nearest_of(
        self, session: SqlSession, vector: Sequence[float], within: Within, limit: int
    ) -> list[tuple[int, float]]:
        """Return numbers and similarities of the passages nearest to a vector."""
        allowed: set[int] | None = None
        if tags := within.tags:
            sql, params = self.postings_sql(session, within)
            rows = session.execute(sql, (self.match(tags), *params))
            allowed = {row[0] >> SHAPE_BITS for row in rows}
        return self.matrices.nearest(session, vector, within, limit, allowed)

    def similarities_of(
        self, session: SqlSession, vector: Sequence[float], numbers: Sequence[int]
    ) -> dict[int, float]:
        """Return how near passages are to a vector."""
        return similarities(session, vector, numbers)


FOLDER = ".em"
"""The folder that em makes for a memory."""
IN_MEMORY = ":memory:"
APPLICATION_ID = int.from_bytes(b"emem")
MAX_CONNECTIONS = 16
_SYNCHRONOUS = {"0": "off", "1": "normal", "2": "full", "3": "extra"}
WAL_BYTES = 64 * 1024 * 1024
WAL_PAGES = 4_000
"""Pages in the write-ahead log before they are moved to the file. That syncs the disk, and pages
that many commits changed are moved once: SQLite's own 1,000 would do it four times as often."""

_ERRORS: dict[int, tuple[type[StoreError], str, str]] = {
    sqlite3.SQLITE_BUSY: (
        StoreBusy,
        "another process has locked the log for writing for too long",
        "try again, or raise EM_BUSY_TIMEOUT",
    ),
    sqlite3.SQLITE_LOCKED: (StoreBusy, "the database is locked", "try again"),
    sqlite3.SQLITE_READONLY: (
        StoreReadOnly,
        "the log is read-only; nothing was changed",
        "check the permissions of the file and its folder, or name another log with --db",
    ),
    sqlite3.SQLITE_FULL: (
        StoreFull,
        "the disk is full; nothing was changed",
        "free some space, then try again",
    ),
    sqlite3.SQLITE_NOTADB: (
        NotADatabase,
        "this is not an em database",
        "name another file with --db or EM_DB",
    ),
    sqlite3.SQLITE_CORRUPT: (
        StoreCorrupt,
        "the database file is damaged",
        "restore a backup; `em log export` saves the events that can still be read",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        StoreUnreachable,
        "the file can't be opened",
        "check that its folder exists and that you may write there",
    ),
    sqlite3.SQLITE_IOERR: (
        StoreError,
        "reading or writing the disk failed; nothing was changed",
        "check the disk and its free space",
    ),
}


_open_stores: "weakref.WeakSet[SqliteStore]" = weakref.WeakSet()


def is_open_here(path: str | Path) -> bool:
    """Return whether a file belongs to a database that this process has open.

    Nobody but SQLite may open it then: its locks are those of the process, and closing the file
    ends them all. Another process could remove the write-ahead log, with what is written to it.
    """
    place = os.path.realpath(path)
    for beside in ("-wal", "-shm"):
        place = place.removesuffix(beside)
    return any(os.path.realpath(store.location) == place for store in list(_open_stores))


def enter_wal(connection: sqlite3.Connection, patience: float) -> None:
    """Switch to write-ahead logging. SQLite does not wait for locks here, so retry for seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _remove_beside(path: Path) -> None:
    for beside in ("-wal", "-shm"):
        Path(f"{path}{beside}").unlink(missing_ok=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let no other process of em make or replace a database in a folder meanwhile."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class SqliteStore(SqlStore):
    """A log in an SQLite file.

    A process may have it open for days, and a person may delete the file, or put another in its
    place. SQLite would go on with the file that has no name any more, and what is written to it is
    lost. So each use looks which file is at the path, and follows: it begins a new one if there is
    none. A transaction is only done if its file is still there afterwards.

    path: the file, or `:memory:`.
    create: create the file if there is none.
    busy_timeout: seconds to wait for another writer.
    synchronous: `normal` survives a crash of the process; `full` also a crash of the machine, at
        the cost of a disk flush for each commit.
    """

    _driver_error = sqlite3.Error
    _number_taken = sqlite3.IntegrityError
    _inserts_at_once = True

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        busy_timeout: float = 30.0,
        synchronous: str = "normal",
        redactor: Redactor | None = None,
    ) -> None:
        if "\0" in str(path):
            raise UsageError("the path contains a NUL character", place="db")
        # A program may go to another folder while it has the memory open.
        self._path = IN_MEMORY if str(path) == IN_MEMORY else str(Path(path).absolute())
        check_busy_timeout(busy_timeout)
        self._busy_timeout = busy_timeout
        self._synchronous = synchronous
        self._read_only = False
        self._file: Identity | None = None
        self._is_following = False
        folder = None if self._path == IN_MEMORY else Path(f"{self._path}-vectors")
        self.index: SqliteIndex
        super().__init__(SqliteIndex(self._reading, self._writing, folder), redactor)
        limit = 1 if self._path == IN_MEMORY else MAX_CONNECTIONS
        self._pool = FileConnections(self._connect, self._usable, self._look, limit)
        if self._path != IN_MEMORY:
            self._check_path(create=create)
            self._file = identity_of(self._path)
        try:
            self._migrate()
            if not self._read_only:
                self.index.bring_up_to_date()
        except BaseException:
            self._pool.close()
            raise
        _open_stores.add(self)

    @property
    def location(self) -> str:
        """The path of the file."""
        return self._path

    def _check_path(self, *, create: bool) -> None:
        try:
            self._make_place(Path(self._path), create=create)
        except OSError as error:
            raise StoreUnreachable(
                f"can't create a log here: {error.strerror}",
                place=self._path,
                fix="name another file with --db or EM_DB",
            ) from error

    def _make_place(self, path: Path, *, create: bool) -> None:
        if path.is_dir():
            raise NotADatabase(
                "expected a file, found a folder", place=self._path, fix="name a file in it"
            )
        if path.exists() and (create or path.stat().st_size):
            return
        if not create:
            raise NotFound(
                "there is no log at this path",
                place=self._path,
                fix="go to the folder that has .em, or name the log with --db or EM_DB;"
                " `em import` and `em observe` make a new one",
            )
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.parent.name == FOLDER:
                # A memory has what was said and done: it must not get into a repository.
                (path.parent / ".gitignore").write_text("*\n")
        with _locked(path.parent):
            if not path.exists():
                self._make_file(path)

    def _make_file(self, path: Path) -> None:
        # What lies beside belongs to a file that is gone. Processes that have it open keep it.
        _remove_beside(path)
        # Before SQLite makes it: its other files get the same rights. Not if another thread has
        # just made it: closing the file would end the locks of its connections.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))

    def _look(self) -> None:
        """Follow the path if another file is there than the one that is open, or none."""
        if self._file is None or self._read_only:
            return
        if self._is_following or identity_of(self._path) != self._file:
            lock = self._pool.write_lock()
            self._wait_for(lock)
            try:
                if identity_of(self._path) != self._file:
                    self._follow(self._file)
            finally:
                lock.release()

    def _follow(self, old: Identity) -> None:
        """Go on in the file that is at the path now; make it if there is none."""
        self._is_following = True
        try:
            is_gone = self._take_place()
            self._file = identity_of(self._path)
            self._chain = self._new_chain()
            self.__dict__.pop("database", None)
            self.index.matrices.forget_files()
            self.index.matrices = Matrices(Path(f"{self._path}-vectors"))
            self._migrate()
            self.index.bring_up_to_date()
        except BaseException:
            self._file = old  # the next use tries again
            raise
        finally:
            self._is_following = False
        self.times_lost += 1
        what = "was gone: a new, empty one was begun" if is_gone else "was replaced by another one"
        import logging

        logging.getLogger("em.store").warning("the memory %s %s", self._path, what)

    def _take_place(self) -> bool:
        """Leave the old file, and return whether there was none in its place."""
        path = Path(self._path)
        is_gone = not path.exists()
        if is_gone:
            if not (path.parent.exists() or path.parent.parent.exists()):
                raise NotFound(
                    "the memory is gone, and so is the folder that it was in; nothing is stored",
                    place=self._path,
                    fix="restore the folder, or name another memory with --db or EM_DB",
                )
            self._check_path(create=True)
        else:
            with _locked(path.parent):
                # SQLite would apply the old file's log to the new one. While connections have it
                # open, no other file gets its number.
                if identity_of(f"{path}-wal") in self._pool.logs():
                    _remove_beside(path)
        self._pool.drop_idle()
        return is_gone

    def _connect(self) -> FileConnection:
        if self._path == IN_MEMORY:
            target = self._path
        else:
            target = "file:" + quote(os.fsencode(Path(self._path).absolute()))
            if not self._read_only:
                target += "?mode=rw"
            elif Path(self._path + "-wal").exists():
                target += "?mode=ro"
            else:
                target += "?mode=ro&immutable=1"
        connection = sqlite3.connect(
            target,
            timeout=self._busy_timeout,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
            cached_statements=64,
            factory=FileConnection,
        )
        try:
            connection.execute(f"PRAGMA synchronous={self._synchronous}")
            connection.execute(f"PRAGMA journal_size_limit={WAL_BYTES}")
            connection.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
        except UnicodeDecodeError:
            # SQLite quotes a damaged name, and Python can't read what it says.
            connection.close()
            damaged = sqlite3.DatabaseError("a name in the schema is damaged")
            damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise damaged from None
        except BaseException:
            connection.close()
            raise
        connection.set_progress_handler(partial(_must_end, weakref.ref(connection)), INSTRUCTIONS)
        connection.file = self._file
        if not self._read_only and not self._has_place(connection):
            connection.close()
            raise StoreBusy("the memory is being replaced", place=self._path, fix="try again")
        return connection

    def _has_place(self, connection: FileConnection) -> bool:
        """Return whether the file of a connection is still at the path."""
        return connection.file is None or identity_of(self._path) == connection.file

    def _usable(self, connection: FileConnection) -> bool:
        # A connection opened with immutable=1 would not see later changes.
        is_current = connection.file == self._file and not self._read_only
        if is_current and connection.log is None:
            log = identity_of(f"{self._path}-wal")
            connection.log = log if self._has_place(connection) else None
        return is_current and not connection.in_transaction

    def _explain(self, error: Exception) -> EmError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        limit = deadline.current()
        if code == sqlite3.SQLITE_INTERRUPT and limit is not None:
            return limit.error()
        if str(error) == "unable to open database file":
            code = sqlite3.SQLITE_CANTOPEN
        kind, message, fix = _ERRORS.get(code, (StoreError, f"SQLite says: {error}", ""))
        return kind(message, place=self._path, fix=fix)

    @contextmanager
    def _reading(self) -> Iterator[SqlSession]:
        with self._translated(), self._pool.connection() as connection:
            yield connection

    def _snapshot(self) -> AbstractContextManager[SqlSession]:
        return self.snapshot()

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Begin to read, and yield the connection, which sees this moment until the end."""
        with self._translated(), self._pool.connection() as connection:
            connection.execute("BEGIN")
            try:
                connection.execute("SELECT 1 FROM flags LIMIT 1").fetchone()  # this takes the lock
                yield connection
            finally:
                connection.execute("ROLLBACK")

    def _writing(self) -> "_Transaction":
        return _Transaction(self)

    def _wait_for(self, lock: "threading.RLock") -> None:
        if not lock.acquire(timeout=self._busy_timeout):
            kind, message, fix = _ERRORS[sqlite3.SQLITE_BUSY]
            raise kind(message, place=self._path, fix=fix)

    def changed_artefacts(self, since: int | None = None) -> tuple[int, bool]:
        """Return how far the register goes, and whether artefacts may have changed since then."""
        # The register of another file begins anew, and may have grown beyond this end already.
        before = self.times_lost << 48
        is_other = since is not None and since < before
        end, is_changed = super().changed_artefacts(
            None if since is None or is_other else since - before
        )
        return before + end, is_changed

    @property
    def database(self) -> Database:
        """What it is known by in the user's list of trusted databases."""
        return Database("", IN_MEMORY) if self._path == IN_MEMORY else super().database

    @property
    def _own_place(self) -> str:
        return str(Path(self._path).resolve())

    def _migrate(self) -> None:
        if not pending(self._find_schema(), self._path):
            return
        with self._translated(), self._pool.connection() as connection:
            enter_wal(connection, self._busy_timeout)
        with self._writing() as session:
            is_new = session.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None
            # Another process may have migrated meanwhile: check again under the lock.
            for step in pending(self._schema(session), self._path):
                for statement in sqlite_statements(step):
                    session.execute(statement)
                session.execute(f"PRAGMA application_id={APPLICATION_ID}")
                session.execute(f"PRAGMA user_version={step.number}")
            if is_new:
                self._name_database(session)
        if is_new:
            self.database.note_as_own()

    def _find_schema(self) -> int:
        try:
            with self._reading() as session:
                return self._schema(session)
        except (StoreUnreachable, StoreReadOnly):
            # In a read-only folder SQLite can't create its working files. Without such files there
            # is no writer, and the log can be opened as immutable.
            if not Path(self._path).exists() or Path(self._path + "-wal").exists():
                raise
            self._read_only = True
            with self._reading() as session:
                return self._schema(session)

    def _schema(self, session: SqlSession) -> int:
        (application,) = session.execute("PRAGMA application_id").fetchone()
        (current,) = session.execute("PRAGMA user_version").fetchone()
        if application == APPLICATION_ID:
            return int(current)
        if current or session.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise NotADatabase(
                "this is an SQLite database of another program",
                place=self._path,
                fix="name another file with --db or EM_DB",
            )
        return 0

    def _fetch(self, page: PageQuery, max_bytes: int) -> list[tuple[Any, ...]]:
        with self._translated(), self._pool.connection() as connection:
            try:
                return _rows(connection, page, max_bytes)
            except sqlite3.OperationalError as error:
                if not page.raw or "Could not decode to UTF-8" not in str(error):
                    raise
            # The bytes were tampered with: return them, so that verify can report it.
            connection.text_factory = _lenient_text
            try:
                return _rows(connection, page, max_bytes)
            finally:
                connection.text_factory = str

    def _insert_events(self, session: SqlSession, rows: Sequence[tuple[Any, ...]]) -> None:
        session.executemany("INSERT INTO events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)

    def _insert_registered(
        self, session: SqlSession, row: tuple[Any, ...], entry: tuple[Any, ...]
    ) -> None:
        # The view's trigger inserts both: one statement is a transaction of its own.
        sql = "INSERT INTO registered_events VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
        session.execute(sql, (*row, entry[0], entry[-1]))

    def _insert_at_once(
        self, event: PreparedEvent, expected: Mapping[str, int], *, only_rows: bool
    ) -> list[Event] | None:
        with _Transaction(self, of_one_statement=True) as session:
            return self._chain.insert_at_once(
                session, event, expected, self._insert_registered, only_rows=only_rows
            )

    def _scrub(self) -> None:
        """Rewrite the file without the remains of erased bodies, and empty the write-ahead log."""
        with self._translated(), self._pool.connection() as connection:
            mark = self._scrub_asked(connection)
            # Deleted words stay in the index until its segments are merged.
            connection.execute("INSERT INTO words(words) VALUES('optimize')")
            connection.execute("VACUUM")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise StoreBusy(
                "another process is still reading pages from before the erasure",
                place=self._path,
                fix="end that reader, then run `em forget --finish`",
            )
        self._scrub_done(mark)

    def health(self, *, deep: bool = False) -> Health:
        """Report the condition of the store; `deep` reads every page."""
        problems: list[str] = []
        with self._reading() as session:
            settings = {
                name: str(session.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("journal_mode", "synchronous", "busy_timeout")
            }
            (pages,) = session.execute("PRAGMA page_count").fetchone()
            (page_size,) = session.execute("PRAGMA page_size").fetchone()
            (events,) = session.execute("SELECT COALESCE(MAX(seq), 0) FROM events").fetchone()
            waiting = self._scrub_asked(session) is not None
            schema = self._schema(session)
            if deep:
                found = session.execute("PRAGMA integrity_check(10)").fetchall()
                problems += [row[0] for row in found if row[0] != "ok"]
        settings["synchronous"] = _SYNCHRONOUS.get(settings["synchronous"], "?")
        settings["busy_timeout"] = f"{self._busy_timeout:g} s"
        if self._read_only:
            settings["access"] = "read only"
        elif settings["journal_mode"] != "wal" and self._path != IN_MEMORY:
            problems.append(f"journal_mode is {settings['journal_mode']}, not wal")
        return Health(
            backend="sqlite",
            location=self._path,
            version=sqlite3.sqlite_version,
            schema=schema,
            events=events,
            size_bytes=pages * page_size,
            scrub_pending=waiting,
            settings=settings,
            problems=problems,
        )

    def close(self) -> None:
        """Close every connection. The last one removes the write-ahead log."""
        if self._chain.is_behind and self._path != IN_MEMORY:
            # Whoever can't write now leaves it to the next who writes to these streams.
            with suppress(EmError), self._writing() as session:
                self._chain.catch_up(session)
        self._pool.close()
        _open_stores.discard(self)


class _Transaction:
    """A write transaction, committed at the end or rolled back. It is on every append's path."""

    def __init__(self, store: SqliteStore, *, of_one_statement: bool = False) -> None:
        self._store = store
        self._of_one_statement = of_one_statement
        self._pool = store._pool
        self._connection: FileConnection | None = None
        # One writing thread of this process at a time: they queue fairly instead of polling.
        self._lock = store._pool.write_lock()

    def __enter__(self) -> SqlSession:
        try:
            self._store._wait_for(self._lock)
            connection = self._connection = self._pool.take()
            if not self._of_one_statement:
                connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            self._leave()
            if isinstance(error, sqlite3.Error):
                raise self._store._explain(error) from error
            raise
        return connection

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            if error is None and self._connection is not None:
                self._commit(self._connection)
        except (sqlite3.Error, EmError) as failed:
            error = failed
        finally:
            self._leave()
        if isinstance(error, sqlite3.Error):
            raise self._store._explain(error) from error
        if isinstance(error, EmError):
            raise error

    def _commit(self, connection: FileConnection) -> None:
        if not self._of_one_statement:
            connection.execute("COMMIT")
        if not self._store._has_place(connection):
            raise FileLost(
                "the memory was removed or replaced while this was written; it is not stored",
                place=self._store.location,
                fix="try again",
            )

    def __del__(self) -> None:
        # Ctrl-C may come between the steps of a `with` statement.
        if self._connection is not None:
            self._leave()

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._pool.give_back(connection)
        finally:
            # Ask the lock itself: an interrupt may come between acquiring it and noting that.
            if self._lock._is_owned():  # type: ignore[attr-defined]  # as threading.Condition does
                self._lock.release()


def _must_end(connection: "weakref.ref[FileConnection]") -> bool:
    """Return whether a statement must end here: no write, and its deadline is over."""
    limit, reading = deadline.current(), connection()
    return limit is not None and limit.is_over and not (reading and reading.in_transaction)


def _rows(connection: sqlite3.Connection, page: PageQuery, max_bytes: int) -> list[tuple[Any, ...]]:
    cursor = connection.execute(page.sql, page.params)
    try:
        return bounded(cursor, max_bytes)
    finally:
        cursor.close()  # a page that ended early must not keep its snapshot open


def _lenient_text(raw: bytes) -> str:
    return raw.decode(errors="surrogateescape")


PAGES = 2_000
"""Pages that are copied at a time: with SQLite's default size, 8 MB."""


def back_up(
    store: Store, target: Path, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> "Report":
    """Copy a store's database to a file, and return what verifying the copy found.

    The copy shows one moment. A read transaction is held while it is made: SQLite would begin again
    after every change that it sees, and never end under constant writes. The file is replaced only
    by a copy that is whole and verified.

    progress: called with the pages that are copied, and with all of them.
    """
    from em.log.verify import verify

    if not isinstance(store, SqliteStore):
        raise UsageError(
            "this copies SQLite databases",
            place=store.location,
            fix=f"for PostgreSQL: pg_dump --format=custom --file={target} DATABASE",
        )
    _refuse_itself(store, target)
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        _copy(store, beside, progress)
        with SqliteStore(str(beside), create=False) as copy:
            report = verify(copy)
        if not report.ok:
            first = report.findings[0]
            raise StoreCorrupt(
                f"the copy does not verify: {first.detail}",
                place=store.location,
                fix="run `em log verify`; an earlier backup is still as it was",
            )
        beside.replace(target)
    except OSError as error:
        raise InputError(f"can't be written: {error.strerror}", place=str(target)) from error
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            Path(f"{beside}{end}").unlink(missing_ok=True)
    return report


def _refuse_itself(store: SqliteStore, target: Path) -> None:
    own = {Path(store.location + end).resolve() for end in ("", "-wal", "-shm")}
    if target.resolve() in own or store.location == IN_MEMORY:
        raise UsageError(
            "a backup must be another file", place=str(target), fix="name a file elsewhere"
        )


def _copy(store: SqliteStore, target: Path, progress: Callable[[int, int], None]) -> None:
    # Only for its owner, as the database itself.
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    copy = sqlite3.connect(target)
    try:
        with store.snapshot() as source:
            source.backup(
                copy,
                pages=PAGES,
                progress=lambda _status, left, every: progress(every - left, every),
            )
    except sqlite3.Error as error:
        raise InputError(f"can't be written: {error}", place=str(target)) from error
    finally:
        copy.close()
    with target.open("rb") as file:
        os.fsync(file.fileno())
