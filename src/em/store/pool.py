"""A pool of connections: one for each thread that is at work, none shared, none across a fork."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from em.errors import StoreError

C = TypeVar("C")


FORK_WAIT = 2.0
"""Seconds that a fork waits for connections to come to rest."""


class Pool(Generic[C]):
    """Hands out idle connections, opens more when none is idle, at most `limit` at a time.

    A fork waits until no connection is in use: a child must not inherit a driver's lock that a
    thread held, since that thread is not there to let go of it.
    """

    def __init__(
        self,
        open_one: Callable[[], C],
        usable: Callable[[C], bool],
        close_one: Callable[[C], None],
        limit: int,
    ) -> None:
        self._open_one = open_one
        self._usable = usable
        self._close_one = close_one
        self._limit = limit
        self._closed = False
        self._start()
        _pools.add(self)

    def _start(self) -> None:
        self._pid = os.getpid()
        self._idle: list[C] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self._limit)
        self._write_lock = threading.RLock()

    def write_lock(self) -> "threading.RLock":
        """The lock for those who write, of this process."""
        if self._pid != os.getpid():
            self._start()
        return self._write_lock

    @contextmanager
    def connection(self) -> Iterator[C]:
        """A connection for this thread alone, for as long as the block lasts."""
        connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def take(self) -> C:
        """A connection for this thread alone, to be given back."""
        if self._pid != os.getpid():
            # A child process must not touch the parent's connections, not even to close them.
            self._start()
        taken = False
        try:
            taken = self._slots.acquire()
            return self._idle_or_new()
        except BaseException:
            if taken:
                self._slots.release()
            raise

    def _idle_or_new(self) -> C:
        with self._lock:
            if self._closed:
                raise StoreError("this store was closed", fix="open it again")
            if self._idle:
                return self._idle.pop()
        return self._open_one()

    def give_back(self, connection: C) -> None:
        """Return a connection; one that can't be used any more is closed."""
        try:
            usable = self._usable(connection)
            with self._lock:
                if usable and not self._closed:
                    self._idle.append(connection)
                    return
            self._close_one(connection)
        finally:
            self._slots.release()

    def rest(self) -> Callable[[], None]:
        """Wait a little until nothing is in use, and keep it so; what is returned ends that."""
        deadline = time.monotonic() + FORK_WAIT
        locked = self._write_lock.acquire(timeout=FORK_WAIT)
        slots = 0
        while slots < self._limit and self._slots.acquire(
            timeout=max(0.0, deadline - time.monotonic())
        ):
            slots += 1

        def end() -> None:
            for _ in range(slots):
                self._slots.release()
            if locked:
                self._write_lock.release()

        return end

    def drop_idle(self) -> None:
        """Close what is idle, so that the next use connects anew."""
        with self._lock:
            idle, self._idle = self._idle, []
        if self._pid == os.getpid():
            for connection in idle:
                self._close_one(connection)

    def close(self) -> None:
        """Close what is idle now, and the rest when it comes back."""
        self._closed = True
        self.drop_idle()


_pools: weakref.WeakSet[Pool[Any]] = weakref.WeakSet()
_resting: list[Callable[[], None]] = []


def _before_fork() -> None:
    _resting.extend(pool.rest() for pool in list(_pools))


def _after_fork_in_parent() -> None:
    while _resting:
        _resting.pop()()


# In the child every pool starts anew when it is used: see `take`.
os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_resting.clear,
)
