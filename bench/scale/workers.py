"""Workers: many subjects checkpointed while workers are killed, and how two stand to one.

The machine may have other work. So the thread that computes is measured without the time that it
waited for a core (`/proc/thread-self/schedstat`): what is left is computing, and waiting for locks,
for the disk and for the interpreter's other threads.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.figure import Figure, seconds
from bench.server import postgres_address
from em import Draft, Memory
from em.state.schema import KIND
from em.values.canonical import canonical
from em.work.queue import Queue

SMALL = int(os.environ.get("EM_BENCH_JOBS", "2000"))
SUBJECTS = {"quick": 2_000, "whole": 100_000}
KILLS = {"quick": 3, "whole": 10}
RECORDS = 20
QUIET = 1.0
"""The load of a machine with nothing else to do."""
SECONDS = 5
BULK = 50_000

TOOLS = """
def look(n: int) -> int:
    return n
"""


def workflows() -> str:
    step = '{name: s, tool: look, effect: read, inputs: {n: "{{ params.n }}"}}'
    head = "    params: {n: {type: integer}}\n    steps:\n"
    return f"workflows:\n  small:\n{head}      - {step}\n"


class Place:
    """A folder with workflows and tools, and a log."""

    def __init__(self, folder: str, db: str) -> None:
        self.folder = Path(folder)
        self.db = db
        (self.folder / "em.yaml").write_text(workflows())
        (self.folder / "tools.py").write_text(TOOLS)

    def worker(self, *, drain: bool = True) -> "subprocess.Popen[bytes]":
        last = ["--drain"] if drain else []
        return subprocess.Popen(
            [sys.executable, "-m", "em", "worker", "--db", self.db, "--tools", "tools.py", *last],
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
        1.2 if store == "SQLite" else None, True,
    )  # fmt: skip


TIMED = """
import os, signal, sys, time
from em import Memory
from em.work import worker

done, own, cpu = 0, 0.0, 0.0
run_items = worker.run_items


def waited():
    return int(open("/proc/thread-self/schedstat").read().split()[1]) / 1e9


def timed(equipment, queued, items):
    global done, own, cpu
    before = time.monotonic(), waited(), time.thread_time()
    found = run_items(equipment, queued, items)
    done += len(items)
    own += time.monotonic() - before[0] - (waited() - before[1])
    cpu += time.thread_time() - before[2]
    return found


worker.run_items = timed
with Memory(sys.argv[1]) as memory:
    running = worker.Worker(memory)
    signal.signal(signal.SIGTERM, lambda *_: running.stop())
    running.run()
print(done, own, cpu)
"""
"""A worker that measures the thread in which it computes."""


def memory_of(pid: int) -> float:
    """The megabytes that a process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(found.split()[1]) / 1024


def fill(db: str, names: Sequence[str]) -> None:
    with Memory(db) as memory:
        for start in range(0, len(names), 500):
            memory.observe_many(
                {"subject": who, "type": "Trip", "record": {"id": n, "km": n * 1.5}}
                for who in names[start : start + 500]
                for n in range(RECORDS)
            )


def figures(size: str) -> Iterator[Figure]:
    """Two workers beside one; then all subjects with kills, beside one process without."""
    total, kills = SUBJECTS[size], KILLS[size]
    names = [f"subject-{n:06d}" for n in range(total)]
    with tempfile.TemporaryDirectory() as folder:
        place = Place(folder, str(Path(folder) / "em.db"))
        print(f"    filling {total:,} subjects with {RECORDS} events each", flush=True)
        print(f"    filled in {seconds(lambda: fill(place.db, names)):,.0f} s", flush=True)
        yield from _two_beside_one(folder, total)
        alone = str(Path(folder) / "alone.db")
        shutil.copyfile(place.db, alone)
        os.environ["EM_TRUSTED_DATABASES"] = alone  # a copy is not trusted as the original is
        with Memory(alone) as memory:
            took = seconds(lambda: memory.checkpoint_many(names, processes=1))
        print(f"    one process, no queue: {took:,.0f} s", flush=True)
        killed = yield from _with_kills(place, total, kills)
        wrong = _differences(place.db, alone, names)
        yield Figure(
            f"{total:,} subjects, a worker killed {killed} times: states unlike one process's",
            wrong, "allowed", 0, "", wrong, 0, False,
        )  # fmt: skip


class Rate(NamedTuple):
    """Subjects per second of all workers together: of their own time, and of CPU time."""

    own: float
    cpu: float


def _two_beside_one(folder: str, total: int) -> Iterator[Figure]:
    """Subjects per second by two workers and by one, in turns."""
    is_quiet = os.getloadavg()[0] < QUIET
    share = max(1_000, total // 20)
    rates: dict[int, list[Rate]] = {1: [], 2: []}
    for turn, workers in enumerate((1, 2, 2, 1)):
        inner = Path(folder) / f"turn-{turn}"
        inner.mkdir()
        place = Place(str(inner), str(inner / "em.db"))
        fill(place.db, [f"subject-{n:06d}" for n in range(share * workers)])
        rates[workers].append(_rate(place, share * workers, workers))
    one, two = (sum(rate.cpu for rate in rates[workers]) / 2 for workers in (1, 2))
    yield Figure(
        "subjects checkpointed by two workers, each CPU second of the threads that compute",
        two, "by one worker", one, "/s", two / one, 1.8, True,
    )  # fmt: skip
    one, two = (sum(rate.own for rate in rates[workers]) / 2 for workers in (1, 2))
    yield Figure(
        "the same, each second without waiting for a core (a bar on a quiet machine)",
        two, "by one worker", one, "/s", two / one, 1.8 if is_quiet else None, True,
    )  # fmt: skip


def _rate(place: Place, subjects: int, workers: int) -> Rate:
    """Add up the rates of all workers while all of them are working."""
    with Memory(place.db) as memory, Queue(memory) as queue:
        started = [
            subprocess.Popen(
                [sys.executable, "-c", TIMED, place.db], cwd=place.folder, stdout=subprocess.PIPE
            )
            for _ in range(workers)
        ]
        _until(lambda: len(queue.workers()) == workers)
        time.sleep(1)
        jobs = queue.add_checkpoints(chunk=min(200, subjects // (5 * workers)))
        _until(lambda: queue.counts(jobs).over == len(jobs))
        for worker in started:
            worker.terminate()
        said = [[float(word) for word in worker.communicate()[0].split()] for worker in started]
    computing = sum(one[2] for one in said) / sum(one[1] for one in said)
    print(
        f"    {workers} of them: {computing:.0%} of their time computing, the rest waiting for "
        f"locks and the disk; {' and '.join(f'{one[0]:,.0f}' for one in said)} subjects"
    )
    worked = [one for one in said if one[0]]
    return Rate(sum(one[0] / one[1] for one in worked), sum(one[0] / one[2] for one in worked))


def _until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.02)


def _with_kills(place: Place, total: int, kills: int) -> Generator[Figure, None, int]:
    """Let two workers do everything, one of which is killed again and again; say how often."""
    draw = random.Random(1)
    memories: list[float] = []
    with Memory(place.db) as memory, Queue(memory) as queue:
        steady, other = place.worker(drain=False), place.worker(drain=False)
        jobs = queue.add_checkpoints(chunk=max(20, min(400, total // (10 * kills))))
        start, killed, slowest = time.monotonic(), 0, 0.0
        while (over := queue.counts(jobs).over) < len(jobs):
            done = over / len(jobs)
            if len(memories) < 20 * done:
                memories.append(memory_of(steady.pid))
            if killed < kills and done > (killed + 1) / (kills + 2):
                time.sleep(draw.uniform(0, 0.5))
                slowest = max(slowest, _killed(queue, other))
                other = place.worker(drain=False)
                killed += 1
            time.sleep(0.1)
        took = time.monotonic() - start
        memories.append(memory_of(steady.pid))
        for worker in (steady, other):
            worker.terminate()
            worker.wait()
    shown = " ".join(f"{one:.0f}" for one in memories)
    print(f"    two workers: {total / took:,.0f}/s by the clock, {killed} kills; MB: {shown}")
    early = max(memories[: max(2, len(memories) // 4)])
    yield Figure(
        "memory of a worker at the end", memories[-1], "after the first quarter", early,
        "MB", memories[-1] / early, 1.2, False,
    )  # fmt: skip
    yield Figure(
        "a killed worker's jobs are queued again, at most", slowest, "allowed", 5.0,
        "s", slowest / 5.0, 1.0, False,
    )  # fmt: skip
    return killed


def _killed(queue: Queue, worker: "subprocess.Popen[bytes]") -> float:
    """Kill a worker; the seconds until the other one has taken its jobs."""
    mine = [name for name, place in queue.workers().items() if place.endswith(f" {worker.pid}")]
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    return seconds(lambda: _until(lambda: not mine or mine[0] not in queue.workers()))


def _differences(db: str, other: str, names: Sequence[str]) -> int:
    """Count the subjects whose states differ, or were written more than once."""
    with Memory(db) as ours, Memory(other) as theirs:
        pairs = ((_states(ours, name), _states(theirs, name)) for name in names)
        return sum(mine != other or len(mine) != 1 for mine, other in pairs)


def _states(memory: Memory, subject: str) -> list[bytes]:
    return [canonical(one.body, subject)[0] for one in memory.store.artefacts(KIND, subject)]


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
