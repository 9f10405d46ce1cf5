"""Recording: what `memory.record` returns, around an agent or as its decorator.

A decorated agent may be a function, an async function, or a generator of either kind. Its
arguments are the input of the trace, its return value is the output.
"""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar

import msgspec

from em.log.event import Event
from em.store.log import Log
from em.traces.recorder import (
    Recorder,
    as_json,
    bound_by_name,
    name_of,
    plain,
    recorder_here,
    recording_into,
)
from em.traces.trace import Outcome, Trace, trace_events
from em.values.call import Signature
from em.values.canonical import Json, short
from em.values.times import new_id

F = TypeVar("F", bound=Callable[..., Any])
Stored = Callable[[Trace, str, Sequence[Event]], None]
"""Called with a trace, its id and its events once they are stored. It must not raise."""


class Recording:
    """What `memory.record` returns: a context manager, and a decorator for an agent.

    As a context manager it gives a `Recorder`. As a decorator, it records each call of the agent as
    a trace. The trace is stored at the end, also when the agent raises, which is a failure.
    """

    def __init__(
        self,
        log: Log,
        goal: str | None,
        input_summary: Json | None,
        *,
        app: str,
        subject: str | None,
        stored: Stored | None = None,
    ) -> None:
        self._log, self._goal, self._input = log, goal, input_summary
        self._app, self._subject, self._stored = app, subject, stored
        self._inside: AbstractContextManager[None] | None = None
        self.recorder: Recorder | None = None
        self._outer: Recorder | None = None
        self.trace_id = ""

    def __enter__(self) -> Recorder:
        self._inside = recording_into(self.open())
        self._inside.__enter__()
        assert self.recorder is not None
        return self.recorder

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        assert self._inside is not None
        self._inside.__exit__(None, None, None)
        self.store("success" if error is None else "failure")

    async def __aenter__(self) -> Recorder:
        return self.__enter__()

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.__exit__(kind, error, traceback)

    def open(self) -> Recorder:
        """Make the recorder; nothing is recorded into it yet."""
        self._outer = recorder_here()
        self.recorder = Recorder(self._goal or "", self._input, self._app)
        return self.recorder

    def store(self, ended: Outcome) -> None:
        """Store the trace, with the outcome that the recorder was given, else `ended`."""
        recorder = self.recorder
        assert recorder is not None
        trace = recorder.trace(final_output=recorder.output, outcome=recorder.outcome or ended)
        if self._outer is not None and trace.calls:
            self._outer.mark_incomplete(
                f"the calls of {short(trace.mission.goal)} inside of it are in a trace of their"
                " own; decorate that agent with em.tool too, and it is one call here"
            )
        trace_id = self.trace_id = new_id()
        drafts = trace_events(trace, trace_id, subject=self._subject, sources=recorder.uses.take())
        events = self._log.append_many(drafts)
        if self._stored is not None:
            self._stored(trace, trace_id, events)

        def late(why: str) -> None:
            """Store the end again, with the reason; the last end of a trace counts."""
            changed = msgspec.structs.replace(trace, incomplete=trace.incomplete or why)
            with suppress(Exception):  # the call of the tool must not fail because of this
                self._log.append_many(trace_events(changed, trace_id, subject=self._subject)[-1:])
                if self._stored is not None:
                    self._stored(changed, trace_id, events)

        recorder.close(trace.incomplete, late)

    def __call__(self, agent: F) -> F:
        """Wrap an agent so that each of its calls is recorded as a trace."""
        goal = self._goal or inspect.getdoc(agent) or name_of(agent)
        signature = Signature(agent)

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording:
            given = {**(self._input or {}), **_asked(signature, args, kwargs)}
            return Recording(
                self._log,
                goal,
                given,
                app=self._app,
                subject=self._subject,
                stored=self._stored,
            )

        wrapped: Any = functools.wraps(agent)(_wrapper(agent)(agent, begin))
        result: F = wrapped
        return result


Begin = Callable[[tuple[Any, ...], dict[str, Any]], Recording]


def _wrapper(agent: Callable[..., Any]) -> Callable[[Any, Begin], Callable[..., Any]]:
    """Return how agents of this kind are wrapped."""
    made_by = agent if inspect.isroutine(agent) else getattr(agent, "__call__", agent)  # noqa: B004 - of an object it is the method that tells the kind
    while isinstance(made_by, functools.partial):
        made_by = made_by.func
    if inspect.iscoroutinefunction(agent) or inspect.iscoroutinefunction(made_by):
        return _wrap_async
    if inspect.isgeneratorfunction(agent) or inspect.isgeneratorfunction(made_by):
        return _wrap_generator
    if inspect.isasyncgenfunction(agent) or inspect.isasyncgenfunction(made_by):
        return _wrap_async_generator
    return _wrap_function


def _wrap_function(agent: Any, begin: Begin) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with begin(args, kwargs) as recorder:
            recorder.output = recorder.given(name_of(agent), result := agent(*args, **kwargs))
            return result

    return run


def _wrap_async(agent: Any, begin: Begin) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> Any:
        with begin(args, kwargs) as recorder:
            recorder.output = recorder.given(name_of(agent), result := await agent(*args, **kwargs))
            return result

    return run


class _Stream:
    """The recording of an agent that yields items. As a context manager: while the agent runs.

    Between two items its consumer runs, whose calls are not the agent's.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._recorder = recording.open()
        self._inside: AbstractContextManager[None] | None = None
        self._items: list[Any] = []

    def __enter__(self) -> None:
        self._inside = recording_into(self._recorder)
        self._inside.__enter__()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        assert self._inside is not None
        self._inside.__exit__(None, None, None)
        if error is not None and not isinstance(error, StopIteration | StopAsyncIteration):
            self._recording.store("failure")

    def add(self, item: Any) -> None:
        """Note an item that the agent yielded."""
        self._items.append(plain(item))

    def end(self, outcome: Outcome, returned: Any = None) -> None:
        """Store the trace; without a return value, the output is the list of the items."""
        self._recorder.output = self._items if returned is None else plain(returned)
        self._recording.store(outcome)


def _wrap_generator(agent: Any, begin: Begin) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        stream, steps = _Stream(begin(args, kwargs)), agent(*args, **kwargs)
        step, given = steps.send, None
        while True:
            try:
                with stream:
                    item = step(given)
            except StopIteration as end:
                stream.end("success", end.value)
                return end.value
            stream.add(item)
            try:
                step, given = steps.send, (yield item)
            except GeneratorExit:
                with stream:
                    steps.close()
                stream.end("unknown")
                raise
            except BaseException as error:  # noqa: BLE001 - the consumer throws it into the agent
                step, given = steps.throw, error

    return run


def _wrap_async_generator(agent: Any, begin: Begin) -> Callable[..., Any]:
    async def run(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        stream, steps = _Stream(begin(args, kwargs)), agent(*args, **kwargs)
        step, given = steps.asend, None
        while True:
            try:
                with stream:
                    item = await step(given)
            except StopAsyncIteration:
                stream.end("success")
                return
            stream.add(item)
            try:
                step, given = steps.asend, (yield item)
            except GeneratorExit:
                with stream:
                    await steps.aclose()
                stream.end("unknown")
                raise
            except BaseException as error:  # noqa: BLE001 - the consumer throws it into the agent
                step, given = steps.athrow, error

    return run


def _asked(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Json:
    """Return what an agent was asked: every argument by name, also those left at their defaults.

    Arguments that JSON can't express, such as a client, are not what it was asked.
    """
    bound = bound_by_name(signature, args, kwargs)
    for one in signature.parameters or ():
        if one.default is not one.empty:
            bound.setdefault(one.name, one.default)
    asked: Json = {}
    for name, value in bound.items():
        with suppress(Exception):  # a class that JSON doesn't know, or a foreign class's own code
            asked[name] = as_json(value, _refuse)
    return asked


def _refuse(value: Any) -> Any:
    raise TypeError(type(value).__name__)
