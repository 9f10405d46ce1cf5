"""Recording: what an agent does with its tools while an engine watches.

The run that a call belongs to travels in a context variable: concurrent runs don't mix, and a tool
that calls another is recorded as one call.
"""

import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from em.behaviour.behaviour import Capture
from em.behaviour.check import Check
from em.behaviour.codec import Form, Unkept, is_lazy, keep, seen
from em.behaviour.result import named
from em.behaviour.tool import Bound, Contexts, EngineTool
from em.errors import EmError, NotRecordable
from em.runner.effects import Effects
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.behaviour.result import Progress


class Call:
    """One call as it was made: its arguments as JSON, its own result, what the checks saw."""

    __slots__ = (
        "args", "began", "ended", "error", "fixed", "forms", "live", "opaque", "post", "pre",
        "replayed", "result", "seconds", "tool", "value",
    )  # fmt: skip

    def __init__(self, tool: EngineTool) -> None:
        self.tool = tool
        self.args: Json = {}
        self.forms: dict[str, Form] = {}
        self.live: dict[str, int] = {}
        self.result: Any = None  # as JSON
        self.value: Any = None  # the object itself
        self.opaque = False
        self.error: BaseException | None = None
        self.pre: Capture | None = None
        self.post: Capture | None = None
        self.seconds = 0.0
        self.began = self.ended = 0
        self.replayed = False
        self.fixed: Json = {}  # of a replayed call, the arguments that no result gives


class Run:
    """One run of an agent. `problem` says why it can't be kept, if it can't."""

    def __init__(self, progress: "Progress", contexts: Contexts | None = None) -> None:
        self._contexts = contexts
        self.left: str = ""
        self.calls: list[Call] = []
        self.problem: EmError | None = None
        self.progress = progress
        self.briefed = False
        self.tokens: int | None = None
        self.cost_usd: float | None = None
        self._owners: dict[str, Any] = {}
        self._ticks = 0

    def tick(self) -> int:
        """A number for what happens now: results count from the moment they are there."""
        self._ticks += 1
        return self._ticks

    def cannot_keep(self, problem: EmError) -> None:
        """Note why this run can't be kept; the first reason stands."""
        if self.problem is None:
            self.problem = problem

    def begin(self, tool: EngineTool, bound: Bound) -> Call:
        """Note a call with its arguments as they are now."""
        call = Call(tool)
        call.began = self.tick()
        self.calls.append(call)
        for name, value in bound.arguments.items():
            self._take(call, name, value)
        if tool.is_method:
            self._take_owner(tool, bound.owner)
        return call

    def _take_owner(self, tool: EngineTool, owner: Any) -> None:
        """A replay uses the object of the context: the agent must have used just that."""
        given = None if self._contexts is None else self._contexts.owner_of(tool)
        if given is not None and given is not owner:
            self.cannot_keep(
                NotRecordable(
                    f"it was called on another {type(owner).__name__}"
                    " than the one that was given to set_context",
                    place=f"tool {tool.name}",
                    fix="give set_context, or context, the object that the agent uses",
                )
            )
        if self._owners.setdefault(tool.class_name, owner) is not owner:
            self.cannot_keep(
                NotRecordable(
                    f"it was called on two objects of class {tool.class_name}",
                    place=f"tool {tool.name}",
                    fix="a replay knows one object of each class: pass what differs as an argument",
                )
            )

    def _take(self, call: Call, name: str, value: Any) -> None:
        try:
            kept, form = keep(value, call.tool.hints.get(name))
        except Unkept as problem:
            source = self._step_that_gave(value)
            if source is not None:
                call.live[name] = source
                return
            self.cannot_keep(
                NotRecordable(
                    f"a {type(value).__qualname__} was given, and {problem.why}"
                    if problem.path
                    else problem.why,
                    place=f"tool {call.tool.name}, argument {name}{problem.path}",
                    fix="annotate the argument with its type if that is a dataclass or a model,"
                    " or pass what JSON can say",
                )
            )
            return
        except Exception as error:  # noqa: BLE001 - a foreign class's own code
            place = f"tool {call.tool.name}, argument {name}"
            self.cannot_keep(NotRecordable(f"it can't be kept: {named(error)}", place=place))
            return
        call.args[name] = kept
        if form:
            call.forms[name] = form

    def _step_that_gave(self, value: Any) -> int | None:
        for number in range(len(self.calls) - 1, -1, -1):
            if self.calls[number].ended and self.calls[number].value is value:
                return number
        return None

    def end(self, call: Call, value: Any) -> None:
        """Note what a call gave."""
        if is_lazy(value):
            self.cannot_keep(
                NotRecordable(
                    f"it gave a {type(value).__qualname__}: a replay would not do what that does",
                    place=f"tool {call.tool.name}",
                    fix="decorate an async function, or return what is done: a list, a value",
                )
            )
        call.value = value
        call.result, is_seen = seen(value)
        call.opaque = not is_seen
        call.ended = self.tick()


NESTED = Run.__new__(Run)
"""Stands for the run inside of a tool, or of a replay, where nothing is recorded."""

current: ContextVar[Run | None] = ContextVar("em_behaviour_run", default=None)


def running() -> Run | None:
    """The run that this code is part of; None inside of a tool."""
    run = current.get()
    return None if run is NESTED else run


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
        run.cannot_keep(
            NotRecordable(
                "it took arguments that its signature does not name",
                place=f"tool {tool.name}",
                fix="decorate a function that names all that it takes",
            )
        )
        return value, None
    token = current.set(NESTED)
    try:
        started = time.perf_counter()
        call = run.begin(tool, bound)
        if tool.pre_check is not None:
            call.pre = yield from _captured(run, tool, tool.pre_check, bound, "pre-check")
        try:
            value = yield tool.call(args, kwargs)
        except BaseException as error:  # noqa: BLE001 - the wrapper raises it; a generator can't
            call.error = error
            call.seconds = time.perf_counter() - started
            return None, error
        run.end(call, value)
        if tool.post_check is not None:
            call.post = yield from _captured(run, tool, tool.post_check, bound, "post-check")
        call.seconds = time.perf_counter() - started
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
        run.cannot_keep(NotRecordable(f"its capture raised {named(error)}", place=place))
        return None
    try:
        value, form = keep(seen_now, tool.captured_type(check))
        return Capture(value, form, time.perf_counter() - started)
    except Unkept as problem:
        run.cannot_keep(
            NotRecordable(
                f"its capture returned what can't be kept: {problem}",
                place=place,
                fix="annotate what the capture returns: a dataclass, a model, or plain values",
            )
        )
    return None
