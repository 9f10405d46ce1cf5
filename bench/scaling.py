"""Queued work: single jobs beside chunks, checkpoints by workers."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure, seconds
from bench.server import postgres_address
from em import Draft, Memory
from em.work.queue import Queue

SMALL = int(os.environ.get("EM_BENCH_JOBS", "2000"))
SUBJECTS = int(os.environ.get("EM_BENCH_SUBJECTS", "2000"))
RECORDS = 20
SECONDS = 5
BULK = 50_000

TOOLS = """
def look(n: int) -> int:
    return n
"""


def workflows() -> str:
    step = '{name: s, tool: look, effect: read, inputs: {n: "{{ params.n }}"}}'
    head = "    params: {n: {type: integer}}\n    steps:\n"
    return f"work: {{lease: 5}}\nworkflows:\n  small:\n{head}      - {step}\n"


class Place:
    """A folder with workflows and tools, and a log."""

    def __init__(self, folder: str, db: str) -> None:
        self.folder = Path(folder)
        self.db = db
        (self.folder / "em.yaml").write_text(workflows())
        (self.folder / "tools.py").write_text(TOOLS)

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
