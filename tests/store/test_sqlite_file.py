"""What can go wrong with a file: full disks, read-only places, other people's files, locks."""

import os
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from em.errors import (
    NotADatabase,
    NotFound,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnreachable,
)
from em.log.event import EventQuery
from em.log.verify import verify
from em.store import Commit
from em.store.sqlite import SqliteStore
from em.testing import append, note

BIG = "x" * 100_000


def fill(store: SqliteStore) -> None:
    """Append until something says stop."""
    for _ in range(1_000):
        append(store, note(BIG))


def assert_intact(path: Path, at_least: int) -> None:
    with SqliteStore(path) as store:
        assert verify(store).ok
        assert len(list(store.read(EventQuery()))) >= at_least
        assert store.health(deep=True).problems == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mount.returncode:
        pytest.skip("a disk of its own can only be mounted by root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_is_one_clear_error_and_the_log_stays_as_it_was(tiny_disk: Path) -> None:
    path = tiny_disk / "em.db"
    with SqliteStore(path) as store:
        append(store, note("first"))
        with pytest.raises(StoreFull) as caught:
            fill(store)
        before = len(list(store.read(EventQuery())))
        assert before > 1
        with pytest.raises(StoreFull):
            append(store, *(note(BIG) for _ in range(30)))
        assert len(list(store.read(EventQuery()))) == before
        assert verify(store).ok
    assert caught.value.place == str(path)
    assert "free some space" in caught.value.fix
    assert_intact(path, before)


def test_a_write_that_the_system_refuses_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "em.db"
    code = (
        "import resource, sys\n"
        "sys.path.insert(0, sys.argv[2])\n"
        "from test_sqlite_file import *\n"
        "with SqliteStore(sys.argv[1]) as store:\n"
        "    append(store, note('first'))\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n"
        "    try:\n"
        "        fill(store)\n"
        "    except StoreError as error:\n"
        "        print(error.code, len(list(store.read(EventQuery()))))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    code_and_count = run.stdout.split()
    assert code_and_count[0] in {"store", "disk_full"}
    assert_intact(path, int(code_and_count[1]))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


def as_nobody(code: str, *args: str) -> str:
    """Run code as a user without rights: root may write anywhere."""
    prelude = "import os\nif os.getuid() == 0:\n    os.setgid(65534); os.setuid(65534)\n"
    run = subprocess.run(
        [sys.executable, "-c", prelude + code, *args], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


TRY_APPEND = (
    "import sys\n"
    "from em import Memory, EmError\n"
    "try:\n"
    "    memory = Memory(sys.argv[1])\n"
    "    print(sum(1 for _ in memory.log.read()), end=' ')\n"
    "    memory.log.append('s', 'note', {})\n"
    "except EmError as error:\n"
    "    print(error.code, '|', error.fix)\n"
)


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that another user can reach, unlike pytest's own."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="em-test-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def python_is_reachable() -> bool:
    probe = "import os\nif os.getuid() == 0:\n    os.setgid(65534); os.setuid(65534)\nimport em"
    return (
        subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False).returncode
        == 0
    )


def test_a_read_only_log_can_be_read_and_refuses_to_be_written(shared_folder: Path) -> None:
    path = shared_folder / "em.db"
    with SqliteStore(path) as store:
        append(store, note("1"), note("2"))
    path.chmod(0o444)
    shared_folder.chmod(0o555)
    if python_is_reachable():
        said = as_nobody(TRY_APPEND, str(path))
    else:  # the interpreter lies in root's own folder: make the file immutable for root as well
        subprocess.run(["chattr", "+i", str(path)], check=True)
        try:
            run = subprocess.run(
                [sys.executable, "-c", TRY_APPEND, str(path)],
                capture_output=True,
                text=True,
                check=False,
            )
            said = run.stdout.strip()
        finally:
            subprocess.run(["chattr", "-i", str(path)], check=True)
    assert said.startswith("2 read_only |"), said
    assert "permissions" in said
    shared_folder.chmod(0o755)
    assert_intact(path, 2)


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(NotADatabase):
        SqliteStore(tmp_path)


@pytest.mark.parametrize("content", [b"hello, I am a text file" * 100, b"SQLite format 3\0" * 50])
def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(NotADatabase) as caught:
        SqliteStore(path)
    assert "--db" in caught.value.fix
    assert path.read_bytes() == content


@pytest.mark.parametrize("version", [0, 1, 7])
def test_a_database_of_something_else_is_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.executescript(f"CREATE TABLE users(name); PRAGMA user_version={version}")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(NotADatabase):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_without_create_nothing_is_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        SqliteStore(tmp_path / "none" / "em.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnreachable):
        SqliteStore(tmp_path / "file" / "em.db")


def test_an_empty_file_becomes_a_log(tmp_path: Path) -> None:
    path = tmp_path / "em.db"
    path.touch()
    with SqliteStore(path) as store:
        append(store, note("1"))
    assert_intact(path, 1)


def test_a_lock_held_too_long_is_said_after_the_busy_timeout(tmp_path: Path) -> None:
    path = tmp_path / "em.db"
    with SqliteStore(path, busy_timeout=0.2) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy) as caught:
            append(store, note("1"))
        assert "EM_BUSY_TIMEOUT" in caught.value.fix
        assert list(store.read(EventQuery())) == []
        other.execute("ROLLBACK")
        other.close()
        append(store, note("1"))


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "em.db")
    store.close()
    with pytest.raises(StoreError, match="closed"):
        append(store, note("1"))


def test_synchronous_is_set_explicitly_on_every_connection(tmp_path: Path) -> None:
    for word in ("normal", "full"):
        with SqliteStore(tmp_path / word, synchronous=word) as store:
            settings = store.health().settings
            assert (settings["journal_mode"], settings["synchronous"]) == ("wal", word)


def test_a_reader_of_this_process_never_blocks_forgetting(sqlite_store: SqliteStore) -> None:
    events = append(sqlite_store, *(note(f"{n} " + BIG) for n in range(300)))
    half_read = sqlite_store.read(EventQuery())
    next(half_read)
    assert sqlite_store.erase([events[0].id, events[-1].id]).scrubbed
    # the page that was read keeps what it had; the next one is as the log is now
    assert [event.erased for event in half_read].count(True) == 1


def test_pages_end_by_bytes_so_that_memory_stays_bounded(sqlite_store: SqliteStore) -> None:
    from em.store import events

    append(sqlite_store, *(note(BIG) for _ in range(400)))
    sizes: list[int] = []
    fetch = sqlite_store._fetch

    def counting(page: events.PageQuery, max_bytes: int) -> list[tuple[object, ...]]:
        rows = fetch(page, max_bytes)
        sizes.append(len(rows))
        return rows

    rows = events.stream_rows(EventQuery(), 400, counting)
    assert sum(1 for _ in rows) == 400
    assert max(sizes) <= events.PAGE_BYTES // len(BIG) + 1


def test_many_threads_may_read_while_one_writes(sqlite_store: SqliteStore) -> None:
    append(sqlite_store, *(note(str(n)) for n in range(3_000)))
    counts: list[int] = []

    def read() -> None:
        counts.append(len(list(sqlite_store.read(EventQuery()))))

    threads = [threading.Thread(target=read) for _ in range(30)]
    for thread in threads:
        thread.start()
    append(sqlite_store, note("while they read"))
    for thread in threads:
        thread.join()
    assert len(counts) == 30
    assert set(counts) <= {3_000, 3_001}


def test_an_interrupt_in_the_middle_of_a_commit_leaves_nothing_behind(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert = sqlite_store._chain._insert_events

    def interrupted(session: object, rows: object) -> None:
        insert(session, rows)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(sqlite_store._chain, "_insert_events", interrupted)
    with pytest.raises(KeyboardInterrupt):
        append(sqlite_store, note("1"))
    monkeypatch.undo()
    assert list(sqlite_store.read(EventQuery())) == []
    sqlite_store.commit(Commit(events=[note("2")]))
    assert verify(sqlite_store).ok
    assert os.path.exists(sqlite_store._path)


def interrupting(lock: object, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call of a method does its work, and then Ctrl-C comes."""
    original = getattr(lock, method)

    def work_then_interrupt(*args: object, **kwargs: object) -> object:
        monkeypatch.undo()
        made = original(*args, **kwargs)
        if isinstance(made, sqlite3.Connection):
            made.close()  # nobody will: it was on its way
        raise KeyboardInterrupt

    monkeypatch.setattr(lock, method, work_then_interrupt)


@pytest.mark.parametrize("moment", ["waiting", "connecting", "writing"])
def test_ctrl_c_at_a_bad_moment_leaves_no_lock_behind(
    sqlite_store: SqliteStore, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if moment == "waiting":
        interrupting(sqlite_store, "_wait_for", monkeypatch)
    elif moment == "connecting":
        sqlite_store._pool.drop_idle()
        interrupting(sqlite_store._pool, "_open_one", monkeypatch)
    else:
        interrupting(sqlite_store, "_insert", monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        append(sqlite_store, note("interrupted"))
    written: list[str] = []

    def write() -> None:
        written.extend(event.id for event in append(sqlite_store, note("after")))

    other = threading.Thread(target=write)
    other.start()
    other.join(timeout=20)
    assert len(written) == 1
    assert len(list(sqlite_store.read(EventQuery()))) == 1


def test_a_writer_that_waits_for_a_thread_waits_no_longer_than_it_said(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "em.db", busy_timeout=0.2) as store, store._writing():
        failures: list[BaseException] = []

        def write() -> None:
            try:
                append(store, note("1"))
            except StoreBusy as error:
                failures.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        thread.join(timeout=20)
        assert len(failures) == 1


def test_a_child_forked_while_a_thread_writes_does_not_inherit_its_lock(tmp_path: Path) -> None:
    code = (
        "import os, sys, threading\n"
        "from em import Memory\n"
        "memory = Memory(sys.argv[1])\n"
        "stop = threading.Event()\n"
        "def write():\n"
        "    while not stop.is_set():\n"
        "        memory.log.append('parent', 'note', {})\n"
        "thread = threading.Thread(target=write); thread.start()\n"
        "codes = []\n"
        "for n in range(5):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        memory.log.append('child', 'note', {'n': n}); os._exit(0)\n"
        "    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "stop.set(); thread.join()\n"
        "sys.exit(any(codes))\n"
    )
    path = tmp_path / "em.db"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, timeout=60)
    with SqliteStore(path) as store:
        assert len(list(store.read(EventQuery(stream="child")))) == 5
        assert verify(store).ok


def test_a_reader_of_a_read_only_place_sees_what_others_write(tmp_path: Path) -> None:
    path = tmp_path / "em.db"
    with SqliteStore(path) as writer:
        append(writer, note("1"))
    with SqliteStore(path) as reader:
        reader._read_only = True  # as it is where the folder takes no writes
        reader._pool.drop_idle()
        assert len(list(reader.read(EventQuery()))) == 1
        with SqliteStore(path) as writer:
            append(writer, *(note(str(n)) for n in range(3_000)))
            assert len(list(reader.read(EventQuery()))) == 3_001
        assert len(list(reader.read(EventQuery()))) == 3_001


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_busy_timeout_is_a_time(tmp_path: Path, seconds: float) -> None:
    from em.errors import UsageError

    with pytest.raises(UsageError):
        SqliteStore(tmp_path / "em.db", busy_timeout=seconds)


def test_a_damaged_name_in_the_schema_is_told_and_not_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "em.db"
    SqliteStore(path).close()
    data = bytearray(path.read_bytes())
    for text, at in ((b"tablesummariessummaries", len(b"table")), (b"CREATE TABLE summaries", 0)):
        place = data.index(text) + at
        data[place : place + 2] = b"\xc9("
    path.write_bytes(data)
    with pytest.raises(StoreError) as told:
        SqliteStore(path)
    assert told.value.place == str(path)
