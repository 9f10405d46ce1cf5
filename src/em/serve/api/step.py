"""A step of a trajectory as requests give it. MCP lists it at its start, so it imports little."""

from typing import Annotated, Any

import msgspec

from em.values.canonical import Json


class StepIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a trajectory."""

    thought: str | None = None
    action: Annotated[str, msgspec.Meta(description="The tool that was called.")] | None = None
    args: Json = {}
    observation: Annotated[Any, msgspec.Meta(description="The tool's result.")] = None
    error: Annotated[Any, msgspec.Meta(description="The tool's error.")] = None
