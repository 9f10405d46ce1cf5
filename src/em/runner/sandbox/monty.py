"""Monty: an interpreter for a subset of Python that has no door to the world.

It starts at once and knows no files, sockets or processes; it runs in worker processes of its own,
so that not even its own mistakes reach this one. `subset.py` says what it does not know.
"""

import atexit
import json
import os
import threading
import weakref
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from keyword import iskeyword
from typing import Any, ClassVar

from em.errors import SandboxBroken, SandboxError
from em.runner.sandbox.faults import (
    fault,
    no_such_function,
    plain_arguments,
    too_large,
    too_much_memory,
    too_slow,
)
from em.runner.sandbox.inside.plain import MAX_DEPTH, NotPlain, plain
from em.runner.sandbox.sandbox import DEFAULT_LIMITS, Limits, Sandbox, Session

_CODE = "<python-input-0>"
"""How monty calls what a session was given first."""

_CHECK = f"""
import json as _em_json
from collections import deque as _em_deque
from dataclasses import is_dataclass as _em_is_dataclass
from datetime import date as _em_date, datetime as _em_datetime, time as _em_time
from decimal import Decimal as _em_decimal

def _em_check(value):
    if value is not None and not isinstance(value, (bool, int, float, str)):
        try:
            _em_json.dumps(value)
        except Exception:
            _em_walk(value, 0)

def _em_walk(value, depth):
    if depth > {MAX_DEPTH}:
        raise TypeError("it is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, (list, tuple, set, frozenset, _em_deque)):
        for item in value:
            _em_walk(item, depth + 1)
    elif isinstance(value, dict):
        for item in value.values():
            _em_walk(item, depth + 1)
    elif not (
        value is None
        or isinstance(value, (bool, int, float, str, _em_decimal, _em_date, _em_datetime, _em_time))
        or _em_is_dataclass(value)
    ):
        kind = type(value).__name__
        raise TypeError(f"a {{kind}} is no plain value; give numbers, texts, lists, mappings")
"""
"""Monty hands over what it can't convert (a function, a range) as a text that describes it: what
is no value is told from a text while it is still inside."""

_CHECKED = "_em_check(_em_result)\n_em_result"
_CHECKER = "<python-input-1>"

_PROCESSES = 1024
"""Sessions at the same time; a worker is started for each when it is needed."""


class MontySandbox(Sandbox):
    """The subset, in under a millisecond."""

    name: ClassVar[str] = "monty"

    @classmethod
    @lru_cache(maxsize=1)
    def missing(cls) -> str:
        """Why it can't be used here."""
        if find_spec("pydantic_monty") is None:
            return "it is not installed (pip install 'em-core[sandbox]')"
        try:
            cls().run("def works(): return 'yes'", "works", {})
        except SandboxError as error:
            return error.message
        return ""

    def open(self, code: str, limits: Limits = DEFAULT_LIMITS) -> Session:
        """A session in one of monty's workers."""
        return _MontySession(code, limits)


class _MontySession(Session):
    def __init__(self, code: str, limits: Limits) -> None:
        self._code, self._limits = code, limits
        self._lock = threading.Lock()
        self._session: Any = None
        self._finish: weakref.finalize[..., Any] | None = None

    def call(self, function: str, args: dict[str, Any], positional: Sequence[Any] = ()) -> Any:
        given, named = plain_arguments(function, args, positional)
        if not function.isidentifier() or iskeyword(function):
            raise no_such_function(function)
        with self._lock:
            if self._session is None or self._finish is None or not self._finish.alive:
                self._start()
            inputs = {"_em_positional": given, "_em_args": named}
            call = f"_em_result = {function}(*_em_positional, **_em_args)\n{_CHECKED}"
            try:
                return self._settled(self._fed(call, inputs))
            except SandboxError as error:
                if error.data.get("reason") == f"name {function!r} is not defined":
                    raise no_such_function(function) from None
                raise

    def _start(self) -> None:
        session = _pool(os.getpid()).checkout(
            limits={
                "max_feed_duration_secs": self._limits.seconds,
                "max_memory": self._limits.memory_bytes,
            },
            os_policy={"sleep": "zero"},
            assert_message_annotations=False,
        )
        session.__enter__()
        self._session = session
        self._finish = weakref.finalize(self, _leave, os.getpid(), session)
        try:
            self._fed(self._code, {})
            self._fed(_CHECK, {})
        except SandboxError:
            self._end()
            raise

    def _fed(self, code: str, inputs: dict[str, Any]) -> Any:
        import pydantic_monty as monty

        try:
            return self._session.feed_run(code, inputs=inputs, print_callback=_drop)
        except (monty.MontyRuntimeError, monty.MontySyntaxError) as error:
            told = self._told(error)
            if told.code != "sandbox_fault":
                self._end()  # stopped in the middle of something: not to be used again
            raise told from None
        except monty.MontyCrashedError as error:
            self._end()
            if getattr(error, "timed_out", False):
                raise too_slow(self._limits) from None
            raise SandboxBroken(f"monty's worker ended: {error}"[:500]) from None
        except BaseException:
            self._end()
            raise

    def _told(self, error: Any) -> SandboxError:
        raised = error.exception()
        kind, message = type(raised).__name__, str(raised)
        if kind == "TimeoutError" and "limit exceeded" in message:
            return too_slow(self._limits)
        if kind == "MemoryError":
            return too_much_memory(self._limits)
        frames = error.traceback()
        if frames and frames[-1].filename == _CHECKER:
            return fault("NotPlain", message, 0)
        lines = [frame.line for frame in frames if frame.filename == _CODE]
        return fault(kind, message, lines[-1] if lines else 0)

    def _settled(self, value: Any) -> Any:
        try:
            result = plain(value, unwrap=_fields)
            size = len(json.dumps(result, separators=(",", ":")))
        except (NotPlain, ValueError) as error:
            raise fault("NotPlain", str(error), 0) from None
        if size > self._limits.output_bytes:
            raise too_large(self._limits)
        return result

    def _end(self) -> None:
        if self._finish is not None:
            self._finish()
        self._session = None

    def close(self) -> None:
        # A call that still runs, in a thread that was left behind, ends by its own limit.
        if self._lock.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._lock.release()


@lru_cache(maxsize=1)
def _pool(_pid: int) -> Any:
    """The workers of this process; a fork gets its own."""
    from pydantic_monty import Monty

    pool = Monty(min_processes=1, max_processes=_PROCESSES)
    pool.__enter__()
    atexit.register(_leave, os.getpid(), pool)
    return pool


def _leave(owner: int, entered: Any) -> None:
    if owner == os.getpid():
        entered.__exit__(None, None, None)


def _drop(_stream: str, _text: str) -> None:
    """What the code prints goes nowhere."""


def _fields(value: Any) -> Any:
    """A dataclass of the sandbox's own as its fields."""
    if type(value).__name__ == "MontyClassProxy" and value.is_dataclass:
        return value.attributes
    return value
