"""`memory_manager`: what a tool may keep beside its result, while its step runs."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from em.errors import InputError, UsageError
from em.runner.tools import Function, Tool, renamed
from em.values.canonical import Json
from em.workflows.slices import as_record

_now: ContextVar["Saving | None"] = ContextVar("em_workflow_step", default=None)
MANAGER = "memory_manager"


class Saving:
    """What the tool of one call saves."""

    __slots__ = ("saved",)

    def __init__(self) -> None:
        self.saved: list[Json] = []


class MemoryManager:
    """The memory of the step that runs, as its tool sees it."""

    def save_step_result(self, step_name: str, result: Any) -> None:
        """Keep a result under a name: a value, or `output`, `classification` and `metadata`.

        It is kept with the result of the step whose tool calls this, or not at all.
        """
        saving = _now.get()
        if saving is None:
            raise UsageError(
                "no workflow step is running here",
                place="memory_manager",
                fix="call it in a tool, while a workflow runs it",
            )
        if isinstance(result, Mapping) and "output" not in result:
            raise InputError("a result has an `output`", place=f"memory_manager, {step_name}")
        saving.saved.append({"name": str(step_name), **as_record(result)})


memory_manager = MemoryManager()


Extras = Callable[[], Json]
"""What is kept beside a result: what the step was given from elsewhere, and warnings."""


def recording(tool: Tool, name: str, extras: Extras) -> Tool:
    """A tool whose result is a record: with what it saved, and what its step was given."""
    made = renamed(tool, name)
    made.function = _recorded(tool.function, tool, extras)
    inner = tool.within
    if inner is not None:
        made.within = lambda timeout: _recorded(inner(timeout), tool, extras)
    return made


def _recorded(function: Function, tool: Tool, extras: Extras) -> Function:
    wants_manager = MANAGER in tool.parameters

    def given(args: Json) -> Json:
        return {**args, MANAGER: memory_manager} if wants_manager else args

    def call(**args: Any) -> Json:
        saving = Saving()
        token = _now.set(saving)
        try:
            value = function(**given(args))
        finally:
            _now.reset(token)
        return _record(value, saving, extras)

    async def acall(**args: Any) -> Json:
        saving = Saving()
        token = _now.set(saving)
        try:
            value = await function(**given(args))
        finally:
            _now.reset(token)
        return _record(value, saving, extras)

    return acall if tool.is_async else call


def _record(value: Any, saving: Saving, extras: Extras) -> Json:
    record = as_record(value) | extras()
    if saving.saved:
        record["saved"] = saving.saved
    return record
