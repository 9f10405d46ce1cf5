"""Workers of the queue: killed one after the other while they run workflows with effects."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.faults.act import ROOT, STEPS, Verdict, Workflow, World
from em import Memory
from em.work.queue import Queue

RUNS = 8
"""Runs that are queued for each kill."""
TOOLS = """
from pathlib import Path
from bench.faults.act import World

world = World(Path("."))


def keyed(n: str, step: int, idempotency_key: str) -> str:
    return world.keyed(n, step, idempotency_key)


def plain(n: str, step: int) -> str:
    return world.plain(n, step)
"""


def killed(folder: Path, db: str, kills: int, draw: random.Random) -> tuple[Sequence[str], Verdict]:
    """Queue runs, kill workers, and let a last one finish."""
    Workflow(folder, db).prepare()
    flow = (folder / "flow.yaml").read_text()
    (folder / "em.yaml").write_text(f"work: {{lease: 1}}\n{flow}")
    (folder / "tools.py").write_text(TOOLS)
    world = World(folder)
    with Memory(db) as memory, Queue(memory) as queue:
        names = [f"w{n}" for n in range(kills * RUNS)]
        params = [{"n": name} for name in names]
        jobs = queue.add_workflow_runs("six", params, file=folder / "em.yaml")
        for _ in range(kills):
            worker = _worker(folder, db)
            before = world.made().total()
            _wait_for_work(worker, world, before)
            time.sleep(draw.uniform(0, 0.3))
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        _worker(folder, db).wait()
        report = queue.reports(jobs)
    made = world.made()
    effects = {f"{name}-{step}" for name in names for step in range(STEPS)}
    # A run that was killed in an effect without a key asks whether it happened, and waits.
    waiting = len(report.waiting)
    lost = max(0, len(effects - made.keys()) - STEPS * waiting) + len(names) - report.done - waiting
    doubled = sum(n - 1 for n in made.values()) + len(made.keys() - effects)
    said = f"{len(report.failed)} failed, {waiting} ask" if waiting or lost else ""
    return names[: report.done], Verdict(lost, doubled, said)


def _worker(folder: Path, db: str) -> "subprocess.Popen[bytes]":
    words = ["-m", "em", "worker", "--db", db, "--tools", "tools.py", "--drain"]
    with (folder / "worker.err").open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )


def _wait_for_work(worker: "subprocess.Popen[bytes]", world: World, before: int) -> None:
    """Wait until a worker has begun: it takes a while to start."""
    while worker.poll() is None and world.made().total() == before:
        time.sleep(0.02)
