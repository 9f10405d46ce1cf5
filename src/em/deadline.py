"""A deadline for work on what others sent: loops over their texts look at it, so that they end.

A thread can't be ended from outside. Who starts work for somebody (a request of the service, a task
that may be cancelled) sets a deadline around it; `check` raises in that thread once it is over.
It is set as a context variable, so that it holds in threads to which the work is handed.

Where half of something must not stay undone, `suspended` puts the deadline off to its end.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from em.errors import EmError, TookTooLong


class Deadline:
    """A moment at which work must have ended; without `seconds` it has all the time.

    what: what is limited, for the error.
    fix: what the person whose work is ended can do.
    """

    def __init__(self, seconds: float = float("inf"), *, what: str = "", fix: str = "") -> None:
        self._began = time.monotonic()
        self.at = self._began + seconds
        self._error: EmError | None = None
        self._seconds = seconds
        self._what = what
        self._fix = fix

    def end(self, error: EmError) -> None:
        """Let it be over now; `error` is what `check` raises."""
        self._error = error
        self.at = float("-inf")

    def extend(self, seconds: float = float("inf")) -> None:
        """Give so many seconds from the beginning on."""
        self._seconds, self.at = seconds, self._began + seconds

    @property
    def is_over(self) -> bool:
        """Whether the work must end."""
        return time.monotonic() > self.at

    def check(self) -> None:
        """Raise TookTooLong, or the error of `end`, once it is over."""
        if time.monotonic() > self.at:
            raise self._error or self.error()

    def error(self) -> TookTooLong:
        """Return the error for work that is not done in time."""
        return TookTooLong(
            f"not done within {self._seconds:g} seconds", place=self._what, fix=self._fix
        )


_CURRENT: ContextVar[Deadline | None] = ContextVar("em_deadline", default=None)


def current() -> Deadline | None:
    """Return the deadline of what runs here, if it has one."""
    return _CURRENT.get()


def check() -> None:
    """Raise once the deadline of what runs here is over: call it in each turn of a long loop."""
    deadline = _CURRENT.get()
    if deadline is not None:
        deadline.check()


D = TypeVar("D", Deadline, None)


@contextmanager
def until(deadline: D) -> Iterator[D]:
    """Let a deadline hold for what runs in this block."""
    token = _CURRENT.set(deadline)
    try:
        yield deadline
    finally:
        _CURRENT.reset(token)


def suspended() -> AbstractContextManager[None]:
    """Return a block in which no deadline holds: what it does is done as a whole."""
    return until(None)
