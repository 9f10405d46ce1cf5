"""Check: does the world still look as it did?"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from em.errors import UsageError

T = TypeVar("T")

THRESHOLD = 0.8


class Check(Generic[T]):
    """Decide from the environment whether a recorded call is safe to make again.

    ```python
    from em import Check, Engine

    shop = {"price": 3}
    engine = Engine()

    @engine.function(pre_check=Check(lambda: shop["price"], lambda now, then: now == then))
    def buy(item: str) -> str:
        return f"bought {item} for {shop['price']}"

    engine.set_agent(lambda item: buy(item))
    assert not engine("tea") and engine("tea").hit
    shop["price"] = 4  # the check does not pass: the agent decides
    assert engine("tea").value == "bought tea for 4"
    ```

    capture: called with those of the tool's arguments that it names. What it returns is stored as
        JSON and restored by its return annotation.
    compare: called with the capture of now and the capture of then. It returns a bool, or a score
        that must reach `threshold`.
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
                    f"expected a function, got a {type(function).__name__}", place=f"Check, {name}"
                )
        if inspect.iscoroutinefunction(compare):
            raise UsageError(
                "compare must not be async: it only compares two captures",
                place="Check, compare",
                fix="do the slow part in capture, which may be async",
            )
        self.capture = capture
        self.compare = compare
        self.threshold = threshold

    def passes(self, verdict: Any) -> bool:
        """Return whether a verdict of `compare` passes: true, or a score that is high enough."""
        if isinstance(verdict, Awaitable):
            if isinstance(verdict, Coroutine):
                verdict.close()
            raise UsageError(
                "compare returned an awaitable, and must return a bool or a score",
                place="Check, compare",
                fix="do the slow part in capture, which may be async",
            )
        if isinstance(verdict, int) or not hasattr(verdict, "__float__"):
            return bool(verdict)
        return float(verdict) >= self.threshold
