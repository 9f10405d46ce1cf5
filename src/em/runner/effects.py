"""What a run wants done: the machine yields these, a driver does them."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from em.values.canonical import Json


class CallTool(msgspec.Struct, gc=False):
    """Call a function with these arguments."""

    function: Callable[..., Any]
    args: Json
    is_async: bool = False
    timeout: float | None = None


class CallMany(msgspec.Struct, gc=False):
    """Do these calls, at most `limit` at a time; the outcomes in their order."""

    calls: Sequence[CallTool]
    limit: int


class Outcome(msgspec.Struct, gc=False):
    """What became of one of many calls."""

    value: Any = None
    error: Exception | None = None


class Wait(msgspec.Struct, gc=False):
    """Let some time pass."""

    seconds: float


class AskForFix(msgspec.Struct, gc=False):
    """Ask whoever mends failing steps."""

    ask: Callable[[Json], Any]
    context: Json


class Write(msgspec.Struct, gc=False):
    """Keep these notes before going on."""

    notes: list[tuple[str, Json]]


Effect = CallTool | CallMany | Wait | AskForFix | Write
