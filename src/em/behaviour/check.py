"""Check: does the world still look as it did?"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from em.errors import UsageError

T = TypeVar("T")

THRESHOLD = 0.8


class Check(Generic[T]):
    """What of the environment decides whether a recorded call is safe to make again.

    capture: called with the tool's arguments (those that it names); what it returns is kept as
        JSON and restored by the type it is annotated to return.
    compare: called with what is there now and what was there then. It says yes or no, or gives a
        score that must reach `threshold`.
    """

    def __init__(
        self,
        capture: Callable[..., T],
        compare: Callable[[T, T], bool | float],
        *,
        threshold: float = THRESHOLD,
    ) -> None:
        for name, function in (("capture", capture), ("compare", compare)):
            if not callable(function):
                raise UsageError(
                    f"a {type(function).__name__} can't be called", place=f"Check, {name}"
                )
        if inspect.iscoroutinefunction(compare):
            raise UsageError(
                "it is async, and compares only what was captured",
                place="Check, compare",
                fix="do what takes time in capture, which may be async",
            )
        self.capture = capture
        self.compare = compare
        self.threshold = threshold

    def passes(self, verdict: Any) -> bool:
        """Whether what `compare` said is good enough: yes, or a score of any kind of number."""
        if isinstance(verdict, Awaitable):
            if isinstance(verdict, Coroutine):
                verdict.close()
            raise UsageError(
                "its compare is async, and says nothing until it is awaited",
                place="Check, compare",
                fix="do what takes time in capture, which may be async",
            )
        if isinstance(verdict, int) or not hasattr(verdict, "__float__"):
            return bool(verdict)
        return float(verdict) >= self.threshold
