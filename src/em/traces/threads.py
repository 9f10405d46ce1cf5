"""Threads, pools and processes that a recorded agent uses, and what a recording hands on to them.

The recording that a call belongs to travels in a context variable. Python hands it on to asyncio's
tasks and `to_thread`; pools of threads hand it on from the first recording on. A thread may serve
many agents, so it only gets to know which recording it began in (`Beside`): a call there makes
that recording incomplete, also when it has ended. What goes to another process is not seen.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol


class Beside(NamedTuple):
    """What a thread holds in the place of the recording, or the call, that it was started in."""

    of: Any


class Markable(Protocol):
    """A recording, as far as what runs beside it is concerned."""

    def mark_incomplete(self, why: str) -> None:
        """Note that calls may be missing."""


_followed: dict[ContextVar[Any], type[Markable] | None] = {}
_lock = threading.Lock()


def follow_into_pools(variable: ContextVar[Any], recording: type[Markable] | None = None) -> None:
    """Hand on what this variable holds to the work of thread pools; None is not handed on.

    recording: the class of what it holds for an agent whose calls are recorded; threads and other
        processes are followed too then. It is never taken back: another library may have wrapped
        the same methods in the meantime.
    """
    with _lock:
        is_first = not _followed
        _followed.setdefault(variable, recording)
    if is_first:
        _wrap_all()


def _wrap_all() -> None:
    # Here, since an agent may import them while it is recorded.
    from concurrent.futures.process import ProcessPoolExecutor
    from multiprocessing.pool import Pool, ThreadPool
    from multiprocessing.process import BaseProcess

    elsewhere = (ProcessPoolExecutor, Pool)
    for pools in (ThreadPoolExecutor, ProcessPoolExecutor):
        _wrap_pool(pools, "submit", elsewhere, ThreadPool)
    for name in ("apply_async", "_map_async", "imap", "imap_unordered"):
        _wrap_pool(Pool, name, elsewhere, ThreadPool)
    _wrap_start(threading.Thread, _started_thread)
    _wrap_start(BaseProcess, lambda _process: _note_elsewhere("a process"))


def _wrap_pool(pools: Any, name: str, elsewhere: tuple[type, ...], threads: type) -> None:
    """Let a method of pools that takes work hand on what is around it."""
    method = getattr(pools, name)

    @functools.wraps(method)
    def within(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        around = [(one, value) for one in _followed if (value := one.get()) is not None]
        if not around:
            return method(pool, function, *args, **kwargs)
        if isinstance(pool, elsewhere) and not isinstance(pool, threads):
            _note_elsewhere(type(pool).__name__)
        # What runs in another interpreter can't be recorded, and must be pickled as it is.
        elif type(pool).__name__ != "InterpreterPoolExecutor":
            function = functools.partial(_within, around, function)
        # The threads that a pool starts serve others too.
        return _within([(one, None) for one, _ in around], method, pool, function, *args, **kwargs)

    setattr(pools, name, within)


def _wrap_start(kind: Any, before: Callable[[Any], None]) -> None:
    start = kind.start

    @functools.wraps(start)
    def noted(one: Any) -> None:
        before(one)
        start(one)

    kind.start = noted


def _started_thread(thread: Any) -> None:
    around = [
        (one, value if isinstance(value, Beside) else Beside(value))
        for one, recording in _followed.items()
        if recording is not None and (value := one.get()) is not None
    ]
    if around:
        with suppress(AttributeError):  # of a class with slots
            thread.run = functools.partial(_within, around, thread.run)


def _note_elsewhere(what: str) -> None:
    for one, recording in _followed.items():
        value = one.get()
        if recording is not None and isinstance(value, recording):
            value.mark_incomplete(f"work was given to another process ({what}): its calls are lost")


def _within(
    around: Sequence[tuple[ContextVar[Any], Any]],
    function: Callable[..., Any],
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Call a function with these values of context variables."""
    tokens = [(variable, variable.set(value)) for variable, value in around]
    try:
        return function(*args, **kwargs)
    finally:
        for variable, token in tokens:
            variable.reset(token)
