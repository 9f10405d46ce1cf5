"""Atomic: a checkpoint that is killed leaves the last good state, and the next one goes on."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from em import Memory

RECORDS = 3_000
CHECKPOINT = """
import sys
from em import Memory
with Memory(sys.argv[1]) as memory:
    print("begun", flush=True)
    memory.checkpoint("ana", rebuild=sys.argv[2] == "rebuild")
    print("done", flush=True)
"""


def observe(memory: Memory, start: int, number: int) -> None:
    memory.observe_many(
        {"subject": "ana", "record": {"n": n, "day": "2024-05-02"}, "type": "Thing"}
        for n in range(start, start + number)
    )


def test_a_killed_checkpoint_leaves_the_last_good_state(tmp_path: Path) -> None:
    path = tmp_path / "em.db"
    moments = random.Random(7)
    with Memory(path) as memory:
        observe(memory, 0, RECORDS)
        memory.checkpoint("ana")
        good, killed = RECORDS, 0
        for round_ in range(12):
            observe(memory, good, 50)
            how = "rebuild" if round_ % 2 else "go on"
            command = [sys.executable, "-c", CHECKPOINT, str(path), how]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
                assert worker.stdout is not None
                assert worker.stdout.readline() == "begun\n"
                if round_ > 3:
                    time.sleep(moments.random() * 0.15)
                worker.send_signal(signal.SIGKILL)
                finished = "done" in worker.stdout.read()
                worker.wait(60)
            killed += not finished
            found = [thing.n for thing in memory.state("ana").things]
            # All of it, or nothing of it.
            assert found in (list(range(good)), list(range(good + 50)))
            state = memory.checkpoint("ana")
            good += 50
            assert [thing.n for thing in state.things] == list(range(good))
            assert memory.log.verify().ok
        assert killed  # else nothing was shown


def test_a_killed_checkpoint_of_many_leaves_each_as_it_was_or_as_it_will_be(
    tmp_path: Path,
) -> None:
    path = tmp_path / "em.db"
    names = [f"s{n}" for n in range(200)]
    with Memory(path) as memory:
        memory.observe_many((name, {"n": 1, "type": "Thing"}) for name in names)
        run = f"from em import Memory; Memory({str(path)!r}).checkpoint_many(processes=1)"
        for wait in (0.3, 0.5, 0.8):
            with subprocess.Popen([sys.executable, "-c", run]) as worker:
                time.sleep(wait)
                worker.kill()
        assert memory.checkpoint_many(processes=2) == (200, {})
        assert all([thing.n for thing in memory.state(name).things] == [1] for name in names)
