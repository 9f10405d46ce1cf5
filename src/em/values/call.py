"""Facts about a call, wherever it is made: its effect, its cost, how a failure was fixed."""

from typing import Any, Literal

import msgspec

from em.values.canonical import Json

Effect = Literal["read", "write"]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the attempt cost its agent."""

    tokens: int | None = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    model_calls: int | None = None
    calls: int | None = None


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """How to go on after a step failed."""

    strategy: Literal["modify_args", "skip", "fail"]
    args: Json = {}
    default: Any = None
    reason: str = ""
