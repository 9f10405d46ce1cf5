"""The routine first, else the agent: what `memory.agent` returns.

A request that a routine in use fits is done by the routine, without a model. Where a model read it
and it asks for more than the inputs express, the routine is prepared, and the model says yes or no
to the plan. Where no routine fits, a check hands over or the word is no clear yes, the agent does
the task, and what it did is recorded. If a routine had made writes before it stopped, the agent's
identical calls are answered with their results: each call the routine completed answers once, so no
write is made twice. A write of the routine that failed may have had its effect; the agent's
identical call is refused with `outcome_unknown`.
"""

import asyncio
import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from em.compiler.calls import infer_effect
from em.compiler.compile_trace import compile_several
from em.compiler.growth import compile_again
from em.compiler.match import Match, Matcher
from em.compiler.suggestions import suggest
from em.errors import EmError, OutcomeUnknown, UsageError
from em.runner.commitment import NotPrepared
from em.runner.decision import Decision, decided
from em.runner.engine import RunOptions, arun_routine, run_routine
from em.runner.package import keep_routine, opened
from em.runner.preparation import (
    acommit_prepared,
    aprepare_routine,
    commit_prepared,
    prepare_routine,
)
from em.runner.prepared import Prepared
from em.runner.reason import Reason
from em.runner.run import RunResult
from em.runner.tools import ToolRegistry, Tools
from em.settings import AllowSettings
from em.store.log import Log
from em.store.protocol import Store
from em.traces.catalogue import get_traces
from em.traces.record import Recording
from em.traces.recorder import Made, Recorder, bound_by_name, name_of, plain, recording_into
from em.traces.trace import ToolCall
from em.values.call import Signature
from em.values.canonical import Json, identical

if TYPE_CHECKING:
    from em.llm.client import LlmClient

AFTER = 3
"""New traces of a kind after which its routine is compiled again."""

Subject = str | Callable[..., str | None] | None
Success = Callable[[Any], bool]


class Last(msgspec.Struct, frozen=True, kw_only=True):
    """How the last task was done. how: by which routine, or why by the agent.

    run_id: of the routine's run, if one ran. trace_id: of the agent's trace, if it was asked.
    agreed: why a model agreed to what the routine would write, if it was asked.
    """

    how: str
    routine: str = ""
    agreed: str = ""
    run_id: str = ""
    trace_id: str = ""

    @property
    def by_routine(self) -> bool:
        """Whether a routine did all of it."""
        return not self.trace_id


class Desk:
    """What a routed agent needs of a memory: find a routine, run it, record the agent, learn."""

    def __init__(self, store: Store, matcher: Matcher, allow: AllowSettings | None) -> None:
        self._match = matcher.match
        self._store, self._allow = store, allow

    def match(self, task: "_Task", tools: ToolRegistry, client: "LlmClient | None") -> Match | None:
        """Return the routine that a request asks for."""
        return self._match(task.request, tools, client, wishes=client is not None)

    def run(self, task: "_Task", match: Match, tools: ToolRegistry) -> RunResult:
        """Run a routine with the inputs of a match."""
        with opened(self._store, match.routine) as package:
            options = self._options(task)
            return run_routine(package, match.inputs, tools, store=self._store, **options)

    async def arun(self, task: "_Task", match: Match, tools: ToolRegistry) -> RunResult:
        """Run a routine under asyncio."""
        with opened(self._store, match.routine) as package:
            options = self._options(task)
            return await arun_routine(package, match.inputs, tools, store=self._store, **options)

    def prepare(self, task: "_Task", match: Match, tools: ToolRegistry) -> Prepared:
        """Make the reads of a routine with the inputs of a match, and plan its writes."""
        with opened(self._store, match.routine) as package:
            options = self._options(task)
            return prepare_routine(package, match.inputs, tools, store=self._store, **options)

    async def aprepare(self, task: "_Task", match: Match, tools: ToolRegistry) -> Prepared:
        """Do the same under asyncio."""
        with opened(self._store, match.routine) as package:
            options = self._options(task)
            return await aprepare_routine(
                package, match.inputs, tools, store=self._store, **options
            )

    def commit(self, task: "_Task", token: str, tools: ToolRegistry) -> RunResult:
        """Make the writes of a plan; none if it has expired or was forgotten meanwhile."""
        try:
            return commit_prepared(self._store, token, tools, **self._options(task))
        except NotPrepared as error:
            return _left(error.message)

    async def acommit(self, task: "_Task", token: str, tools: ToolRegistry) -> RunResult:
        """Do the same under asyncio."""
        try:
            return await acommit_prepared(self._store, token, tools, **self._options(task))
        except NotPrepared as error:
            return _left(error.message)

    def _options(self, task: "_Task") -> RunOptions:
        # Where nobody is asked, no run waits for an answer: the agent does the task.
        return {"allow": self._allow, "subject": task.subject, "asks": False}

    def record(self, goal: str, given: Json, subject: str | None) -> Recording:
        """Return a recording of the agent."""
        log = Log(self._store)
        return Recording(log, goal, given, app="", subject=subject)

    def learn(self, routine: str) -> None:
        """Compile a routine again with its new traces; without a name, what has none yet.

        What may not be used by itself waits as proposed for a person.
        """
        if routine:
            compile_again(self._store, routine, allow_unlabelled=True, by_itself=True)
            return
        for one in suggest(self._store, at_least=AFTER, allow_unlabelled=True):
            if not one.problem and not one.kept_as:
                traces = get_traces(self._store, one.traces)
                made = compile_several(traces, kept_in=self._store)
                waits = bool(one.waits)
                keep_routine(self._store, made.files, made.from_events, retired=waits)


class RoutedAgent:
    """An agent whose tasks are done by routines where one fits.

    `agent("…")` does a task; the first argument is the request in words. `agent.last` says how the
    last task of this thread or asyncio task was done.
    """

    def __init__(
        self,
        desk: Desk,
        agent: Callable[..., Any],
        tools: Tools,
        *,
        client: "LlmClient | None" = None,
        subject: Subject = None,
        success: Success | None = None,
        learn: bool = True,
    ) -> None:
        self._desk, self._agent, self._client = desk, agent, client
        self._tools = ToolRegistry(tools)
        self._signature = Signature(agent)
        self._request = _first_parameter(agent)
        self._subject, self._success, self._learns = subject, success, learn
        self._is_async = inspect.iscoroutinefunction(agent)
        self._new: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._last: ContextVar[Last | None] = ContextVar("last", default=None)
        self.name = name_of(agent)
        functools.update_wrapper(self, agent)

    @property
    def last(self) -> Last:
        """How the last task was done here."""
        last = self._last.get()
        if last is None:
            raise UsageError("this agent has done no task yet", place="last", fix="call it first")
        return last

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do a task: by a routine if one fits, else by the agent. Await an async agent."""
        task = _Task(self, args, kwargs)
        return self._later(task) if self._is_async else self._now(task)

    def _now(self, task: "_Task") -> Any:
        match = self._desk.match(task, self._tools, self._client)
        if match is not None and match.wishes:
            plan = self._desk.prepare(task, match, self._tools)
            if task.may_commit(match, plan, self._decided(task, match, plan)):
                with task.attempt(match):
                    task.result = self._desk.commit(task, plan.token, self._tools)
        elif match is not None:
            with task.attempt(match):
                task.result = self._desk.run(task, match, self._tools)
        if task.is_done:
            return self._served(task)
        with self._recorded(task) as recorder:
            recorder.output = recorder.given(
                self.name, answer := self._agent(*task.args, **task.kwargs)
            )
            self._judge(recorder, answer)
        self._learn(task)
        return answer

    async def _later(self, task: "_Task") -> Any:
        match = await asyncio.to_thread(self._desk.match, task, self._tools, self._client)
        if match is not None and match.wishes:
            plan = await self._desk.aprepare(task, match, self._tools)
            decision = await asyncio.to_thread(self._decided, task, match, plan)
            if task.may_commit(match, plan, decision):
                with task.attempt(match):
                    task.result = await self._desk.acommit(task, plan.token, self._tools)
        elif match is not None:
            with task.attempt(match):
                task.result = await self._desk.arun(task, match, self._tools)
        if task.is_done:
            return self._served(task)
        with self._recorded(task) as recorder:
            answer = await self._agent(*task.args, **task.kwargs)
            recorder.output = recorder.given(self.name, answer)
            self._judge(recorder, answer)
        await asyncio.to_thread(self._learn, task)
        return answer

    def _decided(self, task: "_Task", match: Match, plan: Prepared) -> Decision:
        """Let the model say whether a plan does what the request asks for."""
        assert self._client is not None  # it read the request
        return decided(plan, task.request, match.wishes, self._client)

    def _served(self, task: "_Task") -> Any:
        """Return what the routine returned."""
        assert task.match is not None
        assert task.result is not None
        ref = task.match.routine
        how, run_id = f"routine {ref}", task.result.run_id
        self._last.set(Last(how=how, routine=ref, run_id=run_id, agreed=task.agreed))
        return task.result.output

    @contextmanager
    def _recorded(self, task: "_Task") -> Iterator[Recorder]:
        """Record the agent inside; it is answered with what the routine completed."""
        recording = self._desk.record(self.name, task.others, task.subject)
        try:
            with recording as recorder:
                for turn in task.turns:
                    recorder.said("user", turn)
                recorder.answer_call = task.answer
                yield recorder
        finally:
            routine = "" if task.match is None else task.match.routine
            run_id = "" if task.result is None else task.result.run_id
            how = f"agent: {task.why}"
            self._last.set(
                Last(how=how, routine=routine, run_id=run_id, trace_id=recording.trace_id)
            )

    def _judge(self, recorder: Recorder, answer: Any) -> None:
        if self._success is not None:
            recorder.outcome = "success" if self._success(answer) else "failure"
        elif recorder.outcome is None:
            recorder.outcome = "unknown"  # that it returned does not say that it was right

    def _learn(self, task: "_Task") -> None:
        """Compile again after a few new traces of a kind."""
        name = "" if task.match is None else task.match.routine.partition("@")[0]
        with self._lock:
            self._new[name] += 1
            is_due = self._learns and self._new[name] % AFTER == 0
        if is_due:
            # The task is done: that nothing could be learnt must not fail it.
            with suppress(EmError):
                self._desk.learn(name)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[str], Json]:
        """Return the turns of the request, and the other arguments by name as JSON."""
        named = bound_by_name(self._signature, args, kwargs)
        request = named.pop(self._request, None)
        turns = [request] if isinstance(request, str) else _turns(request, self._tools)
        if turns is None:
            raise UsageError(
                f"expected a request in words or messages, got a {type(request).__name__}",
                place=f"agent {self.name}, argument {self._request}",
                fix="pass the request as the agent's first argument",
            )
        return turns, {name: plain(value) for name, value in named.items()}

    def subject_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        """Return who a task is about."""
        return self._subject(*args, **kwargs) if callable(self._subject) else self._subject

    def with_defaults(self, tool: str, args: Json) -> Json:
        """Return the arguments of a call with the defaults of those that were not given."""
        known = self._tools.get(tool)
        parameters = () if known is None else known.signature.parameters or ()
        defaults = {
            one.name: plain(one.default) for one in parameters if one.default is not one.empty
        }
        return {**defaults, **args}


class _Task:
    """One task: what was asked, and what a routine did of it."""

    def __init__(self, agent: RoutedAgent, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._agent = agent
        self.args, self.kwargs = args, kwargs
        self.turns, self.others = agent.bound(args, kwargs)
        # In a conversation, the request is what the user said in all turns before the first effect.
        self.request = "\n".join(self.turns)
        self.subject = agent.subject_of(args, kwargs)
        self.match: Match | None = None
        self.result: RunResult | None = None
        self.agreed = ""
        self._open: list[ToolCall] = []
        self._lock = threading.Lock()

    def may_commit(self, match: Match, plan: Prepared, decision: Decision) -> bool:
        """Take a model's word on a plan; if it is a no, the agent does the task."""
        if plan.token and decision.yes:
            self.agreed = decision.reason
            return True
        self.match = match
        self.result = _left(f"{'; '.join(match.wishes)}: {decision.reason}")
        if plan.reason is not None:
            self.result = msgspec.structs.replace(self.result, reason=plan.reason)
        return False

    @contextmanager
    def attempt(self, match: Match) -> Iterator[None]:
        """Note the calls that a routine makes inside."""
        self.match = match
        notes = Recorder(self.request)
        try:
            with recording_into(notes):
                yield
        finally:
            calls = [one for one in notes.events if isinstance(one, ToolCall)]
            self._open = [one for one in calls if one.effect != "read"]

    @property
    def is_done(self) -> bool:
        """Whether a routine did the whole task."""
        return self.result is not None and self.result.status == "ok"

    @property
    def why(self) -> str:
        """Say why the agent did the task."""
        if self.match is None or self.result is None:
            return "no routine fits the request"
        if self.result.reason is not None:
            return str(self.result.reason)
        if self.result.failure is not None:
            return f"{self.match.routine} failed: {self.result.failure.message}"
        return f"{self.match.routine} needs an answer"

    def answer(self, tool: str, args: Json) -> Made | None:
        """Return the result of a write that the routine made; None if it made no such call."""
        wanted = self._agent.with_defaults(tool, args)
        with self._lock:
            for one in self._open:
                own = self._agent.with_defaults(one.tool, one.args)
                if one.tool != tool or not identical(own, wanted):
                    continue
                if one.error is not None:
                    raise OutcomeUnknown(
                        f"a routine made this call, and it failed: {one.error}",
                        place=f"tool {tool}",
                        fix="find out whether it had its effect before you make it again",
                    )
                self._open.remove(one)
                return Made(one.result)
        return None


def _left(why: str) -> RunResult:
    """Return the result of a plan that is not carried out."""
    reason = Reason(step_id="plan", message=why)
    return RunResult(run_id="", status="needs_input", reason=reason)


def _turns(messages: Any, tools: ToolRegistry) -> list[str] | None:
    """Return what the user said in messages (`{"role": …, "content": …}`); None if they are none.

    Empty if a call with an effect was made already: the task was begun, so no routine does it.
    """
    if not isinstance(messages, list) or not all(isinstance(one, Mapping) for one in messages):
        return None
    said: list[str] = []
    for one in messages:
        content = one.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        parts = [part for part in parts if isinstance(part, Mapping)]
        if one.get("role") == "user":
            said += [part["text"] for part in parts if isinstance(part.get("text"), str)]
        calls = [call.get("function", call) for call in one.get("tool_calls") or ()]
        calls += [part for part in parts if part.get("type") == "tool_use"]
        for name in (str(call.get("name")) for call in calls):
            known = tools.get(name)
            if ((known and known.effect) or infer_effect(name)) == "write":
                return []
    return said


def _first_parameter(agent: Callable[..., Any]) -> str:
    names = [
        one.name
        for one in Signature(agent).parameters or ()
        if one.name not in ("self", "cls") and one.kind in _POSITIONAL
    ]
    if not names:
        raise UsageError(
            "the agent must take the request as its first argument",
            place=f"agent {name_of(agent)}",
        )
    return names[0]


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
