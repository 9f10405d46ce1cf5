"""Traces of runs: a span for each run and for each call that it makes."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from em import telemetry
from em.errors import EmError
from em.runner.drivers import (
    CallMany,
    CallTool,
    Effect,
    Effects,
    WriteNotes,
    adrive,
    drive,
    through,
)
from em.runner.history import read_run, savings
from em.runner.run import RunResult
from em.store.protocol import Store

R = TypeVar("R", bound=RunResult)


def drive_run(name: str, machine: Effects[R], write: WriteNotes, store: Store | None) -> R:
    """Drive a run to its end, in a span with its outcome if anything is traced."""
    if not telemetry.is_on():
        return drive(machine, write)
    with telemetry.span("em.run", {"em.routine": name}) as span:
        result = drive(through(machine, _traced), write)
        _tell(span, result)
    _count(result, store)
    return result


async def adrive_run(name: str, machine: Effects[R], write: WriteNotes, store: Store | None) -> R:
    """Drive a run under asyncio, as `drive_run` does."""
    if not telemetry.is_on():
        return await adrive(machine, write)
    import asyncio

    with telemetry.span("em.run", {"em.routine": name}) as span:
        result = await adrive(through(machine, _traced), write)
        _tell(span, result)
    await asyncio.to_thread(_count, result, store)
    return result


def _tell(span: telemetry.Note, result: RunResult) -> None:
    span.set("em.run.outcome", result.status)
    if result.failure is not None:
        span.fail(result.failure.error_type)


def _count(result: RunResult, store: Store | None) -> None:
    telemetry.count("em.runs", 1, {"em.run.outcome": result.status})
    if store is None or result.status != "ok":
        return
    try:
        figures = savings(store, read_run(store, result.run_id))
    except EmError:
        return  # no figure is worth a run that fails
    saved = sum(one.saved or 0 for one in figures if one.what in ("calls", "model calls"))
    if saved > 0:
        telemetry.count("em.calls_saved", saved)


def _traced(effect: Effect) -> Effects[Any]:
    """Pass an effect on, with a span around each call."""
    return (yield _with_span(effect))


def _with_span(effect: Effect) -> Effect:
    if isinstance(effect, CallMany):
        calls = [_with_span(call) for call in effect.calls]
        return msgspec.structs.replace(effect, calls=calls)
    if not isinstance(effect, CallTool):
        return effect
    wrapped = _awaited if effect.is_async else _called
    return msgspec.structs.replace(effect, function=wrapped(effect.function))


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with telemetry.span("em.step", {"em.tool": _name(function)}):
            return function(*args, **kwargs)

    return call


def _awaited(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        with telemetry.span("em.step", {"em.tool": _name(function)}):
            return await function(*args, **kwargs)

    return call
