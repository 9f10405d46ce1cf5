"""A fix: how a run goes on after a step failed."""

from typing import Any, Literal

import msgspec

from em.values.canonical import Json


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """How to go on after a step failed."""

    strategy: Literal["modify_args", "skip", "fail"]
    args: Json = {}
    default: Any = None
    reason: str = ""
