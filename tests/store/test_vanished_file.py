"""A memory file that vanishes or is replaced: what is written is in the file that is there."""

import logging
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from em import Memory
from em.errors import NewerDatabase, NotFound
from em.log.event import EventQuery
from em.store.sqlite import SqliteStore
from em.testing import append, note


def texts(path: Path) -> list[str]:
    """What another process finds in the file."""
    code = (
        "import sys\nfrom em.log.event import EventQuery\nfrom em.log.verify import verify\n"
        "from em.store.sqlite import SqliteStore\n"
        "with SqliteStore(sys.argv[1], create=False) as store:\n"
        "    assert verify(store).ok\n"
        "    assert store.health(deep=True).problems == []\n"
        "    print(*(event.body['text'] for event in store.read(EventQuery())), sep='\\n')\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def remove_all(path: Path) -> None:
    shutil.rmtree(path.parent.rename(path.parent.with_name("gone")))


def remove_the_file(path: Path) -> None:
    path.unlink()  # and leave its write-ahead log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".em" / "em.db"


def test_a_program_may_go_to_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with SqliteStore("em.db") as store:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        append(store, note("after"))
        assert store.times_lost == 0
        assert texts(tmp_path / "em.db") == ["after"]


@pytest.mark.parametrize("remove", [remove_all, remove_the_file])
def test_what_is_written_after_the_file_vanished_is_in_a_new_file(
    path: Path, remove: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    with SqliteStore(path) as store:
        append(store, note("before"), note("before_too"))
        remove(path)
        with caplog.at_level(logging.WARNING):
            append(store, note("after"))
        append(store, note("and_more"))
        assert texts(path) == ["after", "and_more"]
        assert store.times_lost == 1
        assert [record.name for record in caplog.records] == ["em.store"]
        assert path.stat().st_mode & 0o777 == 0o600
        assert (path.parent / ".gitignore").exists()
    assert texts(path) == ["after", "and_more"]


def test_a_file_that_took_its_place_is_the_one_that_is_written(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with SqliteStore(other) as store:
        append(store, note("of_another"))
    with SqliteStore(path) as store:
        append(store, note("before"))
        other_id = SqliteStore(other).database.id
        other.replace(path)
        append(store, note("after"))
        assert texts(path) == ["of_another", "after"]
        assert store.database.id == other_id  # what is trusted is asked for this one


def test_a_file_of_a_newer_em_that_took_its_place_is_refused(path: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.db"
    SqliteStore(newer).close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version=9999")
    connection.close()
    with SqliteStore(path) as store:
        append(store, note("before"))
        newer.replace(path)
        for _ in range(2):
            with pytest.raises(NewerDatabase):
                append(store, note("after"))


def test_a_file_that_vanishes_while_it_is_written_is_an_error_and_not_a_success(
    path: Path,
) -> None:
    with SqliteStore(path) as store:
        append(store, note("before"))
        with pytest.raises(NotFound), store._writing():
            remove_all(path)
        append(store, note("after"))
        assert texts(path) == ["after"]


def test_a_project_that_was_deleted_is_not_made_again(tmp_path: Path) -> None:
    project = tmp_path / "project"
    path = project / ".em" / "em.db"
    with SqliteStore(path) as store:
        append(store, note("before"))
        shutil.rmtree(project)
        with pytest.raises(NotFound) as caught:
            append(store, note("after"))
        assert not project.exists()
        assert str(path) in str(caught.value)
        project.mkdir()
        append(store, note("later"))
        assert texts(path) == ["later"]


def test_threads_that_read_and_write_go_on_in_one_new_file(path: Path) -> None:
    with SqliteStore(path) as store:
        append(store, note("before"))
        ready, gone = threading.Barrier(9), threading.Event()

        def work(number: int) -> None:
            ready.wait()
            gone.wait()
            for count in range(20):
                append(store, note(f"{number}.{count}"))
                list(store.read(EventQuery(limit=3)))

        with ThreadPoolExecutor(8) as threads:
            working = [threads.submit(work, number) for number in range(8)]
            ready.wait()
            remove_the_file(path)
            gone.set()
        assert [one.result() for one in working] == [None] * 8
        assert sorted(texts(path)) == sorted(f"{n}.{c}" for n in range(8) for c in range(20))
        assert store.times_lost == 1


WRITER = """
import sys
from pathlib import Path
from em.store.sqlite import SqliteStore
from em.testing import append, note

path, name = sys.argv[1:]
with SqliteStore(path) as store:
    print("ready", flush=True)
    while not Path(path).parent.with_name("is_gone").exists():
        append(store, note(f"early.{name}"), note(f"early.{name}"))
    for count in range(30):
        append(store, note(f"late.{name}.{count}"))
"""


@pytest.mark.parametrize("remove", [remove_all, remove_the_file])
def test_processes_that_write_while_it_vanishes_go_on_in_one_new_file(
    path: Path, remove: Callable[[Path], None]
) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    remove(path)
    path.parent.with_name("is_gone").touch()
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert all(str(path) in text for text in said)
    late = [text for text in texts(path) if text.startswith("late")]
    assert sorted(late) == sorted(f"late.{n}.{count}" for n in range(3) for count in range(30))


def test_a_new_memory_has_no_routines_of_the_one_that_is_gone(path: Path) -> None:
    steps = "steps: [{id: out, type: return, value: '{{ said }}'}]\n"
    with Memory(path) as memory:
        from em.runner.package import keep_routine

        keep_routine(memory.store, {"routine.yaml": f"name: echo\n{steps}"})
        assert memory.matcher.ranked("echo said")
        remove_all(path)
        for number in range(9):  # its register is as long as the old one's was
            keep_routine(memory.store, {"routine.yaml": f"name: shout_{number}\n{steps}"})
        found = {one.routine.name for one in memory.matcher.ranked("echo said")}
        assert "echo" not in found
