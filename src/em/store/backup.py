"""A backup of a SQLite database: a copy of one moment, made while others write."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from em.errors import InputError, StoreCorrupt, UsageError
from em.log.verify import Report, verify
from em.store.protocol import Store
from em.store.sqlite import IN_MEMORY, SqliteStore

PAGES = 2_000
"""Pages that are copied at a time: with SQLite's default size, 8 MB."""


def back_up(
    store: Store, target: Path, progress: Callable[[int, int], None] = lambda _done, _all: None
) -> Report:
    """Copy a store's database to a file, and return what verifying the copy found.

    The copy shows one moment. A read transaction is held while it is made: SQLite would begin again
    after every change that it sees, and never end under constant writes. The file is replaced only
    by a copy that is whole and verified.

    progress: called with the pages that are copied, and with all of them.
    """
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
