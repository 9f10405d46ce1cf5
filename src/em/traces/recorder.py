"""Recorder: what an agent says, calls and gets, as a trace.

One recorder for all: `memory.record`, decorated tools, the learning loop, and the behaviour engine,
whose run of an agent is a Recorder that also notes what its checks saw. A `Recording` is what
`memory.record` returns: it stores what its recorder noted.

The recording that a call of a decorated tool belongs to travels in a context variable; `threads`
says what hands it on. A call without that context while recordings are open may belong to any of
them or to none, so it is not guessed: each of their traces is marked incomplete, and an incomplete
trace is not compiled.
"""

import contextvars
import functools
import inspect
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, overload

import msgspec

from em.errors import UsageError
from em.log.event import Event
from em.log.use import Uses, collecting, uses_here
from em.traces.adapters import adapted, declared_parameters
from em.traces.model_request import AskedCalls
from em.traces.threads import Beside, follow_into_pools
from em.traces.trace import (
    Call,
    Message,
    Mission,
    Outcome,
    ToolCall,
    Trace,
    TraceEvent,
    UdfCall,
    trace_events,
)
from em.values.call import Effect, Signature, Usage, declare
from em.values.canonical import Json, canonical, short
from em.values.times import new_id

if TYPE_CHECKING:  # a tool's process need not load the store
    from em.store.log import Log

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_current: contextvars.ContextVar["Recorder | RecordedCall | Beside | None"] = (
    contextvars.ContextVar("em_recorder", default=None)
)
"""The recording that this code belongs to, or the recorded call that it is a part of."""
_recording: "list[Recorder]" = []
"""The recordings whose agents are running, in any thread."""
_lock = threading.Lock()
_LAZY = (inspect.isgenerator, inspect.isasyncgen, inspect.isawaitable)


def error_text(error: BaseException) -> str:
    """Return an error's class and message; only the class where its message can't be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - a foreign class's own code
        return type(error).__name__


class RecordedCall:
    """One call, from its start on: arguments by name, result or error, times.

    A context manager: the call has its place among the recorder's events from its beginning on.
    What is called inside of it is a part of it, and is not recorded again.
    """

    __slots__ = (
        "_place", "_recorder", "_start", "_token", "args", "effect", "error", "is_open", "is_udf",
        "name", "result", "seconds",
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
        self.is_open = False
        self._start = time.perf_counter()

    def stop(self, error: BaseException | None = None) -> None:
        """Stop the clock; `error` is what the call raised."""
        self.seconds = time.perf_counter() - self._start
        if error is not None:
            self.error = error_text(error)

    def __enter__(self) -> Self:
        if self._recorder is not None:
            self._place = self._recorder.begin_call(self)
        self.is_open = True
        self._token = _current.set(self)
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self.stop(error)
        self.is_open = False
        with suppress(ValueError):  # as in `recording_into`
            _current.reset(self._token)
        if self._recorder is not None:
            self._recorder.end_call(self._place, self.event())

    @property
    def recorder(self) -> "Recorder | None":
        """The recording that the call is in."""
        return self._recorder

    def is_part_of(self, recorder: "Recorder") -> bool:
        """Return whether this call is being recorded by `recorder`."""
        return self.is_open and self._recorder is recorder

    @property
    def arguments(self) -> Json:
        """The arguments as the trace shows them."""
        return self.args

    @property
    def started_at(self) -> str | None:
        """When the call began, in ISO 8601; from one clock, so that calls keep their order."""
        ago = time.perf_counter() - self._start
        return datetime.fromtimestamp(time.time() - ago, UTC).isoformat()

    def left_behind(self, tool: str) -> None:
        """Note that work which this call began called a tool after the call had ended."""
        if self._recorder is not None:
            self._recorder.mark_incomplete(
                f"`{tool}` was called by `{self.name}` after that had returned"
            )

    def unfinished(self) -> Call:
        """Return the call as an event while it runs."""
        event = self.event()
        return msgspec.structs.replace(event, error="still running when the recording ended")

    def event(self) -> Call:
        """Return the call as an event of a trace."""
        shared: Json = {
            "args": self.arguments,
            "result": self.result,
            "error": self.error,
            "started_at": self.started_at,
            "duration_ms": self.seconds * 1e3,
        }
        if self.is_udf:
            return UdfCall(function=self.name, **shared)
        return ToolCall(tool=self.name, effect=self.effect, **shared)


class MadeBefore(NamedTuple):
    """What a call returned that was made before."""

    result: Any


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
        self._events: list[TraceEvent | RecordedCall] = []
        # By name: what the tools that were called declare of their arguments.
        self._tools: dict[str, Json] = {}
        self._late: Callable[[str], None] | None = None
        self.incomplete = ""
        self._started = time.perf_counter()
        self._model_calls = 0
        self.tokens: int | None = None
        self.cost_usd: float | None = None
        self.output: Any = msgspec.UNSET
        self.outcome: Outcome | None = None
        self.answer_call: Callable[[str, Json], MadeBefore | None] | None = None
        """Returns what a call made before returned: the call is answered, and not made again."""
        # What the agent got from a memory.
        self.uses = Uses()
        # What the agent's model asked for, if its client is instrumented.
        self.asked = AskedCalls(self)

    def said(self, role: str, text: str, *, speaker: str = "", addressee: str = "") -> None:
        """Record a message; a routine's inputs come from what users say."""
        self.add(Message(role=role, text=text, speaker=speaker, addressee=addressee))

    def was_given(self, text: str) -> bool:
        """Return whether the recording's input has this text already."""
        return text in self._mission.input_summary.values()

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

    def tool(self, function: T, *, name: str | None = None, effect: Effect | None = None) -> T:
        """Wrap a tool, of any kind that `em.tool` takes, so that its calls are recorded."""
        recorded: T = recorded_by(self._unless_inside, function, name, effect)
        return recorded

    def udf(self, function: F, *, name: str | None = None) -> F:
        """Wrap a function of the agent's own so that its calls are recorded."""
        return _recorded(function, name, self._unless_inside, is_udf=True)

    def _unless_inside(self, _name: str) -> "Recorder | None":
        around = _current.get()
        return None if isinstance(around, RecordedCall) and around.is_part_of(self) else self

    def call(self, name: str, args: Json, effect: Effect | None = None) -> RecordedCall:
        """Begin to record a call: a context manager whose `result` the caller sets."""
        return RecordedCall(self, name, args, effect)

    def declare(self, tool: str, parameters: Json) -> None:
        """Note what a tool that is called declares of its arguments."""
        if parameters:
            self._tools[tool] = parameters

    def add(self, event: TraceEvent) -> None:
        """Add an event to the trace."""
        self._events.append(event)

    def given(self, name: str, result: Any) -> Any:
        """Return what `name` returned, as JSON; work that is still to be done can't be recorded."""
        if isinstance(result, Future) or any(is_lazy(result) for is_lazy in _LAZY):
            self.mark_incomplete(
                f"`{name}` returned a {type(result).__name__}, whose work was not done yet"
            )
        return plain(result)

    def made_before(self, call: RecordedCall) -> "MadeBefore | None":
        """Return what answers a call instead of its tool; None if it must be made."""
        return None if self.answer_call is None else self.answer_call(call.name, call.arguments)

    def begin_call(self, call: RecordedCall) -> int:
        """Give a call its place among the events: concurrent calls are in the order of starts."""
        with _lock:
            self._events.append(call)
            return len(self._events) - 1

    def end_call(self, place: int, event: Call) -> None:
        """Put the finished call in its place."""
        self._events[place] = event

    def mark_incomplete(self, why: str) -> None:
        """Note that calls may be missing, so that the trace is not compiled.

        The first reason counts. Of a trace that is stored already, the note is stored too.
        """
        with _lock:
            if self.incomplete:
                return
            self.incomplete = why
        if self._late is not None:
            self._late(why)

    def close(self, incomplete: str, late: Callable[[str], None]) -> None:
        """Note that the trace is stored, as incomplete for this reason if there was one.

        late: called if it turns out to be incomplete all the same.
        """
        self._late = late
        if self.incomplete and not incomplete:
            late(self.incomplete)

    @property
    def is_open(self) -> bool:
        """Whether calls can still be added."""
        return self._late is None

    @property
    def events(self) -> list[TraceEvent]:
        """What was recorded so far, in order of starts; a call that still runs has failed."""
        return [one.unfinished() if isinstance(one, RecordedCall) else one for one in self._events]

    def _missing(self) -> str:
        """Return why the trace is incomplete, "" if it is not."""
        running = (one.name for one in self._events if isinstance(one, RecordedCall))
        name = next(running, None)
        if self.incomplete:
            return self.incomplete
        if name is not None:
            return f"a call of `{name}` was still running when the recording ended"
        asked = self.asked.never_ended()
        if asked:
            return (
                f"the model asked for `{asked}`, and no result was sent back to it. If the agent"
                f" made that call, decorate `{asked}` with em.tool"
            )
        return ""

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
            tools=self._tools,
            events=self.events,
            final_output=final_output,
            outcome=outcome,
            incomplete=self._missing(),
            tags=self._tags,
            usage=Usage(
                duration_ms=taken * 1e3,
                model_calls=self._model_calls or None if model_calls is None else model_calls,
                tokens=self.tokens,
                cost_usd=self.cost_usd,
            ),
        )


@overload
def tool(function: T, *, name: str | None = None, effect: Effect | None = None) -> T: ...
@overload
def tool(*, name: str | None = None, effect: Effect | None = None) -> Callable[[T], T]: ...
def tool(function: Any = None, *, name: str | None = None, effect: Effect | None = None) -> Any:
    """Decorate a tool so that its calls are recorded inside of `memory.record`.

    ```python
    import em

    @em.tool(effect="read")
    def get_order(order_id: str) -> dict[str, str]:
        return {"order_id": order_id, "status": "pending"}

    with em.Memory("em.db") as memory, memory.record("look up an order") as recorder:
        get_order("#W1")
        assert recorder.events[0].args == {"order_id": "#W1"}
    ```

    Elsewhere the calls are made as usual. With or without arguments. What is given may also be a
    tool of LangChain or of the Anthropic SDK, a pydantic model with `__call__`, a definition with
    its function, an MCP client, or a list of tools: the same kind is returned.

    effect: "read" if its calls change nothing, else "write"; by default inferred from its name.
    """
    if function is None:
        return functools.partial(tool, name=name, effect=effect)
    return recorded_by(recorder_for, function, name, effect)


recorded_tool = tool
"""Another name of `tool`."""


def recorded_by(
    recorder_of: Callable[[str], Recorder | None],
    thing: Any,
    name: str | None,
    effect: Effect | None,
) -> Any:
    """Return a tool of any kind, or a list of tools, whose calls are recorded."""
    if isinstance(thing, list):
        return [recorded_by(recorder_of, one, name, effect) for one in thing]
    found = adapted(thing)
    if found is None:
        if not callable(thing):
            raise UsageError(
                f"expected a tool, got a {type(thing).__name__}",
                place=f"tool {name or thing!r}",
                fix="pass a function, a tool of LangChain or the Anthropic SDK, a pydantic model"
                " with __call__, (definition, function), an MCP client, or a list of these",
            )
        return _recorded(thing, name, recorder_of, effect=effect)
    # An object with many tools gives each its own name.
    own = name or (None if found.function is None else found.name)
    return found.around(
        lambda function: _recorded(
            function, own, recorder_of, effect=effect or found.effect, schema=found.schema
        )
    )


@contextmanager
def recording_into(recorder: Recorder) -> Iterator[None]:
    """Record the calls of decorated tools that are made inside, in its threads and tasks too."""
    follow_into_pools(_current, Recorder)
    follow_into_pools(uses_here)
    with _lock:
        _recording.append(recorder)
    token = _current.set(recorder)
    try:
        with collecting(recorder.uses):
            yield
    finally:
        with _lock:
            _recording.remove(recorder)
        with suppress(ValueError):  # it ended in another context than it began, as fixtures may
            _current.reset(token)


def recorder_here() -> Recorder | None:
    """Return the recorder of the agent that runs this code itself, not within a recorded call."""
    around = _current.get()
    return around if isinstance(around, Recorder) and around.is_open else None


def payers_here() -> list[Recorder]:
    """Return the recordings that the model's cost belongs to here, also inside of a call."""
    return [one for find in find_payer if (one := find()) is not None]


def _payer() -> Recorder | None:
    around = _current.get()
    found = around.recorder if isinstance(around, RecordedCall) else around
    return found if isinstance(found, Recorder) and found.is_open else None


find_payer: list[Callable[[], Recorder | None]] = [_payer]
"""How the recordings are found that pay for a model here; the behaviour engine adds its own."""


def recorder_for(tool: str) -> Recorder | None:
    """Return the recorder that a call of a decorated tool belongs to.

    None for a call inside of a recorded call, and outside of all recordings. A call in a thread of
    its own belongs to the one recording that may answer it with what was made before, if any.
    """
    around = _current.get()
    own = around.of if isinstance(around, Beside) else around
    if own is not None and own.is_open:
        if own is around:
            return own if isinstance(own, Recorder) else None
    elif isinstance(own, RecordedCall):
        own.left_behind(tool)
        if own is around:
            return None
    elif own is not None:
        own.mark_incomplete(f"`{tool}` was called after the recording had ended")
    if _recording:
        with _lock:
            open_ones = list(_recording)
        for recorder in open_ones:
            recorder.mark_incomplete(
                f"`{tool}` was called in a thread or task that no recording started, so it is not"
                " known whether the call belongs to this one"
            )
        # Rather is a call answered that belongs elsewhere than made twice.
        answering = [one for one in open_ones if one.answer_call is not None]
        return answering[0] if len(answering) == 1 else None
    return None


def _recorded(
    function: F,
    name: str | None,
    recorder_of: Callable[[str], Recorder | None],
    *,
    effect: Effect | None = None,
    is_udf: bool = False,
    schema: Json | None = None,
) -> F:
    signature = Signature(function)
    own = name or name_of(function)
    parameters = functools.cache(lambda: declared_parameters(function, schema))

    def begin(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RecordedCall:
        recorder.declare(own, parameters())
        # As JSON before the call, which may change its arguments.
        given = bound_by_name(signature, args, kwargs)
        shown = {name: plain(value) for name, value in given.items()}
        return RecordedCall(recorder, own, shown, effect, is_udf)

    if signature.is_async:

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            recorder = recorder_of(own)
            if recorder is None:
                return await function(*args, **kwargs)
            with begin(recorder, args, kwargs) as call:
                made = recorder.made_before(call)
                result = await function(*args, **kwargs) if made is None else made.result
                call.result = recorder.given(own, result)
                return result

        call_async.__name__ = own  # a list of tools knows it by the name that it is recorded by
        return declare(call_async, effect)  # type: ignore[return-value]  # as the function

    @functools.wraps(function)
    def call_plainly(*args: Any, **kwargs: Any) -> Any:
        recorder = recorder_of(own)
        if recorder is None:
            return function(*args, **kwargs)
        with begin(recorder, args, kwargs) as call:
            made = recorder.made_before(call)
            result = function(*args, **kwargs) if made is None else made.result
            call.result = recorder.given(own, result)
            return result

    call_plainly.__name__ = own
    return declare(call_plainly, effect)  # type: ignore[return-value]  # as the function


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name; of a callable object, its class's."""
    own: str = getattr(function, "__name__", type(function).__name__)
    return own


def bound_by_name(
    signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return arguments by name, without the object of a method or the class of a class method."""
    bound = signature.bind(args, kwargs)
    if bound is None:  # the function will complain itself
        bound = {**{f"arg{n}": value for n, value in enumerate(args)}, **kwargs}
    named: dict[str, Any] = {}
    for name, value in bound.items():
        if name in ("self", "cls") and signature.positional[:1] == [name]:
            continue
        if name == signature.var_keyword:
            named |= value
        else:
            named[name] = value
    return named


def plain(value: Any) -> Any:
    """Return a value as JSON; what JSON can't express becomes its repr."""
    try:
        return as_json(value, repr)
    except Exception:  # noqa: BLE001 - a foreign class's own code must not fail a call that is done
        return _repr(value)


def as_json(value: Any, other: Callable[[Any], Any]) -> Any:
    """Return a value as JSON; `other` converts objects of classes that are not known here."""

    def convert(value: Any) -> Any:
        dump = getattr(value, "model_dump", None)  # pydantic's own way
        return dump(mode="json") if callable(dump) else other(value)

    return canonical(msgspec.to_builtins(value, enc_hook=convert))[1]


def _repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - as above
        return f"<{type(value).__qualname__}: its repr raised {type(error).__name__}>"


Stored = Callable[[Trace, str, Sequence[Event]], None]
"""Called with a trace, its id and its events once they are stored. It must not raise."""


class Recording:
    """What `memory.record` returns: a context manager, and a decorator for an agent.

    As a context manager it gives a `Recorder`. As a decorator, it records each call of the agent as
    a trace: its arguments are the input, what it returns is the output. It may be a function, an
    async function, or a generator of either kind. The trace is stored at the end, also when the
    agent raises, which is a failure.
    """

    def __init__(
        self,
        log: "Log",
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
