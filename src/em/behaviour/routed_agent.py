"""The routine first, else the agent: what `memory.agent` returns.

A request that a routine in use fits is done by the routine, without a model. Where a model read it
and it asks for more than the inputs express, the routine is prepared, and the model says yes or no
to the plan. Where no routine fits, a check hands over or the word is no clear yes, the agent does
the task, and what it did is recorded. If a routine had made writes before it stopped, the agent's
identical calls are answered with their results: each call the routine completed answers once, so no
write is made twice. A write of the routine that failed may have had its effect; the agent's
identical call is refused with `outcome_unknown`. A write that no decorated tool made can't be
answered: then the agent is not asked, and the call raises what was done. Nothing is learnt from a
task that two did.
"""

import asyncio
import functools
import inspect
import logging
import threading
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from contextvars import ContextVar
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from em.compiler.calls import infer_effect
from em.compiler.compile_trace import compile_several
from em.compiler.growth import compile_again, routines_of_kind
from em.compiler.kind import kind_of
from em.compiler.match import Match, Matcher
from em.compiler.proposals import propose_grown
from em.compiler.shadow import Shadow
from em.compiler.suggestions import suggest
from em.errors import EmError, OutcomeUnknown, RunNotDone, StoreError, UsageError
from em.runner.engine import RunOptions, arun_routine, run_routine
from em.runner.package import ROUTINE, find_routine, keep_routine, load_program, opened, texts_of
from em.runner.preparation import (
    PlanDecision,
    acommit_prepared,
    aprepare_routine,
    commit_prepared,
    decided,
    prepare_routine,
)
from em.runner.run import UNDONE, Failure, Prepared, Reason, RunResult, failure_of
from em.runner.standing import why_waiting
from em.runner.tools import ToolRegistry, Tools
from em.store.log import Log
from em.store.protocol import Store
from em.traces.catalogue import get_traces
from em.traces.recorder import (
    MadeBefore,
    Recorder,
    Recording,
    bound_by_name,
    error_text,
    name_of,
    plain,
    recording_into,
)
from em.traces.trace import Outcome, ToolCall, Trace
from em.values.call import Signature
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.llm.client import LlmClient

AFTER = 3
"""New traces of a kind after which its routine is compiled again; twice as many each time that
nothing came into use of it."""
MOST_KINDS = 10_000
"""Kinds whose new traces are counted."""

Subject = str | Callable[..., str | None] | None
Success = Callable[[Any], Any]

T = TypeVar("T")

_log = logging.getLogger("em.agent")


class Last(msgspec.Struct, frozen=True, kw_only=True):
    """How the last task was done.

    how: by which routine, or why by the agent, or by nobody.
    run_id: of the routine's run, if one ran. trace_id: of the agent's trace, if it was asked.
    agreed: why a model agreed to what the routine would write, if it was asked.
    done, in_doubt: the calls with an effect that the routine completed, and those that failed and
    may have had their effect.
    problem: what went wrong beside the task: its outcome could not be judged.
    """

    how: str
    routine: str = ""
    agreed: str = ""
    run_id: str = ""
    trace_id: str = ""
    done: Sequence[str] = ()
    in_doubt: Sequence[str] = ()
    problem: str = ""

    @property
    def by_routine(self) -> bool:
        """Whether a routine did all of it."""
        return self.how == f"routine {self.routine}"


class Desk:
    """What a routed agent needs of a memory: find a routine, run it, record the agent, learn."""

    def __init__(
        self, store: Store, matcher: Matcher, options: RunOptions, shadow: Shadow | None
    ) -> None:
        self.find, self._is_on = matcher.find, matcher.is_on
        self._store, self._shadow = store, shadow
        # Where nobody is asked, no run waits for an answer: the agent does the task.
        self._run_options: RunOptions = {**options, "asks": False}

    async def run(self, task: "_Task", match: Match, tools: ToolRegistry) -> RunResult:
        """Run a routine with the inputs of a match."""
        with opened(self._store, match.routine) as package:
            given = (package, match.inputs, tools)
            return await task.either(run_routine, arun_routine, *given, **self._options(task))

    async def prepare(self, task: "_Task", match: Match, tools: ToolRegistry) -> Prepared:
        """Make the reads of a routine with the inputs of a match, and plan its writes."""
        with opened(self._store, match.routine) as package:
            how, given = (prepare_routine, aprepare_routine), (package, match.inputs, tools)
            return await task.either(*how, *given, **self._options(task))

    async def commit(self, task: "_Task", token: str, tools: ToolRegistry) -> RunResult:
        """Make the writes of a plan."""
        options = self._options(task)
        given = (options.pop("store"), token, tools)
        return await task.either(commit_prepared, acommit_prepared, *given, **options)

    def _options(self, task: "_Task") -> dict[str, Any]:
        return {**self._run_options, "subject": task.subject, "store": self._store}

    def record(self, goal: str, given: Json, subject: str | None) -> Recording:
        """Return a recording of the agent; proposed routines are compared with what it did."""
        beside = None
        if self._shadow is not None:
            beside = self._shadow.beside(True, subject, only_proposed=self._is_on)
        log = Log(self._store)
        return Recording(log, goal, given, app="", subject=subject, stored=beside)

    def unseen(self, ref: str, failure: Failure, seen: set[str]) -> list[str]:
        """Return the steps of a failed run that wrote, or may have, with a tool not among these."""
        done = {one.partition("[")[0] for one in failure.context.get("done", ())}
        if failure.context.get("outcome") != UNDONE:
            done.add(failure.step_id.partition("[")[0])
        text = texts_of(find_routine(self._store, ref))[ROUTINE]
        steps = load_program(text.encode(), ref).steps
        return [
            one.id for one in steps if one.id in done and one.is_write and one.target not in seen
        ]

    def learn(self, routine: str, trace_id: str, trace: Trace) -> bool:
        """Compile again with new traces, of which this is the last. Return whether it is in use.

        routine: the one that handed the task over; without it, the one of the same kind, or a new
        one. What may not be used by itself waits as proposed for a person.
        """
        known = [routine] if routine else routines_of_kind(self._store, trace)
        for name in known:
            grown = compile_again(self._store, name, allow_unlabelled=True, by_itself=True)
            if routine:
                propose_grown(self._store, grown)
            if grown.new and not grown.waits:
                return True
        if known:
            return False
        found = suggest(self._store, at_least=AFTER, allow_unlabelled=True, about=[trace_id])
        waits = True
        for one in found:
            if not one.problem and not one.kept_as:
                made = compile_several(get_traces(self._store, one.traces), kept_in=self._store)
                waits = bool(why_waiting(self._store, made.draft.proof))
                keep_routine(self._store, made.files, made.from_events, retired=waits)
        return not waits


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
        self.subject, self._success, self._learns = subject, success, learn
        called = getattr(agent, "__call__", agent)  # noqa: B004 - of an object it is the method that tells the kind
        self._is_async = any(map(inspect.iscoroutinefunction, (agent, called)))
        self._new: dict[Hashable, tuple[int, int]] = {}
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

    def __get__(self, one: object, kind: type | None = None) -> Any:
        """Return the agent of an object, where it is a method."""
        return self if one is None else MethodType(self, one)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do a task: by a routine if one fits, else by the agent. Await an async agent."""
        doing = self._do(_Task(self, args, kwargs, is_async=self._is_async))
        return doing if self._is_async else _finished(doing)

    async def _do(self, task: "_Task") -> Any:
        """Do a task; of an agent that is not async, this waits for nothing."""
        client = self._client
        found = await task.aside(self._desk.find, task.request, self._tools, client)
        task.why_not, match = found.why_not, found.match
        if match is not None:
            with task.attempt(match):
                if match.wishes and client is not None:
                    plan = await self._desk.prepare(task, match, self._tools)
                    word = await task.aside(decided, plan, task.request, match.wishes, client)
                    if task.may_commit(plan, word):
                        task.result = await self._desk.commit(task, plan.token, self._tools)
                else:
                    task.result = await self._desk.run(task, match, self._tools)
        try:
            if task.result is not None and task.is_done:
                return task.result.output
            task.refuse_unseen(self._desk)
            recording = self._desk.record(self.name, task.others, task.subject)
            try:
                with recording as recorder:
                    answer = await self._answered(task, recorder)
            finally:
                task.trace_id = recording.trace_id
        finally:
            self._last.set(task.last)
        if self._learns:
            await task.aside(self._learn, task, recorder)
        return answer

    async def _answered(self, task: "_Task", recorder: Recorder) -> Any:
        """Return the agent's answer; its calls are answered with what the routine completed."""
        for turn in task.turns:
            recorder.said("user", turn)
        if task.done or task.in_doubt:
            recorder.answer_call = task.answer
            recorder.mark_incomplete(f"{task.ref} did a part of this task before the agent")
        answer = self._agent(*task.args, **task.kwargs)
        if self._is_async:
            answer = await answer
        recorder.output = recorder.given(self.name, answer)
        recorder.outcome = recorder.outcome or "unknown"  # returning does not mean it was right
        if self._success is not None:
            try:
                recorder.outcome = await self._outcome(self._success(answer)) or recorder.outcome
            except Exception as error:  # noqa: BLE001 - it may raise anything; the task is done
                task.problem = f"success= raised {error_text(error)}: the outcome is unknown"
                _log.warning("%s", task.problem, exc_info=error)
        return answer

    async def _outcome(self, good: Any) -> Outcome | None:
        """Return the outcome by what `success` returned; None if it does not know."""
        if inspect.isawaitable(good):
            if not self._is_async:
                raise UsageError("an async function can't judge an agent that is not async")
            good = await good
        return None if good is None else "success" if good else "failure"

    def _learn(self, task: "_Task", recorder: Recorder) -> None:
        """Compile again after a few new traces of a kind."""
        trace = recorder.trace(outcome=recorder.outcome or "unknown")
        if trace.incomplete or trace.outcome == "failure":
            return
        routine = task.ref.partition("@")[0]
        # The task is done: that nothing could be learnt must not fail it.
        try:
            kind = kind_of(trace, {})
            key = routine or kind.effects or kind.way
            with self._lock:
                if len(self._new) >= MOST_KINDS:
                    self._new.clear()
                count, due = self._new.get(key, (0, AFTER))
                is_due = count + 1 >= due
                self._new[key] = (0, 2 * due) if is_due else (count + 1, due)
            if is_due and self._desk.learn(routine, task.trace_id, trace):
                self._new[key] = (0, AFTER)
        except EmError as error:
            _log.info("nothing was learnt from trace %s: %s", task.trace_id, error)
        except Exception:  # noqa: BLE001 - as above; reported
            _log.exception("nothing was learnt from trace %s", task.trace_id)

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

    def __init__(
        self, agent: RoutedAgent, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_async: bool
    ) -> None:
        self._agent, self._is_async = agent, is_async
        self.args, self.kwargs = args, kwargs
        self.turns, self.others = agent.bound(args, kwargs)
        # In a conversation, the request is what the user said in all turns before the first effect.
        self.request = "\n".join(self.turns)
        self.subject = agent.subject(*args, **kwargs) if callable(agent.subject) else agent.subject
        self.match: Match | None = None
        self.result: RunResult | None = None
        self.agreed = self.problem = self.trace_id = self.why_not = ""
        self.done: Sequence[str] = ()
        self.in_doubt: Sequence[str] = ()
        self._made: list[ToolCall] = []
        self._lock = threading.Lock()

    async def either(
        self, now: Callable[..., T], later: Callable[..., Awaitable[T]], *args: Any, **options: Any
    ) -> T:
        """Call the function for this kind of agent."""
        return await later(*args, **options) if self._is_async else now(*args, **options)

    async def aside(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call a function that takes its time; of an async agent, in a thread."""
        in_thread = functools.partial(asyncio.to_thread, function)
        return await self.either(function, in_thread, *args, **options)

    @property
    def ref(self) -> str:
        """The routine that was tried; empty if none fits."""
        return "" if self.match is None else self.match.routine

    def may_commit(self, plan: Prepared, decision: PlanDecision) -> bool:
        """Take a model's word on a plan; if it is a no, the agent does the task."""
        assert self.match is not None
        if plan.token and decision.yes:
            self.agreed = decision.reason
            return True
        words = f"{'; '.join(self.match.wishes)}: {decision.reason}"
        reason = plan.reason or Reason(step_id="plan", message=words)
        self.result = RunResult(run_id="", status="needs_input", reason=reason)
        return False

    @contextmanager
    def attempt(self, match: Match) -> Iterator[None]:
        """Note the calls that a routine makes inside; one that can't run here is left."""
        self.match = match
        notes = Recorder(self.request)
        try:
            with recording_into(notes):
                yield
        except StoreError:
            raise
        except EmError as error:
            why = failure_of("", error, {})
            self.result = RunResult(run_id="", status="failed", failure=why)
        finally:
            calls = [one for one in notes.events if isinstance(one, ToolCall)]
            made = [one for one in calls if (one.effect or infer_effect(one.tool)) == "write"]
            failure = self._failure
            if made and failure is not None and failure.context.get("outcome") == UNDONE:
                last = made[-1]  # if it is the one that failed, it surely had no effect
                is_undone = last.error is not None and last.args == failure.context.get("args")
                made = made[: len(made) - is_undone]
            done = [one for one in made if one.error is None]
            # A call that was retried and then returned is not in doubt.
            known = [(one.tool, one.args) for one in done]
            doubt = [one for one in made if one.error and (one.tool, one.args) not in known]
            self.done, self.in_doubt = ([one.tool for one in each] for each in (done, doubt))
            self._made = [*done, *doubt]

    @property
    def _failure(self) -> Failure | None:
        return None if self.result is None else self.result.failure

    def refuse_unseen(self, desk: Desk) -> None:
        """Raise RunNotDone if the routine wrote with tools whose calls can't be answered."""
        failure = self._failure
        if failure is None or self.result is None or not failure.step_id:
            return
        unseen = desk.unseen(self.ref, failure, {one.tool for one in self._made})
        if unseen:
            raise RunNotDone(
                f"it stopped after {', '.join(unseen)}, and the agent can't be told:"
                f" {failure.message}",
                place=f"routine {self.ref}, run {self.result.run_id}",
                fix="finish by hand; decorate the tools with em.tool, and the agent can go on",
                run_id=self.result.run_id,
                status="failed",
                reason=plain(failure),
            )

    @property
    def is_done(self) -> bool:
        """Whether a routine did the whole task."""
        return self.result is not None and self.result.status == "ok"

    @property
    def last(self) -> Last:
        """How it was done."""
        who = "agent" if self.trace_id else "nobody"
        return Last(
            how=f"routine {self.ref}" if self.is_done else f"{who}: {self.why}",
            routine=self.ref,
            agreed=self.agreed,
            run_id="" if self.result is None else self.result.run_id,
            trace_id=self.trace_id,
            done=self.done,
            in_doubt=self.in_doubt,
            problem=self.problem,
        )

    @property
    def why(self) -> str:
        """Say why the agent did the task, and what the routine had done before."""
        if self.result is None:
            return self.why_not
        if self.result.reason is not None:
            return self.result.reason.in_short
        message = self.result.failure.message if self.result.failure else "it needs an answer"
        done = [f"{', '.join(self.done)} was done"] if self.done else []
        doubt = [f"{', '.join(self.in_doubt)} may have been done"] if self.in_doubt else []
        return "; ".join([f"{self.ref} failed: {message}", *done, *doubt])

    def answer(self, tool: str, args: Json) -> MadeBefore | None:
        """Return the result of a write that the routine made; None if it made no such call.

        Numbers are compared by their value: 1 and 1.0 are one call.
        """
        wanted = self._agent.with_defaults(tool, args)
        with self._lock:
            alike = [
                one
                for one in self._made
                if one.tool == tool and self._agent.with_defaults(tool, one.args) == wanted
            ]
            made = next((one for one in alike if one.error is None), None)
            if made is not None:
                self._made.remove(made)
                return MadeBefore(made.result)
        if not alike:
            return None
        raise OutcomeUnknown(
            f"a routine made this call, and it failed: {alike[0].error}",
            place=f"tool {tool}",
            fix="find out whether it had its effect before you make it again",
        )


def _finished(doing: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing to its end."""
    try:
        doing.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("it waited")


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
