"""Processes that a test starts, and waiting for them.

The limits are for processes that hang. A slow machine must not reach them: wait for progress, and
measure no time.
"""

import subprocess
import sys
import time
from collections.abc import Callable

LIMIT = 600.0
"""Seconds without progress after which a test fails."""


def wait_until(holds: Callable[[], object], progress: Callable[[], object] = lambda: None) -> None:
    """Wait until `holds` returns something true. The limit starts anew when `progress` changes."""
    deadline, seen = time.monotonic() + LIMIT, progress()
    while not holds():
        if time.monotonic() > deadline:
            now = progress()
            assert now != seen, f"no progress in {LIMIT:.0f} seconds"
            deadline, seen = time.monotonic() + LIMIT, now
        time.sleep(0.02)


MANY_THREADS = """
import os, sys
from threading import Barrier, Thread
{imports}
for _ in range(8):
    if pid := os.fork():
        _, status = os.waitpid(pid, 0)
        if status:
            sys.exit(f"one ended with {{os.waitstatus_to_exitcode(status)}}")
    else:
        break
else:
    sys.exit()
sys.setswitchinterval(1e-6)
start = Barrier(8)
failed = []
def use():
    start.wait()
    try:
        {statement}
    except Exception as error:
        failed.append(error)
threads = [Thread(target=use) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(str(failed) if failed else 0)
"""


def use_first_in_many_threads(imports: str, statement: str) -> None:
    """Let 8 threads be the first to run a statement, 8 times, each in a fresh process."""
    code = MANY_THREADS.format(imports=imports, statement=statement)
    subprocess.run([sys.executable, "-c", code], check=True)
