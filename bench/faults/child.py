"""A process that does one act until it is killed. Each line that it prints is acknowledged.

python -m bench.faults.child ACT FOLDER DB TURN [FAULT]
"""

import os
import resource
import sys
import threading
import time
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path

from em.errors import EmError
from em.values import times

STEPS = (0, -86_400, 3_600, 400 * 86_400, -5, 0)
"""Seconds that a clock which steps is wrong, one after the other."""
ROOM = 300_000
"""Bytes that a file may grow on a full disk."""
THREADS, BATCHES = 32, 4


def _step_the_clock() -> None:
    """Let the clock jump back and forth, every 20 ms."""
    real, began = time.time_ns, time.monotonic()

    def wrong() -> int:
        return STEPS[int((time.monotonic() - began) / 0.02) % len(STEPS)]

    time.time_ns = lambda: real() + wrong() * 10**9
    times._wrong = lambda: datetime.now(UTC) + timedelta(seconds=wrong())  # type: ignore[attr-defined]
    # Modules have imported the function itself.
    times.now.__code__ = (lambda: _wrong()).__code__  # type: ignore[name-defined]  # noqa: F821, PLW0108 - it runs there


def _fill_the_disk(folder: Path) -> None:
    """Let no file become larger than the largest one is now, and some."""
    size = max((path.stat().st_size for path in folder.glob("em.db*")), default=0) + ROOM
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def _become_nobody(_folder: Path) -> None:
    """Give up the rights of root, who may write anywhere."""
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def _many_threads(db: str, turn: int) -> None:
    """Write with many threads at once; acknowledge each batch."""
    from em import Memory

    with Memory(db) as memory:
        start = threading.Barrier(THREADS)

        def write(thread: int) -> None:
            start.wait()
            for number in range(BATCHES):
                name = f"{turn}.{thread}-{number}"
                memory.observe_many((f"s{name}", f"{name} {part}/5") for part in range(5))
                os.write(1, f"{name}\n".encode())

        threads = [threading.Thread(target=write, args=(n,)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main(name: str, folder: str, db: str, turn: str, fault: str = "") -> int:
    """Do the act; return 3 if an error of em ended it, and 1 for any other exception."""
    from bench.faults.act import ACTS

    print("begun", flush=True)
    try:
        if fault == "threads":
            _many_threads(db, int(turn))
            return 0
        faults = {"full": _fill_the_disk, "read-only": _become_nobody}
        if fault == "clock":
            _step_the_clock()
        elif fault:
            faults[fault](Path(folder))
        for done in ACTS[name](Path(folder), db).work(int(turn)):
            print(done, flush=True)
    except EmError as error:
        print(f"error {error.code}", file=sys.stderr, flush=True)
        return 3
    except Exception:  # noqa: BLE001 - the bench shows it
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
