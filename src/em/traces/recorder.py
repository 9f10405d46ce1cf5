"""Recorder: what an agent does with its tools, as a trace."""

import contextvars
import functools
import inspect
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from em.errors import BadBody
from em.traces.trace import Message, Mission, Outcome, ToolCall, Trace, TraceEvent, UdfCall
from em.values.call import Effect, Usage
from em.values.canonical import Json, canonical
from em.values.times import now

F = TypeVar("F", bound=Callable[..., Any])
Keep = Callable[[Trace], str]

_current: contextvars.ContextVar["Recorder | None"] = contextvars.ContextVar(
    "em_recorder", default=None
)


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
        self._answers: list[int | None] = []
        self.output: Any = msgspec.UNSET
        self.outcome: Outcome | None = None

    def said(self, role: str, text: str) -> None:
        """Note what somebody said; inputs come from what users say."""
        self._events.append(Message(role=role, text=text))

    def answered(self, tokens: int | None = None) -> None:
        """Note that the agent's model answered, and what that took."""
        self._answers.append(tokens)

    def tool(self, function: F, *, name: str | None = None, effect: Effect | None = None) -> F:
        """A tool whose calls are recorded."""
        own = name or function.__name__
        return _recorded(
            function,
            lambda details: ToolCall(tool=own, effect=effect, **details),
            lambda: self,
        )

    def udf(self, function: F, *, name: str | None = None) -> F:
        """A function of the agent's own whose calls are recorded."""
        own = name or function.__name__
        return _recorded(function, lambda details: _udf_call(own, details), lambda: self)

    def add(self, event: TraceEvent) -> None:
        """Note something that happened."""
        self._events.append(event)

    def trace(
        self,
        *,
        final_output: Any = msgspec.UNSET,
        outcome: Outcome = "success",
        model_calls: int | None = None,
    ) -> Trace:
        """The trace so far."""
        duration = (time.perf_counter() - self._started) * 1e3
        counted = [tokens for tokens in self._answers if tokens is not None]
        return Trace(
            app=self._app,
            mission=self._mission,
            events=list(self._events),
            final_output=final_output,
            outcome=outcome,
            usage=Usage(
                duration_ms=duration,
                model_calls=len(self._answers) or None if model_calls is None else model_calls,
                tokens=sum(counted) if counted else None,
            ),
        )


def recorded_tool(
    function: F | None = None, *, name: str | None = None, effect: Effect | None = None
) -> Any:
    """A tool whose calls are recorded wherever a recording is under way, and made plainly else.

    As a decorator, with or without arguments.
    """
    if function is None:
        return functools.partial(recorded_tool, name=name, effect=effect)
    own = name or function.__name__
    return _recorded(
        function, lambda details: ToolCall(tool=own, effect=effect, **details), _current.get
    )


class Recording:
    """What `memory.record` gives: a context manager, and a decorator of an agent.

    As a context manager it gives a `Recorder`. As a decorator, each call of the agent is a trace:
    its arguments are the input, what it returns is the output. Either way the trace is kept at the
    end, also when the agent raises, which is a failure.
    """

    def __init__(
        self,
        keep: Keep,
        goal: str | None,
        input_summary: Json | None,
        *,
        app: str,
    ) -> None:
        self._keep, self._goal, self._input, self._app = keep, goal, input_summary, app
        self._recorder: Recorder | None = None
        self._token: contextvars.Token[Recorder | None] | None = None
        self.trace_id = ""

    def __enter__(self) -> Recorder:
        self._recorder = Recorder(self._goal or "", self._input, self._app)
        self._token = _current.set(self._recorder)
        return self._recorder

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        assert self._recorder is not None
        assert self._token is not None
        _current.reset(self._token)
        recorder = self._recorder
        ended: Outcome = "failure" if error is not None else "success"
        trace = recorder.trace(final_output=recorder.output, outcome=recorder.outcome or ended)
        self.trace_id = self._keep(trace)

    async def __aenter__(self) -> Recorder:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __call__(self, agent: F) -> F:
        """The agent, recorded."""
        goal = self._goal or inspect.getdoc(agent) or agent.__name__
        signature = inspect.signature(agent)

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording:
            given = {**(self._input or {}), **_by_name(signature, args, kwargs)}
            return Recording(self._keep, goal, given, app=self._app)

        if inspect.iscoroutinefunction(agent):

            @functools.wraps(agent)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                with begin(args, kwargs) as recorder:
                    recorder.output = _plain(result := await agent(*args, **kwargs))
                    return result

            return run_async  # type: ignore[return-value]  # as the agent

        @functools.wraps(agent)
        def run(*args: Any, **kwargs: Any) -> Any:
            with begin(args, kwargs) as recorder:
                recorder.output = _plain(result := agent(*args, **kwargs))
                return result

        return run  # type: ignore[return-value]  # as the agent


def _recorded(
    function: F,
    event: Callable[[Json], TraceEvent],
    recorder: Callable[[], Recorder | None],
) -> F:
    signature = inspect.signature(function)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with _Call(recorder(), event, signature, args, kwargs) as call:
                call.result = await function(*args, **kwargs)
                return call.result

        return call_async  # type: ignore[return-value]  # as the function

    @functools.wraps(function)
    def call_plainly(*args: Any, **kwargs: Any) -> Any:
        with _Call(recorder(), event, signature, args, kwargs) as call:
            call.result = function(*args, **kwargs)
            return call.result

    return call_plainly  # type: ignore[return-value]  # as the function


class _Call:
    """One call while it is under way; recorded when it is over, if anybody records."""

    def __init__(
        self,
        recorder: Recorder | None,
        event: Callable[[Json], TraceEvent],
        signature: inspect.Signature,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.result: Any = None
        self._recorder, self._event = recorder, event
        # Before the call: it may change what it was given.
        self._args = {} if recorder is None else _by_name(signature, args, kwargs)

    def __enter__(self) -> "_Call":
        self._at, self._start = now(), time.perf_counter()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if self._recorder is None:
            return
        details: Json = {
            "args": self._args,
            "started_at": self._at.isoformat(),
            "duration_ms": (time.perf_counter() - self._start) * 1e3,
        }
        if error is not None:
            details["error"] = f"{type(error).__name__}: {error}"
        else:
            details["result"] = _plain(self.result)
        self._recorder.add(self._event(details))


def _udf_call(name: str, details: Json) -> UdfCall:
    return UdfCall(function=name, **details)


def _by_name(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Json:
    """Arguments by their names, as a routine will give them."""
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:  # the function will say so itself
        bound = {**{f"arg{n}": value for n, value in enumerate(args)}, **kwargs}
    named: Json = {}
    for name, value in bound.items():
        parameter = signature.parameters.get(name)
        if name == "self":
            continue
        if parameter is not None and parameter.kind is parameter.VAR_KEYWORD:
            named |= {key: _plain(part) for key, part in value.items()}
        else:
            named[name] = _plain(value)
    return named


def _plain(value: Any) -> Any:
    """A value as JSON can say it; what it can't is told as text, for the record only."""
    try:
        return canonical(msgspec.to_builtins(value, enc_hook=_as_text))[1]
    except (TypeError, ValueError, RecursionError, BadBody):
        return repr(value)


def _as_text(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic's own way
    return dump(mode="json") if callable(dump) else repr(value)
