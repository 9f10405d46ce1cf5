"""Trace: one attempt at a task, with its calls, results, errors and outcome.

The native format and a trajectory (`task`, `steps`) are read into the same Trace. In the log, a
trace is a stream of events, and `trace_events` and `kept_trace` convert between the two.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from em.errors import InputError
from em.log.event import MAX_NAME, TRACE_PREFIX, Draft, Event, trace_stream
from em.log.kinds import Edge, event_body, event_flow
from em.log.summary import Summary, event_summary, shown_text, shown_value
from em.values.call import Effect, Usage
from em.values.canonical import Json
from em.values.mismatch import mismatch
from em.values.times import new_id, now

Outcome = Literal["success", "failure", "unknown"]
MOST_TOOLS, LONGEST_TOOL = 40, 60
"""How many tools a summary names that a trace called, and with how many characters."""


@event_body("tool_call")
class ToolCall(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tool_call", tag_field="type"
):
    """A tool was called, with its result or its error.

    destructive: whether the tool declares that it may destroy something, as `destructiveHint` does.
    open_world: whether it returns what anybody may have written, as `openWorldHint` says.
    """

    tool: str
    args: Json = {}
    result: Any = None
    error: Any = None
    id: str | None = None
    seq: int | None = None
    started_at: str | None = None
    duration_ms: float | None = None
    effect: Effect | None = None
    destructive: bool | None = None
    open_world: bool | None = None
    tokens: int | None = None
    cost_usd: float | None = None


@event_body("udf_call")
class UdfCall(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="udf_call", tag_field="type"
):
    """A function of the agent's own was called."""

    function: str
    args: Json = {}
    result: Any = None
    error: Any = None
    id: str | None = None
    seq: int | None = None
    started_at: str | None = None
    duration_ms: float | None = None


@event_body("approval")
class Approval(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="approval", tag_field="type"
):
    """A person was asked."""

    prompt: str
    answer: Any = None
    seq: int | None = None


@event_body("message")
class Message(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="message", tag_field="type"
):
    """A message of a user, the agent or its environment; by whom and to whom, if that is known."""

    role: str
    text: str
    seq: int | None = None
    speaker: str = ""
    addressee: str = ""


TraceEvent = ToolCall | UdfCall | Approval | Message
Call = ToolCall | UdfCall


class Mission(msgspec.Struct, frozen=True, omit_defaults=True):
    """The task: its goal, and its input."""

    goal: str = ""
    input_summary: Json = {}


Source = Literal["own", "agent", "imported", "web"]
"""Where a trace comes from, the most trusted first: this process, an agent that em was installed
into, a file, or text that anybody may have written."""


def least_trusted(sources: Iterable[Source]) -> Source:
    """Return the least trusted of the sources that something comes from."""
    return max(sources, key=get_args(Source).index, default="own")


class Trace(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt at a task. `final_output` is UNSET where the recording has none.

    `tools` has, by the name of a tool that was called, what it declares of its parameters (JSON
    Schema by parameter, `em.traces.adapters`), as far as that is known.
    `incomplete` says why calls may be missing; such a trace is not compiled. "" if none are.
    `parent` of a sub-agent's trace is the trace of the agent that started it, `parent_call` the id
    of the call that started it, where that is known.
    """

    version: Literal["1"] = "1"
    app: Json = {}
    mission: Mission = Mission()
    tools: Mapping[str, Json] = {}
    events: Sequence[TraceEvent] = ()
    final_output: Any = msgspec.UNSET
    outcome: Outcome = "unknown"
    incomplete: str = ""
    thoughts: Any = None
    tags: Sequence[str] = ()
    usage: Usage = Usage()
    source: Source = "own"
    parent: str | None = None
    parent_call: str | None = None

    @property
    def origin(self) -> Source:
        """The least trusted of what it comes from, with what its calls returned."""
        calls = (call for call in self.calls if isinstance(call, ToolCall))
        return "web" if any(call.open_world for call in calls) else self.source

    @property
    def calls(self) -> list[Call]:
        """The calls, in order."""
        return [event for event in self.events if isinstance(event, ToolCall | UdfCall)]

    @property
    def recorded_usage(self) -> Usage:
        """The cost of the attempt: from its usage, else the sum over its calls if all have it."""
        own, calls = self.usage, self.calls

        def total(name: str) -> Any:
            given = getattr(own, name)
            parts: list[Any] = [getattr(call, name, None) for call in calls]
            if given is not None or not parts or None in parts:
                return given
            return sum(parts)

        return Usage(
            tokens=total("tokens"),
            cost_usd=total("cost_usd"),
            duration_ms=total("duration_ms"),
            model_calls=own.model_calls,
            calls=len(calls) if own.calls is None else own.calls,
        )


@event_body("trace_labelled")
class TraceLabelled(msgspec.Struct, frozen=True):
    """A person says how an attempt ended. The last label counts, whatever the recording says."""

    outcome: Outcome
    reason: str = ""


class KeptTrace(msgspec.Struct, frozen=True, kw_only=True):
    """A trace in the log: its id, when it began, and the ids of its events.

    `happened_ids` are the ids of `trace.events`, one for one. `unknown` counts the lines of its
    transcript that the importer could not read; they are stored verbatim. `label` is what a person
    said last about its outcome; `trace.outcome` is that then.
    """

    id: str
    at: datetime
    trace: Trace
    event_ids: Sequence[str]
    happened_ids: Sequence[str] = ()
    subject: str | None = None
    unknown: int = 0
    label: TraceLabelled | None = None


class _TrajectoryStep(msgspec.Struct, frozen=True):
    thought: str | None = None
    action: str | None = None
    args: Json = {}
    observation: Any = None
    error: Any = None
    effect: Effect | None = None
    destructive: bool | None = None
    open_world: bool | None = None

    @property
    def failure(self) -> Any:
        """Its error, which may stand in the observation; None if it has none."""
        seen = self.observation
        is_told = self.error is None and isinstance(seen, str) and reports_error(seen)
        return seen if is_told else self.error


class _Trajectory(msgspec.Struct, frozen=True):
    task: str
    steps: Sequence[_TrajectoryStep] = ()
    outcome: Outcome = "unknown"
    incomplete: str = ""
    input: Json = {}
    final_output: Any = msgspec.UNSET


_FORM = "a trace has `mission` and `events`; docs/routines.md shows one"


def read_trace(data: bytes, place: str) -> Trace:
    """Read a trace from JSON, in the native format or as a trajectory."""
    try:
        keys = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        if "steps" in keys and "events" not in keys:
            return _from_trajectory(msgspec.json.decode(data, type=_Trajectory))
        if not keys.keys() & {"mission", "events"}:  # em writes one without events so
            raise InputError(
                "expected a trace, found neither `mission` nor `events`", place=place, fix=_FORM
            )
        return msgspec.json.decode(data, type=Trace)
    except RecursionError:
        raise InputError("nested too deep", place=place) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        found = mismatch(error)
        raise InputError(
            f"expected a trace: {found.message}",
            place=found.place(place),
            fix=_FORM,
        ) from None


_REPORT = re.compile(
    r"Error(?:[:!.]|$|\s+(?:executing|calling|invoking|running|while|when|during|in|from|at|code|"
    r"occurred|\d+)\b)|An error occurred while running the tool\b|ERROR:"
    r"|Traceback \(most recent call last\):|(?:\w+\.)*[A-Z]\w*(?:Error|Exception):"
)


def reports_error(text: str) -> bool:
    """Return whether a text reports that a call failed ("Error: …"), not merely begins like it."""
    return _REPORT.match(text) is not None


def _from_trajectory(trajectory: _Trajectory) -> Trace:
    events: list[TraceEvent] = [
        ToolCall(
            tool=step.action,
            args=step.args,
            result=None if step.failure is step.observation else step.observation,
            error=step.failure,
            effect=step.effect,
            destructive=step.destructive,
            open_world=step.open_world,
        )
        for step in trajectory.steps
        if step.action
    ]
    return Trace(
        mission=Mission(goal=trajectory.task, input_summary=trajectory.input),
        events=events,
        final_output=trajectory.final_output,
        outcome=trajectory.outcome,
        incomplete=trajectory.incomplete,
        thoughts=[step.thought for step in trajectory.steps if step.thought] or None,
    )


@event_body("trace_started")
class TraceStarted(msgspec.Struct, frozen=True):
    """An attempt at a task began."""

    goal: str
    app: Json | None = None
    input: Any = None
    tools: Json | None = None
    source: Source = "own"
    parent: str | None = None
    parent_call: str | None = None
    from_events: list[str] = []


@event_summary("trace_started")
def _summarise_start(made: Summary, body: Json, _at: datetime) -> None:
    app = body.get("app")
    made.name, made.status = body["goal"], "unknown"
    made.agent = str(app.get("name", "")) if isinstance(app, dict) else ""
    made.shown = {"input": shown_value(body.get("input"))}
    if len(made.name) > MAX_NAME:
        made.shown["cut"] = True
    if body.get("tags"):
        made.shown["tags"] = body["tags"]
    if body.get("parent"):
        made.parent = trace_stream(body["parent"])


@event_summary("tool_call", "udf_call")
def _summarise_call(made: Summary, body: Json, _at: datetime) -> None:
    made.calls += 1
    if body.get("error") is not None:
        made.failed += 1
        return
    name = shown_text(body.get("tool") or body.get("function"), LONGEST_TOOL)
    tools: list[str] = made.shown.setdefault("tools", [])
    if name not in tools and len(tools) < MOST_TOOLS:
        tools.append(name)


@event_summary("call_ended")
def _summarise_result(made: Summary, body: Json, _at: datetime) -> None:
    made.failed += body.get("error") is not None


@event_summary("trace_ended")
def _summarise_end(made: Summary, body: Json, at: datetime) -> None:
    made.ended = at
    made.status = made.shown.get("label") or body["outcome"]
    usage = body.get("usage")
    tokens = usage.get("tokens") if isinstance(usage, dict) else None
    for name, value in (("incomplete", body.get("incomplete")), ("tokens", tokens)):
        made.shown.pop(name, None)
        if value:
            made.shown[name] = value


@event_summary("trace_labelled")
def _summarise_label(made: Summary, body: Json, _at: datetime) -> None:
    made.status = made.shown["label"] = body["outcome"]


@event_flow("trace_started")
def attempted(events: Sequence[Event]) -> Iterator[Edge]:
    """Yield the edges from the task to all that was done for it."""
    for event in events[1:]:
        yield events[0].id, event.id


@event_body("trace_ended")
class TraceEnded(msgspec.Struct, frozen=True):
    """An attempt ended; `incomplete` says why calls of it may be missing."""

    outcome: Outcome
    output: Any = None
    incomplete: str = ""


@event_body("call_ended")
class CallEnded(msgspec.Struct, frozen=True):
    """The result of a call that was stored without one; `call` is the id of its event."""

    call: str
    result: Any = None
    error: Any = None
    duration_ms: float | None = None
    from_events: list[str] = []


@event_body("unknown_line")
class UnknownLine(msgspec.Struct, frozen=True):
    """A part of a transcript that is neither a message nor a call, verbatim."""

    text: str
    place: str = ""
    why: str = ""


@event_body("transcript_read")
class TranscriptRead(msgspec.Struct, frozen=True):
    """A transcript was read to its end when it had this size and this age."""

    path: str
    format: str
    size: int
    modified: int
    traces: list[Json] = []


_HAPPENED = frozenset({"tool_call", "udf_call", "approval", "message"})
_RESULT = ("result", "error", "duration_ms")
"""The fields that complete a call when its result came later."""


def trace_events(
    trace: Trace,
    trace_id: str,
    *,
    known_ids: bool = False,
    subject: str | None = None,
    sources: Sequence[str] = (),
) -> list[Draft]:
    """Return the events of a trace, in order; `known_ids` derives their ids from the trace's.

    sources: events that the trace contains part of.
    """
    stream = trace_stream(trace_id)
    started: Json = {"goal": trace.mission.goal, "input": trace.mission.input_summary}
    more = {
        "app": trace.app,
        "tools": dict(trace.tools),
        "tags": trace.tags,
        "source": trace.source if trace.source != "own" else None,
        "parent": trace.parent,
        "parent_call": trace.parent_call,
        "from_events": list(sources),
    }
    started |= {name: value for name, value in more.items() if value}
    ended = end_of(
        trace.outcome,
        msgspec.to_builtins(trace.usage),
        output=trace.final_output,
        thoughts=trace.thoughts,
        incomplete=trace.incomplete,
    )
    happened = [msgspec.to_builtins(event) for event in trace.events]
    bodies = [
        ("trace_started", started),
        *((event.pop("type"), event) for event in happened),
        ("trace_ended", ended),
    ]
    return [
        Draft(
            stream=stream,
            kind=kind,
            body=body,
            subject=subject,
            id=f"{trace_id}-{number}" if known_ids else None,
        )
        for number, (kind, body) in enumerate(bodies)
    ]


def end_of(outcome: Outcome, usage: Json, *, output: Any, thoughts: Any, incomplete: str) -> Json:
    """Return the body of a trace's end. output: UNSET if the trace has none."""
    body: Json = {"outcome": outcome, "usage": usage}
    if output is not msgspec.UNSET:
        body["output"] = output
    if thoughts is not None:
        body["thoughts"] = thoughts
    if incomplete:
        body["incomplete"] = incomplete
    return body


def as_kept(trace: Trace, trace_id: str, subject: str | None = None) -> KeptTrace:
    """Return a trace as it will be in the log after `trace_events(…, known_ids=True)`."""
    ids = [f"{trace_id}-{number}" for number in range(len(trace.events) + 2)]
    return KeptTrace(
        id=trace_id,
        at=now(),
        trace=trace,
        event_ids=ids,
        happened_ids=ids[1:-1],
        subject=subject,
    )


def kept_trace(events: Sequence[Event]) -> KeptTrace:
    """Return a trace from the events of its stream, without those that were erased."""
    first = events[0]
    started: Json = first.body or {}
    ended: Json = {}
    label: TraceLabelled | None = None
    happened: dict[str, Json] = {}
    for event in events:
        if event.kind in _HAPPENED and event.body is not None:
            happened[event.id] = {**event.body, "type": event.kind}
        elif event.kind == "call_ended" and event.body is not None:
            result = {name: event.body[name] for name in _RESULT if name in event.body}
            happened.get(event.body["call"], {}).update(result)
        elif event.kind == "trace_ended":
            ended = event.body or {}
        elif event.kind == "trace_labelled" and event.body is not None:
            label = msgspec.convert(event.body, TraceLabelled)
    trace_id = first.stream.removeprefix(TRACE_PREFIX)
    try:
        trace = Trace(
            app=started.get("app", {}),
            mission=Mission(started["goal"], started.get("input") or {}),
            tools=started.get("tools") or {},
            events=msgspec.convert(list(happened.values()), list[TraceEvent]),
            final_output=ended.get("output", msgspec.UNSET),
            outcome=ended.get("outcome", "unknown") if label is None else label.outcome,
            incomplete=ended.get("incomplete", ""),
            thoughts=ended.get("thoughts"),
            tags=started.get("tags", ()),
            usage=msgspec.convert(ended.get("usage", {}), Usage),
            source=started.get("source", "own"),
            parent=started.get("parent"),
            parent_call=started.get("parent_call"),
        )
    except (msgspec.ValidationError, KeyError) as error:
        raise InputError(f"expected a trace: {error}", place=f"trace {trace_id}") from None
    return KeptTrace(
        id=trace_id,
        at=first.at,
        trace=trace,
        # Nothing can be derived from erased events.
        event_ids=[e.id for e in events if e.kind != "erased" and e.body is not None],
        happened_ids=list(happened),
        subject=first.subject,
        unknown=sum(event.kind == "unknown_line" for event in events),
        label=label,
    )


def label_event(kept: KeptTrace, outcome: Outcome, reason: str = "") -> Draft:
    """Return the event with which a person says how an attempt ended."""
    body = {"outcome": outcome, **({"reason": reason} if reason else {})}
    return Draft(
        stream=trace_stream(kept.id),
        kind="trace_labelled",
        body=body,
        subject=kept.subject,
        id=new_id(),
    )
