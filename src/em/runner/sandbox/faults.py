"""What every back end says in the same words: arguments on their way in, and what went wrong."""

from collections.abc import Sequence
from typing import Any

from em.errors import InputError, SandboxFault, SandboxMemory, SandboxOutput, SandboxTimeout
from em.runner.sandbox.inside.plain import NotPlain, plain
from em.runner.sandbox.sandbox import Limits

MAX_MESSAGE = 2_000


def plain_arguments(
    function: str, args: dict[str, Any], positional: Sequence[Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as JSON; what is none is the caller's mistake."""
    try:
        return plain(list(positional)), plain(args)
    except NotPlain as error:
        raise InputError(
            f"an argument can't go into the sandbox: {error}", place=f"arguments of {function}"
        ) from None


def fault(kind: str, message: str, line: int) -> SandboxFault:
    """The code raised."""
    reason = message[:MAX_MESSAGE]
    return SandboxFault(
        f"{kind}: {reason}" if reason else kind,
        place=f"line {line}" if line else "",
        type=kind,
        reason=reason,
        line=line,
    )


def no_such_function(name: str) -> SandboxFault:
    """A function that the code does not define."""
    return SandboxFault(
        f"the code defines no function {name!r}",
        fix="write it",
        type="NameError",
        reason=f"no function {name!r}",
        line=0,
    )


def too_slow(limits: Limits) -> SandboxTimeout:
    """It ran longer than it may."""
    return SandboxTimeout(
        f"no result within {limits.seconds:g} s", fix="make it faster, or raise Limits.seconds"
    )


def too_much_memory(limits: Limits) -> SandboxMemory:
    """It asked for more memory than it may have."""
    return SandboxMemory(
        f"it needs more than {limits.memory_bytes:,} bytes of memory",
        fix="make it smaller, or raise Limits.memory_bytes",
    )


def too_large(limits: Limits) -> SandboxOutput:
    """Its result is larger than it may be."""
    return SandboxOutput(
        f"its result is more than {limits.output_bytes:,} bytes of JSON",
        fix="return less, or raise Limits.output_bytes",
    )
