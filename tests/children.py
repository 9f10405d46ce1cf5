"""Waiting for processes that a test started.

The limits are for processes that hang. A slow machine must not reach them: wait for progress, and
measure no time.
"""

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
