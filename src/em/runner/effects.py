"""Effects: what a machine wants done. It yields them, a driver does them and sends the outcome.

A machine is a generator, so that its logic is written once for plain code and for asyncio. The
runner's and the behaviour engine's machines yield the same effects.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec

from em.values.canonical import Json

T = TypeVar("T")


class CallTool(msgspec.Struct, gc=False):
    """Call a function with these arguments.

    isolated: the call must not disturb its surroundings. Under asyncio a plain function runs in a
        thread, and what would end the process (SystemExit) fails the call only. Otherwise the
        function is called just where the agent would call it, and the machine is given whatever
        it raises.
    """

    function: Callable[..., Any]
    args: Json
    is_async: bool = False
    timeout: float | None = None
    positional: tuple[Any, ...] = ()
    isolated: bool = True


class CallMany(msgspec.Struct, gc=False):
    """Make these calls, at most `limit` at a time; the outcomes come in the same order."""

    isolated: ClassVar[bool] = True
    calls: Sequence[CallTool]
    limit: int


class Outcome(msgspec.Struct, gc=False):
    """What one of many calls returned or raised."""

    value: Any = None
    error: Exception | None = None


class Wait(msgspec.Struct, gc=False):
    """Wait for some seconds."""

    isolated: ClassVar[bool] = True
    seconds: float


class Consult(msgspec.Struct, gc=False):
    """Read or write a store: under asyncio in a thread. The machine is given what it raises."""

    isolated: ClassVar[bool] = False
    work: Callable[[], Any]


class Write(msgspec.Struct, gc=False):
    """Write these notes to the journal before going on. If that fails, the driver raises."""

    isolated: ClassVar[bool] = True
    notes: list[tuple[str, Json]]


Effect = CallTool | CallMany | Wait | Consult | Write
Effects = Generator[Effect, Any, T]
"""A machine under way: it yields effects and returns a T."""
