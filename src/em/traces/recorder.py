"""Recorder: what an agent says, calls and gets, as a trace.

One recorder for all: `memory.record`, decorated tools, the learning loop, and the behaviour engine,
whose run of an agent is a Recorder that also notes what its checks saw.
"""

import contextvars
import functools
import inspect
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from em.traces.trace import Call, Message, Mission, Outcome, ToolCall, Trace, TraceEvent, UdfCall
from em.values.call import Effect, Signature, Usage
from em.values.canonical import Json, canonical

F = TypeVar("F", bound=Callable[..., Any])
StoreTrace = Callable[[Trace], str]

_current: contextvars.ContextVar["Recorder | None"] = contextvars.ContextVar(
    "em_recorder", default=None
)


def error_text(error: BaseException) -> str:
    """Return an error's class and message; only the class where its message can't be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - a foreign class's own code
        return type(error).__name__


class RecordedCall:
    """One call, from its start on: arguments by name, result or error, times.

    A context manager: at its end the call is added to its recorder.
    """

    __slots__ = (
        "_recorder", "_start", "args", "effect", "error", "is_udf", "name", "result", "seconds",
    )  # fmt: skip

    def __init__(
        self,
        recorder: "Recorder | None",
        name: str,
        args: Json,
        effect: Effect | None = None,
        is_udf: bool = False,
    ) -> None:
        self._recorder = recorder
        self.name = name
        self.args = args
        self.effect = effect
        self.is_udf = is_udf
        self.result: Any = None  # as JSON
        self.error: str | None = None
        self.seconds = 0.0
        self._start = time.perf_counter()

    def stop(self, error: BaseException | None = None) -> None:
        """Stop the clock; `error` is what the call raised."""
        self.seconds = time.perf_counter() - self._start
        if error is not None:
            self.error = error_text(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.stop(error)
        if self._recorder is not None:
            self._recorder.add(self.event())

    @property
    def arguments(self) -> Json:
        """The arguments as the trace shows them."""
        return self.args

    @property
    def started_at(self) -> str | None:
        """When the call began, in ISO 8601; from one clock, so that calls keep their order."""
        ago = time.perf_counter() - self._start
        return datetime.fromtimestamp(time.time() - ago, UTC).isoformat()

    def event(self) -> Call:
        """Return the call as an event of a trace."""
        took = self.seconds * 1e3
        if self.is_udf:
            return UdfCall(
                function=self.name,
                args=self.arguments,
                result=self.result,
                error=self.error,
                started_at=self.started_at,
                duration_ms=took,
            )
        return ToolCall(
            tool=self.name,
            args=self.arguments,
            result=self.result,
            error=self.error,
            started_at=self.started_at,
            duration_ms=took,
            effect=self.effect,
        )


class Recorder:
    """Record an agent's calls as they happen; what a tool raises is recorded and raised on.

    recorder = Recorder("Report the cost of the trips", {"url": url})
    fetch = recorder.tool(fetch, effect="read")
    …
    trace = recorder.trace(final_output=report, outcome="success")
    """

    def __init__(
        self,
        goal: str,
        input_summary: Json | None = None,
        app: str = "",
        tags: Sequence[str] = (),
    ) -> None:
        self._mission = Mission(goal, input_summary or {})
        self._app: Json = {"name": app} if app else {}
        self._tags = list(tags)
        self._events: list[TraceEvent] = []
        self._started = time.perf_counter()
        self._model_calls = 0
        self.tokens: int | None = None
        self.cost_usd: float | None = None
        self.output: Any = msgspec.UNSET
        self.outcome: Outcome | None = None

    def said(self, role: str, text: str) -> None:
        """Record a message; a routine's inputs come from what users say."""
        self.add(Message(role=role, text=text))

    def answered(self, tokens: int | None = None) -> None:
        """Record that the agent's model answered, and the tokens that it took."""
        self._model_calls += 1
        self.report(tokens=tokens)

    def report(self, *, tokens: int | None = None, cost_usd: float | None = None) -> None:
        """Add to what the attempt has cost so far."""
        if tokens is not None:
            self.tokens = (self.tokens or 0) + tokens
        if cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + cost_usd

    def tool(self, function: F, *, name: str | None = None, effect: Effect | None = None) -> F:
        """Wrap a tool so that its calls are recorded."""
        return _recorded(function, name, lambda: self, effect=effect)

    def udf(self, function: F, *, name: str | None = None) -> F:
        """Wrap a function of the agent's own so that its calls are recorded."""
        return _recorded(function, name, lambda: self, is_udf=True)

    def call(self, name: str, args: Json, effect: Effect | None = None) -> RecordedCall:
        """Begin to record a call: a context manager whose `result` the caller sets."""
        return RecordedCall(self, name, args, effect)

    def add(self, event: TraceEvent) -> None:
        """Add an event to the trace."""
        self._events.append(event)

    @property
    def events(self) -> list[TraceEvent]:
        """What was recorded so far, in order."""
        return list(self._events)

    def trace(
        self,
        *,
        final_output: Any = msgspec.UNSET,
        outcome: Outcome = "success",
        model_calls: int | None = None,
        seconds: float | None = None,
    ) -> Trace:
        """Make the trace of what was recorded so far; it took `seconds`, if given."""
        taken = time.perf_counter() - self._started if seconds is None else seconds
        return Trace(
            app=self._app,
            mission=self._mission,
            events=self.events,
            final_output=final_output,
            outcome=outcome,
            tags=self._tags,
            usage=Usage(
                duration_ms=taken * 1e3,
                model_calls=self._model_calls or None if model_calls is None else model_calls,
                tokens=self.tokens,
                cost_usd=self.cost_usd,
            ),
        )


def recorded_tool(
    function: F | None = None, *, name: str | None = None, effect: Effect | None = None
) -> Any:
    """Decorate a tool so that its calls are recorded inside of `memory.record`.

    Elsewhere the calls are made as usual. With or without arguments.
    """
    if function is None:
        return functools.partial(recorded_tool, name=name, effect=effect)
    return _recorded(function, name, _current.get, effect=effect)


class Recording:
    """What `memory.record` returns: a context manager, and a decorator for an agent.

    As a context manager it gives a `Recorder`. As a decorator, it records each call of the agent as
    a trace: the arguments are the input, the return value is the output. The trace is stored at
    the end, also when the agent raises, which is a failure.
    """

    def __init__(
        self,
        store_trace: StoreTrace,
        goal: str | None,
        input_summary: Json | None,
        *,
        app: str,
    ) -> None:
        self._store_trace, self._goal, self._input, self._app = (
            store_trace,
            goal,
            input_summary,
            app,
        )
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
        self.trace_id = self._store_trace(trace)

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
        """Wrap an agent so that each of its calls is recorded as a trace."""
        goal = self._goal or inspect.getdoc(agent) or agent.__name__
        signature = Signature(agent)

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording:
            given = {**(self._input or {}), **_by_name(signature, args, kwargs)}
            return Recording(self._store_trace, goal, given, app=self._app)

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
    name: str | None,
    recorder_now: Callable[[], Recorder | None],
    *,
    effect: Effect | None = None,
    is_udf: bool = False,
) -> F:
    signature = Signature(function)
    own = name or function.__name__

    def begin(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RecordedCall:
        # Before the call: it may change its arguments.
        return RecordedCall(recorder, own, _by_name(signature, args, kwargs), effect, is_udf)

    if signature.is_async:

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            recorder = recorder_now()
            if recorder is None:
                return await function(*args, **kwargs)
            with begin(recorder, args, kwargs) as call:
                call.result = _plain(result := await function(*args, **kwargs))
                return result

        return call_async  # type: ignore[return-value]  # as the function

    @functools.wraps(function)
    def call_plainly(*args: Any, **kwargs: Any) -> Any:
        recorder = recorder_now()
        if recorder is None:
            return function(*args, **kwargs)
        with begin(recorder, args, kwargs) as call:
            call.result = _plain(result := function(*args, **kwargs))
            return result

    return call_plainly  # type: ignore[return-value]  # as the function


def _by_name(signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Json:
    """Return arguments by name as JSON, as a routine will give them."""
    bound = signature.bind(args, kwargs)
    if bound is None:  # the function will complain itself
        bound = {**{f"arg{n}": value for n, value in enumerate(args)}, **kwargs}
    named: Json = {}
    for name, value in bound.items():
        if name == "self":
            continue
        if name == signature.var_keyword:
            named |= {key: _plain(part) for key, part in value.items()}
        else:
            named[name] = _plain(value)
    return named


def _plain(value: Any) -> Any:
    """Return a value as JSON; what JSON can't express becomes its repr."""
    try:
        return canonical(msgspec.to_builtins(value, enc_hook=_as_text))[1]
    except Exception:  # noqa: BLE001 - a foreign class's own code must not fail a call that is done
        return _repr(value)


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - as above
        return f"<{type(value).__qualname__}: its repr raised {type(error).__name__}>"


def _as_text(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic's own way
    return dump(mode="json") if callable(dump) else repr(value)
