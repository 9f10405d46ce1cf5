"""The threads in which requests are handled: a bounded number.

A thread can't be ended from outside. Work on what others sent looks at its deadline (`em.deadline`)
and ends by itself; the number of threads bounds what doesn't.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from em import deadline

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = min(32, 4 * (os.cpu_count() or 1) + 4)
STUCK = 300.0
"""Seconds beyond its deadline after which a thread counts as stuck."""


class Threads(ThreadPoolExecutor):
    """Does blocking work. What waited for a thread until its deadline is not begun."""

    def __init__(self) -> None:
        super().__init__(AT_ONCE, thread_name_prefix="em-serve")
        self._working: dict[int, deadline.Deadline] = {}

    def submit(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do work in a thread, unless its deadline is over by then."""
        limit = deadline.current()
        return super().submit(self._do, limit, lambda: work(*args, **kwargs))

    def _do(self, limit: deadline.Deadline | None, work: Callable[[], T]) -> T:
        if limit is None:
            return work()
        limit.check()
        thread = threading.get_ident()
        self._working[thread] = limit
        try:
            return work()
        finally:
            del self._working[thread]

    @property
    def are_stuck(self) -> bool:
        """Whether every thread is long past its deadline: only a new process helps."""
        late = time.monotonic() - STUCK
        return sum(one.at < late for one in [*self._working.values()]) >= AT_ONCE
