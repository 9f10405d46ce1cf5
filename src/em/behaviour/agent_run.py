"""One run of an agent while an engine records it: its calls, and what the checks saw.

The run is a `Recorder`, so its trace is made like any other. The run that a call belongs to travels
in a context variable: concurrent runs don't mix, and a tool that calls another is one call.
"""

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import msgspec

from em.behaviour.behaviour import FORMAT, Answer, Behaviour, Capture, Step
from em.behaviour.check import Check
from em.behaviour.codec import Form, NotEncodable, encode, is_lazy, snapshot
from em.behaviour.result import Progress
from em.behaviour.task import Params, Task, param_names
from em.behaviour.tool import Bound, Contexts, EngineTool
from em.compiler.calls import TracedCall
from em.errors import EmError, NotRecordable
from em.runner.drivers import CallTool, Effects, adrive, drive
from em.traces.recorder import RecordedCall, Recorder, error_text, find_payer
from em.traces.threads import Beside
from em.traces.trace import TraceEvent
from em.values.canonical import Json, identical

F = TypeVar("F", bound=Callable[..., Any])


class Call(RecordedCall):
    """A recorded call of an engine's tool, with the object that it returned and its captures.

    forms: how arguments are restored from JSON. live: arguments that are an earlier call's own
    result, by the number of that call. began, ended: ticks of the run; `ended` is 0 for a call
    that did not return. fixed: of a replayed call, the arguments that no result determines.
    owner: the object of a method.
    """

    def __init__(self, tool: EngineTool) -> None:
        super().__init__(None, tool.name, {}, tool.effect)
        self.tool = tool
        self.owner: Any = None
        self.forms: dict[str, Form] = {}
        self.live: dict[str, int] = {}
        self.value: Any = None
        self.opaque = False
        self.pre: Capture | None = None
        self.post: Capture | None = None
        self.began = self.ended = 0
        self.replayed = False
        self.fixed: Json = {}

    @property
    def started_at(self) -> str | None:
        """When the call began; None for a replayed one."""
        return None if self.replayed else super().started_at

    @property
    def arguments(self) -> Json:
        """The arguments as JSON; a live one names the step that returned it."""
        return {**self.args, **{name: {"step": number} for name, number in self.live.items()}}


class Run(Recorder):
    """One run of an agent. `problem` is the reason why it can't be stored, if it can't.

    answer: returns the call of a replay that answers a call of the agent, or None.
    """

    def __init__(
        self,
        task: Task | None,
        engine: str,
        progress: Progress,
        contexts: Contexts | None = None,
    ) -> None:
        if task is None:
            super().__init__("", app=engine)
        else:
            given = {**task.arguments, **task.params}
            super().__init__(_goal(task), given, engine, task.tags)
        self._contexts = contexts
        self.calls: list[Call] = []
        self.problem: EmError | None = None
        self.progress = progress
        self.briefed = False
        self.answer: Callable[[Call], Call | None] = _no_replay
        self._owners: dict[str, Any] = {}
        self._ticks = itertools.count(1)

    @property
    def events(self) -> list[TraceEvent]:
        """The calls so far, in the order in which they began."""
        return [call.event() for call in self.calls]

    def tick(self) -> int:
        """Return the next number of the run's clock, which orders starts and ends of calls."""
        return next(self._ticks)

    def cannot_store(self, why: str, *, place: str = "", fix: str = "") -> None:
        """Note why this run can't be stored; the first reason counts.

        What was stored of it already is taken out of use.
        """
        if self.problem is None:
            self.problem = NotRecordable(why, place=place, fix=fix)
            super().mark_incomplete(str(self.problem))

    def mark_incomplete(self, why: str) -> None:
        """Note that calls may be missing: such a run can't be stored."""
        self.cannot_store(why)

    def left_behind(self, tool: str) -> None:
        """Note that work which the agent began called a tool after the agent had returned."""
        self.cannot_store(
            "it was still running when the agent returned",
            place=f"tool {tool}",
            fix="let the agent wait for the calls that it starts",
        )

    def begin(self, tool: EngineTool, bound: Bound) -> Call:
        """Begin to record a call, with its arguments as they are now.

        Return an identical call that a replay completed instead, if there is one.
        """
        call = Call(tool)
        call.began = self.tick()
        call.owner = bound.owner
        for name, value in bound.arguments.items():
            self._take(call, name, value)
        if tool.is_method:
            self._take_owner(tool, bound.owner)
        completed = self.answer(call)
        if completed is not None:
            return completed
        self.calls.append(call)
        return call

    def _take_owner(self, tool: EngineTool, owner: Any) -> None:
        """Check that the agent uses the object on which a replay will call the method."""
        given = None if self._contexts is None else self._contexts.owner_of(tool)
        if given is not None and given is not owner:
            self.cannot_store(
                f"the agent called it on another {type(owner).__name__}"
                " than the one given to set_context",
                place=f"tool {tool.name}",
                fix="give set_context, or context, the object that the agent uses",
            )
        if self._owners.setdefault(tool.class_name, owner) is not owner:
            self.cannot_store(
                f"the agent called it on two objects of class {tool.class_name}",
                place=f"tool {tool.name}",
                fix="use one object of each class, and pass what differs as an argument",
            )

    def _take(self, call: Call, name: str, value: Any) -> None:
        try:
            encoded, form = encode(value, call.tool.hints.get(name))
        except NotEncodable as problem:
            source = self._step_that_gave(value)
            if source is not None:
                call.live[name] = source
                return
            self.cannot_store(
                f"it was a {type(value).__qualname__}, and {problem.why}"
                if problem.path
                else problem.why,
                place=f"tool {call.tool.name}, argument {name}{problem.path}",
                fix="annotate the argument with its type if that is a dataclass or a model,"
                " or pass plain values",
            )
            return
        except Exception as error:  # noqa: BLE001 - a foreign class's own code
            place = f"tool {call.tool.name}, argument {name}"
            self.cannot_store(f"it can't be stored: {error_text(error)}", place=place)
            return
        call.args[name] = encoded
        if form:
            call.forms[name] = form

    def _step_that_gave(self, value: Any) -> int | None:
        for number in range(len(self.calls) - 1, -1, -1):
            if self.calls[number].ended and self.calls[number].value is value:
                return number
        return None

    def end(self, call: Call, value: Any) -> None:
        """Record what a call returned."""
        if is_lazy(value):
            self.cannot_store(
                f"it returned a {type(value).__qualname__}, whose work is not done yet",
                place=f"tool {call.tool.name}",
                fix="decorate an async function, or return finished values such as a list",
            )
        call.value = value
        call.result, is_complete = snapshot(value)
        call.opaque = not is_complete
        call.ended = self.tick()


def _no_replay(_call: Call) -> Call | None:
    """Answer no call: nothing was replayed."""
    return None


def _goal(task: Task) -> str:
    """Return the first argument if it is a sentence."""
    first = next(iter(task.arguments.values()), None)
    return first if isinstance(first, str) and " " in first else ""


class Inside(NamedTuple):
    """Stands for code inside of a tool, where nothing is recorded. run: None in a replay."""

    run: Run | None


current: ContextVar[Run | Inside | Beside | None] = ContextVar("em_behaviour_run", default=None)


def running() -> Run | None:
    """Return the run that this code is part of; None inside of a tool."""
    run = current.get()
    return run if isinstance(run, Run) else None


find_payer.append(running)


def record_call(
    run: Run, tool: EngineTool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Effects[tuple[Any, BaseException | None]]:
    """Make a call and record it; its value, and what it raised.

    Nothing that goes wrong with the recording reaches the agent.
    """
    bound = tool.bind(args, kwargs)
    if bound is None:
        try:
            value = yield tool.call(args, kwargs)
        except BaseException as error:  # noqa: BLE001 - the wrapper raises it; a generator can't
            return None, error
        run.cannot_store(
            "it took arguments that its signature does not declare",
            place=f"tool {tool.name}",
            fix="decorate a function that declares all its parameters",
        )
        return value, None
    token = current.set(Inside(run))
    try:
        call = run.begin(tool, bound)
        if call.replayed:
            return call.value, None
        if tool.pre_check is not None:
            call.pre = yield from _captured(run, tool, tool.pre_check, bound, "pre-check")
        try:
            value = yield CallTool(tool.function, kwargs, tool.is_async, None, args, False)
        except BaseException as error:  # noqa: BLE001 - the wrapper raises it; a generator can't
            call.stop(error)
            return None, error
        run.end(call, value)
        if tool.post_check is not None:
            call.post = yield from _captured(run, tool, tool.post_check, bound, "post-check")
        call.stop()
        return value, None
    finally:
        current.reset(token)


def _captured(
    run: Run, tool: EngineTool, check: Check[Any], bound: Bound, name: str
) -> Effects[Capture | None]:
    place = f"tool {tool.name}, {name}"
    started = time.perf_counter()
    try:
        seen_now = yield tool.capture(check, bound)
    except Exception as error:  # noqa: BLE001 - a user's function may raise anything
        run.cannot_store(f"its capture raised {error_text(error)}", place=place)
        return None
    try:
        value, form = encode(seen_now, tool.captured_type(check))
        return Capture(value, form, time.perf_counter() - started)
    except NotEncodable as problem:
        run.cannot_store(
            f"the value that its capture returned can't be stored: {problem}",
            place=place,
            fix="let the capture return plain values, or annotate its dataclass or model",
        )
    return None


def record_calls(tool: EngineTool, function: F, watching: Sequence[Run]) -> F:
    """Wrap a tool's function: record its calls where they belong to a run of `watching`."""
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
    around = current.get()
    own = around.of if isinstance(around, Beside) else around
    if isinstance(own, Inside):
        _refuse_checks_inside(own.run, tool)
    elif isinstance(own, Run) and own not in watching:
        own.left_behind(tool.name)
    elif isinstance(own, Run) and own is around:
        return own
    if own is not None and own is around:
        return None
    for other in list(watching):
        # A thread without the context: the call may belong to any of the runs.
        other.cannot_store(
            "it was called in a thread that doesn't have the run's context",
            place=f"tool {tool.name}",
            fix="start threads with contextvars.copy_context().run, or use asyncio.to_thread",
        )
    return None


def _refuse_checks_inside(run: Run | None, tool: EngineTool) -> None:
    """Refuse a run in which a tool called one with checks, which a replay would not ask."""
    if run is not None and (tool.pre_check is not None or tool.post_check is not None):
        run.cannot_store(
            "another tool called it, and its checks are asked only where the agent calls it",
            place=f"tool {tool.name}",
            fix="give the checks to the tool that the agent calls",
        )


def refuse_unfinished(run: Run) -> None:
    """Refuse a run in which a tool was still running when the agent returned."""
    for call in run.calls:
        if not call.ended and call.error is None:
            run.left_behind(call.tool.name)
    if run.problem is not None:
        raise run.problem


def refuse_unknown_effects(calls: Sequence[Call]) -> None:
    """Refuse a run with a failed write whose effect is unknown: it can't be replayed."""
    for number, call in enumerate(calls):
        if call.error is None:
            continue
        traced = TracedCall(
            index=number,
            name=call.tool.name,
            is_udf=False,
            args=call.args,
            result=None,
            error=call.error,
            effect="write" if call.tool.writes else "read",
            effect_inferred=call.tool.effect is None,
        )
        again = any(
            later.ended and later.tool is call.tool and identical(later.args, call.args)
            for later in calls[number + 1 :]
        )
        if traced.effect_unknown and not again:
            raise NotRecordable(
                f"a call failed, and its effect is unknown: {traced.error}",
                place=f"tool {call.tool.name}",
            )


# ---- the behaviour of a run


def composed(run: Run, task: Task, value: Any, hint: Any, seconds: float) -> Behaviour:
    """Return the behaviour of a run and its answer; raise NotRecordable if there is none."""
    refuse_unfinished(run)
    refuse_unknown_effects(run.calls)
    calls = [call for call in run.calls if call.ended]
    if not calls:
        raise NotRecordable(
            "the agent called no tool",
            fix="a behaviour is made of calls of decorated tools",
        )
    numbers = {id(call): number for number, call in enumerate(calls)}
    number_of = {n: numbers[id(call)] for n, call in enumerate(run.calls) if id(call) in numbers}
    params = Params(task.params, param_names([*task.params]))
    return Behaviour(
        task=task.template,
        inputs=task.inputs,
        tags=list(task.tags),
        params=list(task.params),
        steps=[
            Step(
                tool=call.tool.name,
                args=call.args,
                result=call.result,
                writes=call.tool.writes,
                reads=call.tool.reads,
                opaque=call.opaque,
                code=call.tool.code,
                forms=call.forms,
                live={name: number_of[source] for name, source in call.live.items()},
                pre=_filled(call.pre, params),
                post=_filled(call.post, params),
                seconds=call.seconds,
            )
            for call in calls
        ],
        answer=_answer(calls, value, hint),
        seconds=seconds,
        tokens=run.tokens,
        cost_usd=run.cost_usd,
        format=FORMAT,
    )


def _answer(calls: list[Call], value: Any, hint: Any) -> Answer:
    try:
        return Answer(*encode(value, hint))
    except NotEncodable as problem:
        for number in range(len(calls) - 1, -1, -1):
            if calls[number].value is value:
                return Answer(live=number)
        raise NotRecordable(
            f"the agent's return value can't be stored: {problem}",
            place="the agent's return value",
            fix="annotate the agent's return type, or return plain values",
        ) from None


def _filled(capture: Capture | None, params: Params) -> Capture | None:
    """Fill params into a capture. Results are not wired, so that changes are noticed."""
    if capture is None:
        return None
    return msgspec.structs.replace(capture, value=params.fill(capture.value, cautious=True))
