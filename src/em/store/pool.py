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
        self._used = 0
        self._waiting = 0
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
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
        with self._lock:
            while self._used >= self._limit:
                self._waiting += 1
                try:
                    self._freed.wait()
                finally:
                    self._waiting -= 1
            if self._closed:
                raise StoreError("this store was closed", fix="open it again")
            self._used += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._open_one()
        except BaseException:
            self._put_back(None)
            raise

    def give_back(self, connection: C) -> None:
        """Return a connection; one that can't be used any more is closed."""
        keep = False
        try:
            keep = self._usable(connection) and not self._closed
            if not keep:
                self._close_one(connection)
        finally:
            self._put_back(connection if keep else None)

    def _put_back(self, connection: C | None) -> None:
        with self._lock:
            self._used -= 1
            if connection is not None:
                self._idle.append(connection)
            if self._waiting:
                self._freed.notify()

    def rest(self) -> Callable[[], None]:
        """Wait a little until nothing is in use, and keep it so; what is returned ends that."""
        deadline = time.monotonic() + FORK_WAIT
        self._lock.acquire()
        while self._used and time.monotonic() < deadline:
            self._lock.release()
            time.sleep(0.001)
            self._lock.acquire()
        return self._lock.release

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
