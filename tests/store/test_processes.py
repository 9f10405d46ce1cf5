"""Several processes, threads and event loops write at once; some are killed while they do."""

import asyncio
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from em import AsyncMemory
from em.log.event import EventQuery
from em.log.verify import verify
from em.store import Store, open_store

APPENDER = Path(__file__).with_name("appender.py")


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "em.db")
    make: Callable[[], str] = request.getfixturevalue("new_database")
    return make()


def start(address: str, name: str, batches: int, threads: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, str(APPENDER), address, name, str(batches), str(threads)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def batches_in(store: Store) -> Counter[tuple[str, int, int]]:
    """How many events of each batch are there."""
    found: Counter[tuple[str, int, int]] = Counter()
    for event in store.read(EventQuery()):
        assert event.body is not None
        found[(event.body["by"], event.body["batch"], event.body["of"])] += 1
    return found


def assert_whole(store: Store) -> set[tuple[str, int]]:
    """The log verifies and holds only whole batches; which ones."""
    assert verify(store).ok
    found = batches_in(store)
    for (name, batch, size), there in found.items():
        assert there == size, f"{there} of {size} events of batch {batch} of {name}"
    return {(name, batch) for name, batch, _ in found}


def test_processes_that_start_together_on_a_new_log_lose_and_double_nothing(address: str) -> None:
    processes = [start(address, f"p{n}", 25) for n in range(4)]
    for process in processes:
        assert process.stdout is not None
        acknowledged = process.stdout.read().split()
        process.stdout.close()
        assert process.wait() == 0
        assert len(acknowledged) == 25
    with open_store(address) as store:
        assert assert_whole(store) == {(f"p{n}", batch) for n in range(4) for batch in range(25)}
        seqs = [event.seq for event in store.read(EventQuery())]
        assert seqs == sorted(set(seqs))


def test_followers_skip_no_late_commit_of_32_writers_though_some_are_killed(address: str) -> None:
    open_store(address).close()
    processes = [start(address, f"p{n}", 6 if n % 2 else 1_000_000, 8) for n in range(4)]
    chance = random.Random(3)
    seen: list[str] = []
    with open_store(address) as store:
        last, running = 0, True
        while running:
            running = any(process.poll() is None for process in processes)
            for event in store.read(EventQuery(after=last)):
                last = event.seq
                seen.append(event.id)
            if processes[1].poll() == processes[3].poll() == 0 and chance.random() < 0.5:
                processes[0].kill()
                processes[2].kill()
        assert seen == [event.id for event in store.read(EventQuery())]
        assert_whole(store)
    for process in processes:
        assert process.stdout is not None
        process.stdout.close()
    assert [process.wait() for process in processes] == [-signal.SIGKILL, 0, -signal.SIGKILL, 0]


def test_kill_9_during_appends_loses_no_acknowledged_batch_and_leaves_no_half_one(
    address: str,
) -> None:
    rounds = 25 if "://" not in address else 8
    chance = random.Random(9)
    expected: set[tuple[str, int]] = set()
    for number in range(rounds):
        process = start(address, f"r{number}", 1_000_000)
        assert process.stdout is not None
        first = process.stdout.readline()  # it has begun; now let it run a little
        time.sleep(chance.random() * 0.08)
        process.send_signal(signal.SIGKILL)
        acknowledged = [first, *process.stdout.read().splitlines(keepends=True)]
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        # A number without its end of line was cut while it was printed: say nothing of it.
        expected |= {(f"r{number}", int(line)) for line in acknowledged if line.endswith("\n")}
        with open_store(address) as store:
            there = assert_whole(store)
            assert expected <= there
    assert len(expected) > rounds


def test_several_event_loops_write_to_one_log(address: str) -> None:
    failures: list[BaseException] = []

    async def work(name: int) -> None:
        async with AsyncMemory(address) as memory:
            await asyncio.gather(*(memory.observe("ana", f"{name}.{n}") for n in range(25)))

    def loop(name: int) -> None:
        try:
            asyncio.run(work(name))
        except BaseException as error:  # noqa: BLE001 - a thread's failure is reported by the test
            failures.append(error)

    threads = [threading.Thread(target=loop, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with open_store(address) as store:
        said = [event.body["text"] for event in store.read(EventQuery()) if event.body]
        assert sorted(said) == sorted(f"{a}.{b}" for a in range(4) for b in range(25))
        assert verify(store).ok


def test_a_forked_child_uses_connections_of_its_own(address: str) -> None:
    with open_store(address) as store:
        list(store.read(EventQuery()))
        code = (
            "import os, sys\n"
            "from em import Memory\n"
            "memory = Memory(sys.argv[1])\n"
            "memory.observe('ana', 'parent')\n"
            "child = os.fork()\n"
            "memory.observe('ana', 'child' if child == 0 else 'parent again')\n"
            "sys.exit(0 if child == 0 else os.waitstatus_to_exitcode(os.wait()[1]))\n"
        )
        subprocess.run([sys.executable, "-c", code, address], check=True, timeout=60)
        said = [event.body["text"] for event in store.read(EventQuery()) if event.body]
        assert sorted(said) == ["child", "parent", "parent again"]
        assert verify(store).ok


def test_the_threads_of_a_forked_child_share_its_connections(address: str) -> None:
    code = (
        "import os, sys, threading\n"
        "from em import Memory\n"
        "memory = Memory(sys.argv[1])\n"
        "memory.observe('ana', 'parent')\n"
        "if os.fork():\n"
        "    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "start, failed = threading.Barrier(6), []\n"
        "def observe():\n"
        "    start.wait()\n"
        "    try:\n"
        "        memory.observe('ana', 'child')\n"
        "    except Exception as error:\n"
        "        failed.append(error)\n"
        "threads = [threading.Thread(target=observe) for _ in range(6)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "sys.exit(str(failed) if failed else 0)\n"
    )
    for _ in range(3):
        subprocess.run([sys.executable, "-c", code, address], check=True, timeout=60)
    with open_store(address) as store:
        texts = [event.body["text"] for event in store.read(EventQuery()) if event.body]
    assert sorted(texts) == ["child"] * 18 + ["parent"] * 3
