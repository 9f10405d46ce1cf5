"""A tool as the agent calls it: recorded where a run is watched, plain everywhere else."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from em.behaviour.tape import NESTED, Run, current, record_call
from em.behaviour.tool import EngineTool
from em.errors import NotRecordable
from em.runner.drivers import adrive, drive

F = TypeVar("F", bound=Callable[..., Any])


def watched(tool: EngineTool, function: F, watching: Sequence[Run]) -> F:
    """The function, whose calls are noted in the run they belong to, if that is being watched."""
    if tool.is_async:

        @functools.wraps(function)
        async def acall(*args: Any, **kwargs: Any) -> Any:
            run = _run_of(tool, watching)
            if run is None:
                return await function(*args, **kwargs)
            return _given(await adrive(record_call(run, tool, args, kwargs)))

        wrapped: Any = acall
    else:

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            run = _run_of(tool, watching)
            if run is None:
                return function(*args, **kwargs)
            return _given(drive(record_call(run, tool, args, kwargs)))

        wrapped = call
    wrapped.__em_tool__ = tool
    result: F = wrapped
    return result


def _given(outcome: tuple[Any, BaseException | None]) -> Any:
    value, error = outcome
    if error is not None:
        raise error
    return value


def _run_of(tool: EngineTool, watching: Sequence[Run]) -> Run | None:
    run = current.get()
    if run is not None:
        if run in watching:
            return run
        if run is not NESTED:
            run.left = tool.name
        return None
    for other in list(watching):
        # In a thread that does not know whose it is: then that recording may lack this call.
        other.cannot_keep(
            NotRecordable(
                "it was called at the same time from a place that the run does not reach",
                place=f"tool {tool.name}",
                fix="start threads with contextvars.copy_context().run, or use asyncio.to_thread",
            )
        )
    return None
