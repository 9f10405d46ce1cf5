"""Recorder: what an agent does with its tools, as a trace."""

import functools
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from em.models.canonical import Json
from em.models.trace import (
    Effect,
    Message,
    Mission,
    Outcome,
    ToolCall,
    Trace,
    TraceEvent,
    UdfCall,
    Usage,
)

F = TypeVar("F", bound=Callable[..., Any])


class Recorder:
    """Records calls as they happen; what a tool raises is recorded and raised on.

    recorder = Recorder("Report the cost of the trips", {"url": url})
    fetch = recorder.tool(fetch, effect="read")
    …
    trace = recorder.trace(final_output=report, outcome="success")
    """

    def __init__(self, goal: str, input_summary: Json | None = None, app: str = "") -> None:
        self._mission = Mission(goal, input_summary or {})
        self._app: Json = {"name": app} if app else {}
        self._events: list[TraceEvent] = []
        self._started = time.perf_counter()

    def said(self, role: str, text: str) -> None:
        """Note what somebody said; inputs come from what users say."""
        self._events.append(Message(role=role, text=text))

    def tool(self, function: F, *, name: str | None = None, effect: Effect | None = None) -> F:
        """A tool whose calls are recorded."""
        own = name or function.__name__
        return self._recorded(
            function, lambda details: ToolCall(tool=own, effect=effect, **details)
        )

    def udf(self, function: F, *, name: str | None = None) -> F:
        """A function of the agent's own whose calls are recorded."""
        own = name or function.__name__
        return self._recorded(function, lambda details: UdfCall(function=own, **details))

    def _recorded(self, function: F, event: Callable[[Json], TraceEvent]) -> F:
        @functools.wraps(function)
        def call(**args: Any) -> Any:
            start = time.perf_counter()
            details: Json = {"args": msgspec.to_builtins(args)}
            try:
                result = function(**args)
            except Exception as error:
                details["error"] = f"{type(error).__name__}: {error}"
                raise
            else:
                details["result"] = msgspec.to_builtins(result)
                return result
            finally:
                details["duration_ms"] = (time.perf_counter() - start) * 1e3
                self._events.append(event(details))

        return call  # type: ignore[return-value]  # as the function, but by keyword only

    def trace(
        self,
        *,
        final_output: Any = msgspec.UNSET,
        outcome: Outcome = "success",
        model_calls: int | None = None,
    ) -> Trace:
        """The trace so far."""
        duration = (time.perf_counter() - self._started) * 1e3
        return Trace(
            app=self._app,
            mission=self._mission,
            events=list(self._events),
            final_output=final_output,
            outcome=outcome,
            usage=Usage(duration_ms=duration, model_calls=model_calls),
        )
