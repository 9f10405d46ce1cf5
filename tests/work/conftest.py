"""Real workers: processes of their own, on a SQLite file and on PostgreSQL."""

import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from tests.children import wait_until
from tests.forks import QUEUE, Fork, start_python

from em import Memory
from em.runner.package import files_in, keep_routine
from em.work.ledger import SCHEMA
from em.work.queue import Queue

SETTINGS = "work: {lease: 2}\n"

TOOLS = '''
import os, time

SLOW = float(os.environ.get("TEST_SLOW", "0"))

def keyed(n: int, step: int, idempotency_key: str) -> int:
    """An effect of a service that knows its keys: the second time it only answers."""
    try:
        os.close(os.open(f"effects/{idempotency_key}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return n
    time.sleep(SLOW)
    return n

def plain(n: int, step: int) -> int:
    """An effect that happens each time."""
    with open("effects.txt", "a") as effects:
        effects.write(f"{n}-{step}\\n")
    time.sleep(SLOW)
    return n

def busy(n: int) -> int:
    """Tells when it begins and when it ends."""
    with open("busy.txt", "a") as busy:
        busy.write("+\\n")
    time.sleep(0.2)
    with open("busy.txt", "a") as busy:
        busy.write("-\\n")
    return n

def fail(n: int) -> int:
    raise ValueError(f"{n} is odd") if n % 2 else None or SystemError("even")
'''


def five(tool: str) -> str:
    """A routine of five steps, each with an effect."""
    key = ', idempotency_key: "{{ n }}-%d"' if tool == "keyed" else ""
    steps = "".join(
        f"  - {{id: s{step}, type: tool.call, tool: {tool}, effect: write, save_as: r{step}, "
        f'args: {{n: "{{{{ n }}}}", step: {step}}}{key % step if key else ""}}}\n'
        for step in range(1, 6)
    )
    return f'version: "1"\nname: {tool}_five\nsteps:\n{steps}'


ONE = """
version: "1"
name: {name}
steps:
  - {{id: s1, type: tool.call, tool: {tool}, effect: {effect}, args: {{n: "{{{{ n }}}}"}}}}
"""


class Workplace:
    """A folder with a log, its settings, tools and routines; and workers that are started there."""

    def __init__(self, folder: Path, db: str) -> None:
        self.folder = folder
        self.db = db
        (folder / "em.yaml").write_text(SETTINGS)
        (folder / "tools.py").write_text(TOOLS)
        (folder / "effects").mkdir()
        self._started: list[Fork] = []
        for name, text in {
            "keyed_five": five("keyed"),
            "plain_five": five("plain"),
            "busy_one": ONE.format(name="busy_one", tool="busy", effect="read"),
            "failing": ONE.format(name="failing", tool="fail", effect="read"),
        }.items():
            self.keep(name, text)

    def keep(self, name: str, text: str) -> None:
        folder = self.folder / "routines" / name
        folder.mkdir(parents=True)
        (folder / "routine.yaml").write_text(text)
        with Memory(self.db) as memory:
            keep_routine(memory.store, files_in(folder))

    @contextmanager
    def queue(self) -> Iterator[Queue]:
        with Memory(self.db) as memory, Queue(memory) as queue:
            yield queue

    def worker(self, *args: str, slow: float = 0.0) -> Fork:
        """Start `em worker`."""
        command = ("-m", "em", "worker", "--db", self.db, "--tools", "tools.py", *args)
        with (self.folder / "stderr.txt").open("wb") as stderr:
            process = start_python(
                *command,
                stdin=0,
                stdout=1,
                stderr=stderr.fileno(),
                loaded=QUEUE,
                TEST_SLOW=str(slow),
            )
        (self.folder / "stderr.txt").rename(self._stderr(process))
        self._started.append(process)
        return process

    def _stderr(self, worker: Fork) -> Path:
        return self.folder / f"stderr-{worker.pid}.txt"

    def said_so_far(self, worker: Fork) -> str:
        """Return what a worker has written to stderr."""
        return self._stderr(worker).read_text()

    def said_by(self, worker: Fork) -> str:
        """Wait until a worker ends, as long as work gets done; what it wrote to stderr."""
        wait_until(lambda: worker.poll() is not None, self.progress)
        return self.said_so_far(worker)

    def drain(self, *args: str, slow: float = 0.0) -> str:
        """Let a worker do everything; what it said."""
        worker = self.worker("--drain", *args, slow=slow)
        said = self.said_by(worker)
        assert worker.returncode == 0, said
        assert "Traceback" not in said, said
        return said

    def effects(self) -> Counter[str]:
        """What happened in the world, and how often."""
        path = self.folder / "effects.txt"
        plain = path.read_text().split() if path.exists() else []
        return Counter([*plain, *os.listdir(self.folder / "effects")])

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds, as long as work gets done."""
        wait_until(holds, self.progress)

    def freeze(self, worker: Fork) -> None:
        """Stop a worker, but not while it has the lock of a file of SQLite: all would wait then."""
        while True:
            worker.send_signal(signal.SIGSTOP)
            wait_until(lambda: ") T " in Path(f"/proc/{worker.pid}/stat").read_text())
            if all(map(_is_free, self.folder.glob("em*.db"))):  # none on PostgreSQL
                return
            worker.send_signal(signal.SIGCONT)
            time.sleep(0.05)

    def progress(self) -> tuple[int, int]:
        """Grows with each effect and each tool that was called."""
        busy = self.folder / "busy.txt"
        return self.effects().total(), busy.stat().st_size if busy.exists() else 0

    def end(self) -> None:
        for process in self._started:
            kill(process)


def _is_free(database: Path) -> bool:
    with closing(sqlite3.connect(database, timeout=1)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True


def kill(process: Fork) -> None:
    process.kill()
    process.wait()


@pytest.fixture(params=["sqlite", "postgres"])
def workplace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workplace]:
    """On either store: a test that takes it runs on both."""
    db = str(tmp_path / "em.db")
    if request.param == "postgres":
        db = request.getfixturevalue("new_database")()
        with psycopg.connect(db, autocommit=True) as connection:  # one queue for each database
            connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    place = Workplace(tmp_path, db)
    yield place
    place.end()


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Iterator[Workplace]:
    place = Workplace(tmp_path, str(tmp_path / "em.db"))
    yield place
    place.end()
