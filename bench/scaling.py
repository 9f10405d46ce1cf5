"""Queued work: a worker killed midway, single jobs beside chunks, checkpoints by workers."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure, seconds
from bench.server import postgres_address
from em import Draft, Memory
from em.work.queue import Queue

RUNS = int(os.environ.get("EM_BENCH_RUNS", "1000"))
SMALL = int(os.environ.get("EM_BENCH_JOBS", "2000"))
SUBJECTS = int(os.environ.get("EM_BENCH_SUBJECTS", "2000"))
RECORDS = 20
SECONDS = 5
BULK = 50_000

TOOLS = '''
import os

def keyed(n: int, step: int, idempotency_key: str) -> int:
    """An effect of a service that knows its keys."""
    try:
        os.close(os.open(f"effects/{idempotency_key}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        pass
    return n

def plain(n: int, step: int) -> int:
    """An effect that happens each time: an appended line is whole or not there."""
    file = os.open("effects.txt", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    os.write(file, f"{n}-{step}\\n".encode())
    os.close(file)
    return n

def look(n: int) -> int:
    return n
'''


def workflows() -> str:
    def five(tool: str, key: str) -> str:
        return "".join(
            f'      - {{name: s{n}, tool: {tool}, inputs: {{n: "{{{{ params.n }}}}", step: {n}}}'
            f"{key.replace('#', str(n))}}}\n"
            for n in range(1, 6)
        )

    keyed = five("keyed", ', idempotency_key: "{{ params.n }}-#"')
    plain = five("plain", "")
    small = '      - {name: s, tool: look, effect: read, inputs: {n: "{{ params.n }}"}}\n'
    head = "    params: {n: {type: integer}}\n    steps:\n"
    return (
        f"work: {{lease: 5}}\nworkflows:\n  keyed:\n{head}{keyed}"
        f"  plain:\n{head}{plain}  small:\n{head}{small}"
    )


class Place:
    """A folder with workflows and tools, and a log."""

    def __init__(self, folder: str, db: str) -> None:
        self.folder = Path(folder)
        self.db = db
        (self.folder / "em.yaml").write_text(workflows())
        (self.folder / "tools.py").write_text(TOOLS)
        (self.folder / "effects").mkdir(exist_ok=True)

    def worker(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-m", "em", "worker", "--db", self.db, "--tools", "tools.py",
             "--drain"],
            cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def drain(self, workers: int = 1) -> float:
        """Seconds until everything is done."""
        started = [self.worker() for _ in range(workers)]
        return seconds(lambda: [worker.wait() for worker in started])

    def effects(self) -> Counter[str]:
        lines = self.folder / "effects.txt"
        plain = lines.read_text().split() if lines.exists() else []
        return Counter([*plain, *os.listdir(self.folder / "effects")])


@contextmanager
def places() -> Iterator[Iterator[tuple[str, Place]]]:
    with (
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
        postgres_address() as address,
    ):
        yield iter(
            [
                ("SQLite", Place(one, str(Path(one) / "em.db"))),
                ("PostgreSQL", Place(other, address)),
            ]
        )


def killed() -> Iterator[Figure]:
    """Runs of five steps over two workers, one of which is killed midway."""
    for name in ("keyed", "plain"):
        with places() as found:
            for store, place in found:
                yield _killed(name, store, place)


def _killed(name: str, store: str, place: Place) -> Figure:
    with Memory(place.db) as memory, Queue(memory) as queue:
        file = place.folder / "em.yaml"
        jobs = queue.add_workflow_runs(name, ({"n": n} for n in range(RUNS)), file=file)
        workers = [place.worker(), place.worker()]
        while place.effects().total() < RUNS * 5 // 2:
            time.sleep(0.05)
        workers[0].send_signal(signal.SIGKILL)
        workers[0].wait()
        workers[1].wait()
        report, effects = queue.reports(jobs), place.effects()
        twice = sum(number - 1 for number in effects.values())
        steps = {f"{n}-{step}" for n in range(RUNS) for step in range(1, 6)}
        missing = len(steps - effects.keys())
        complete, waiting = report.done, len(report.waiting)
        lost = RUNS - complete - waiting + (missing if name == "keyed" else 0)
        lost += waiting if name == "keyed" else 0
        # A run that asks stopped in one of its steps: the others are there.
        lost += max(0, missing - 5 * waiting)
        print(
            f"    {store}, {name}: {complete} complete, {waiting} need input, "
            f"{len(report.failed)} failed; {twice} effects twice, {missing} not made"
        )
    what = "with idempotency keys" if name == "keyed" else "without keys"
    return Figure(
        f"{RUNS:,} queued runs of 5 steps {what}, one of 2 workers killed, {store}: wrong",
        twice + lost, "runs", RUNS, "", twice + lost, 0, False,
    )  # fmt: skip


def jobs() -> Iterator[Figure]:
    """Small runs, one in each job, beside a hundred in each."""
    with places() as found:
        for store, place in found:
            yield _jobs(store, place)


def _jobs(store: str, place: Place) -> Figure:
    file = place.folder / "em.yaml"
    queueing, doing = {}, {}
    with Memory(place.db) as memory, Queue(memory) as queue:
        idle = min(place.drain() for _ in range(2))
        for chunk in (1, 100):
            runs = [{"n": n} for n in range(SMALL)]
            start = time.perf_counter()
            queue.add_workflow_runs("small", runs, file=file, chunk=chunk)
            queueing[chunk] = SMALL / (time.perf_counter() - start)
            doing[chunk] = SMALL / (place.drain() - idle)
    print(
        f"    {store}: a worker starts and ends in {idle:.2f} s; "
        f"queueing {queueing[1]:,.0f}/s alone, {queueing[100]:,.0f}/s in chunks"
    )
    return Figure(
        f"small runs in chunks of 100, one worker, {store}",
        doing[100], "one run in each job", doing[1], "/s", doing[100] / doing[1],
        # On PostgreSQL both wait for the log's commits most of the time.
        2.0 if store == "SQLite" else None, True,
    )  # fmt: skip


def checkpoints() -> Iterator[Figure]:
    """Subjects by two workers, beside as many processes of one command."""
    with places() as found:
        for store, place in found:
            yield _checkpoints(store, place)


def _checkpoints(store: str, place: Place) -> Figure:
    names = [f"subject {n}" for n in range(2 * SUBJECTS)]
    with Memory(place.db) as memory, Queue(memory) as queue:
        for start in range(0, len(names), 200):
            memory.observe_many(
                {"subject": who, "type": "Trip", "record": {"id": n, "km": n * 1.5}}
                for who in names[start : start + 200]
                for n in range(RECORDS)
            )
        idle = min(place.drain(2) for _ in range(2))
        here = seconds(lambda: memory.checkpoint_many(names[:SUBJECTS], processes=2))
        queue.add_checkpoints(names[SUBJECTS:])
        there = place.drain(2) - idle
    return Figure(
        f"{SUBJECTS:,} subjects of {RECORDS} records by 2 workers, {store}",
        SUBJECTS / there, "by 2 processes of one command", SUBJECTS / here, "/s", here / there,
        0.5, True,
    )  # fmt: skip


def commits() -> Iterator[Figure]:
    """What one log takes when everyone writes event by event: it bounds all workers together."""
    with places() as found:
        for store, place in found:
            yield _commits(store, place)


def _commits(store: str, place: Place) -> Figure:
    body = {"step": "s1", "result": {"status": "pending", "items": [1, 2, 3]}, "duration_ms": 1.5}
    with Memory(place.db) as memory:

        def write(stream: str) -> int:
            end, written = time.monotonic() + SECONDS, 0
            while time.monotonic() < end:
                memory.log.append(stream, "step_done", body)
                written += 1
            return written

        rates = {}
        for writers in (1, 4):
            with ThreadPoolExecutor(writers) as pool:
                written = list(pool.map(write, [f"run/{writers}-{n}" for n in range(writers)]))
            rates[writers] = sum(written) / SECONDS
        before = memory.store.health()
        for start in range(0, BULK, 1_000):
            memory.log.append_many(
                [
                    Draft(stream=f"run/{n // 5}", kind="step_done", body=body)
                    for n in range(start, start + 1_000)
                ]
            )
        after = memory.store.health()
    grown = (after.size_bytes - before.size_bytes) / BULK
    print(f"    {store}: {grown:,.0f} bytes for each event")
    return Figure(
        f"events committed one by one by 4 writers, {store}",
        rates[4], "by one", rates[1], "/s", rates[4] / rates[1], None, True,
    )  # fmt: skip
