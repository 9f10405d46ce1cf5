"""Traces as people look at them: the newest first, in short."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from heapq import merge
from typing import Any, Literal

import msgspec

from em.errors import InputError, NotFound
from em.log.event import Draft, Event, EventQuery
from em.log.stream import TRACE_PREFIX, trace_stream
from em.store.log import newest_first
from em.store.protocol import Store
from em.traces.trace import KeptTrace, Mission, Outcome, ToolCall, Trace, TraceEvent, UdfCall
from em.values.call import Usage
from em.values.canonical import Json, identical
from em.values.times import now

LOOKED_AT = 2_000
"""Traces that one search passes over; where it ended is told, and the next goes on from there."""


class TraceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A trace in short. `seq` is the number of the event that it began with."""

    id: str
    seq: int
    at: datetime
    goal: str
    outcome: Outcome
    events: int
    subject: str | None = None
    app: str = ""


class TracePage(msgspec.Struct, frozen=True):
    """Some traces, newest first; `older` is where to go on, None where nothing is left."""

    traces: Sequence[TraceSummary]
    older: int | None


def list_traces(
    store: Store,
    *,
    subjects: Iterable[str] | None = None,
    words: str = "",
    outcome: str = "",
    before: int | None = None,
    limit: int = 20,
) -> TracePage:
    """The newest traces whose goal has the words; `subjects` limits it to what is about them."""
    found: list[TraceSummary] = []
    passed_over = 0
    for event in _newest_starts(store, subjects, before):
        if len(found) == limit or passed_over == LOOKED_AT:
            return TracePage(found, event.seq + 1)
        goal = str((event.body or {}).get("goal", ""))
        trace = _summary(store, event) if words.casefold() in goal.casefold() else None
        if trace is not None and outcome in ("", trace.outcome):
            found.append(trace)
        else:
            passed_over += 1
    return TracePage(found, None)


def _newest_starts(
    store: Store, subjects: Iterable[str] | None, before: int | None
) -> Iterator[Event]:
    if subjects is None:
        return newest_first(store, "trace_started", before=before)
    each = (
        newest_first(store, "trace_started", subject=subject, before=before) for subject in subjects
    )
    return merge(*each, key=lambda event: -event.seq)


def _summary(store: Store, started: Event) -> TraceSummary:
    body = started.body or {}
    last = EventQuery(stream=started.stream, kinds=["trace_ended"], limit=1, newest=True)
    ended = next(iter(store.read(last)), None)
    said = {} if ended is None else ended.body or {}
    app = body.get("app") or {}
    return TraceSummary(
        id=started.stream.removeprefix(TRACE_PREFIX),
        seq=started.seq,
        at=started.at,
        goal=str(body.get("goal") or msgspec.json.encode(body.get("input")).decode()),
        outcome=said.get("outcome", "unknown"),
        events=max(0, store.head(started.stream)[0] - 2),
        subject=started.subject,
        app=str(app.get("name", "")) if isinstance(app, dict) else "",
    )


_TYPE = "type"
_HAPPENED = frozenset({"tool_call", "udf_call", "approval", "message"})


def trace_events(
    trace: Trace, trace_id: str, *, known_ids: bool = False, subject: str | None = None
) -> list[Draft]:
    """The events of a trace, in their order; `known_ids` gives them ids made of the trace's."""
    stream = trace_stream(trace_id)
    started: Json = {"goal": trace.mission.goal, "input": trace.mission.input_summary}
    if trace.app:
        started["app"] = trace.app
    if trace.tags:
        started["tags"] = trace.tags
    if trace.parent:
        started["parent"] = trace.parent
    if trace.parent_call:
        started["parent_call"] = trace.parent_call
    ended: Json = {"outcome": trace.outcome, "usage": msgspec.to_builtins(trace.usage)}
    if trace.final_output is not msgspec.UNSET:
        ended["output"] = trace.final_output
    if trace.thoughts is not None:
        ended["thoughts"] = trace.thoughts
    happened = [msgspec.to_builtins(event) for event in trace.events]
    bodies = [
        ("trace_started", started),
        *((event.pop(_TYPE), event) for event in happened),
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


def as_kept(trace: Trace, trace_id: str, subject: str | None = None) -> KeptTrace:
    """A trace as it will be in the log once `trace_events` with known ids are appended."""
    ids = [f"{trace_id}-{number}" for number in range(len(trace.events) + 2)]
    return KeptTrace(
        id=trace_id,
        at=now(),
        trace=trace,
        event_ids=ids,
        happened_ids=ids[1:-1],
        subject=subject,
    )


def find_traces(
    store: Store, *, task: str | None = None, outcome: Outcome | None = None
) -> Iterator[KeptTrace]:
    """The traces in the log, oldest first: those whose goal holds `task`, in any case."""
    wanted = None if task is None else task.casefold()
    for started in store.read(EventQuery(kinds=["trace_started"])):
        goal = str((started.body or {}).get("goal", ""))
        if started.body is None or (wanted is not None and wanted not in goal.casefold()):
            continue
        kept = kept_trace(list(store.read(EventQuery(stream=started.stream))))
        if outcome is None or kept.trace.outcome == outcome:
            yield kept


def children_of(store: Store, trace_id: str) -> list[KeptTrace]:
    """The traces of the agents that a trace's agent started, and of those that they did."""
    found: list[KeptTrace] = []
    above = {trace_id}
    for started in store.read(EventQuery(kinds=["trace_started"])):
        if started.body is not None and started.body.get("parent") in above:
            above.add(started.stream.removeprefix(TRACE_PREFIX))
            found.append(kept_trace(list(store.read(EventQuery(stream=started.stream)))))
    return found


def get_traces(store: Store, trace_ids: Sequence[str]) -> list[KeptTrace]:
    """The traces of these ids, in this order."""
    return [_get(store, trace_id) for trace_id in trace_ids]


def _get(store: Store, trace_id: str) -> KeptTrace:
    events = list(store.read(EventQuery(stream=trace_stream(trace_id))))
    if not events or events[0].kind != "trace_started":
        raise NotFound(
            f"there is no trace {trace_id!r}",
            fix="`em traces list` shows those there are",
        )
    if events[0].body is None:
        raise NotFound("this trace was erased", place=f"trace {trace_id}")
    return kept_trace(events)


def kept_trace(events: Sequence[Event]) -> KeptTrace:
    """A trace from its stream. What was erased of it is not there any more."""
    first = events[0]
    started: Json = first.body or {}
    ended: Json = {}
    happened: dict[str, Json] = {}
    for event in events:
        if event.kind in _HAPPENED and event.body is not None:
            happened[event.id] = {**event.body, _TYPE: event.kind}
        elif event.kind == "call_ended" and event.body is not None:
            happened.get(event.body["call"], {}).update(_became(event.body))
        elif event.kind == "trace_ended":
            ended = event.body or {}
    trace_id = first.stream.removeprefix(TRACE_PREFIX)
    try:
        trace = Trace(
            app=started.get("app", {}),
            mission=Mission(started["goal"], started.get("input") or {}),
            events=msgspec.convert(list(happened.values()), list[TraceEvent]),
            final_output=ended.get("output", msgspec.UNSET),
            outcome=ended.get("outcome", "unknown"),
            thoughts=ended.get("thoughts"),
            tags=started.get("tags", ()),
            usage=msgspec.convert(ended.get("usage", {}), Usage),
            parent=started.get("parent"),
            parent_call=started.get("parent_call"),
        )
    except (msgspec.ValidationError, KeyError) as error:
        raise InputError(f"this is no trace: {error}", place=f"trace {trace_id}") from None
    return KeptTrace(
        id=trace_id,
        at=first.at,
        trace=trace,
        # Nothing can be derived any more from what was erased.
        event_ids=[e.id for e in events if e.kind != "erased" and e.body is not None],
        happened_ids=list(happened),
        subject=first.subject,
        unknown=sum(event.kind == "unknown_line" for event in events),
    )


def _became(body: Json) -> Json:
    """What a call is told of when its result comes later."""
    return {name: body[name] for name in ("result", "error", "duration_ms") if name in body}


def attempts(store: Store) -> dict[str, list[str]]:
    """Every task that was done, with the ids of its traces that did not fail."""
    found: dict[str, list[str]] = {}
    for kept in find_traces(store):
        if kept.trace.outcome != "failure" and kept.trace.mission.goal:
            found.setdefault(kept.trace.mission.goal, []).append(kept.id)
    return found


_KINDS = ("trace_started", "tool_call", "udf_call", "call_ended", "trace_ended")


class TraceRow(msgspec.Struct, kw_only=True):
    """A trace in short."""

    id: str
    at: datetime
    goal: str
    app: str = ""
    outcome: str = "unknown"
    calls: int = 0
    failed: int = 0
    tokens: int | None = None
    parent: str | None = None
    subject: str | None = None


def summaries(
    store: Store, *, task: str | None = None, outcome: str | None = None
) -> list[TraceRow]:
    """Every trace in short, the oldest first, from one pass over the log."""
    found: dict[str, TraceRow] = {}
    for event in store.read(EventQuery(kinds=_KINDS)):
        if event.body is None:
            continue
        if event.kind == "trace_started":
            found[event.stream] = _started(event, event.body)
        elif event.stream in found:
            _note(found[event.stream], event.kind, event.body)
    wanted = None if task is None else task.casefold()
    return [
        one
        for one in found.values()
        if (wanted is None or wanted in one.goal.casefold())
        and (outcome is None or one.outcome == outcome)
    ]


def _started(event: Event, body: Json) -> TraceRow:
    app = body.get("app")
    return TraceRow(
        id=event.stream.removeprefix(TRACE_PREFIX),
        at=event.at,
        goal=str(body.get("goal", "")),
        app=str(app.get("name", "")) if isinstance(app, dict) else "",
        parent=body.get("parent"),
        subject=event.subject,
    )


def _note(summary: TraceRow, kind: str, body: Json) -> None:
    if kind == "trace_ended":
        summary.outcome = str(body.get("outcome", "unknown"))
        usage = body.get("usage")
        tokens = usage.get("tokens") if isinstance(usage, dict) else None
        summary.tokens = tokens if isinstance(tokens, int) else None
    else:
        summary.calls += kind != "call_ended"
        summary.failed += body.get("error") is not None


class DiffStep(msgspec.Struct, frozen=True, kw_only=True):
    """A call in two traces: the same, otherwise (~), or in only one of them."""

    sign: Literal[" ", "~", "-", "+"]
    tool: str
    differs: Sequence[str] = ()
    one: Json = {}
    other: Json = {}


def diff_traces(one: Trace, other: Trace) -> list[DiffStep]:
    """How the calls of two traces differ, in their order."""
    left, right = [_told(call) for call in one.calls], [_told(call) for call in other.calls]
    names = [call["tool"] for call in left], [call["tool"] for call in right]
    steps: list[DiffStep] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(
        a=names[0], b=names[1], autojunk=False
    ).get_opcodes():
        if tag == "equal":
            steps += [_both(a, b) for a, b in zip(left[i1:i2], right[j1:j2], strict=True)]
        else:
            steps += [DiffStep(sign="-", tool=call["tool"], one=call) for call in left[i1:i2]]
            steps += [DiffStep(sign="+", tool=call["tool"], other=call) for call in right[j1:j2]]
    return steps


def _told(call: ToolCall | UdfCall) -> Json:
    name = call.tool if isinstance(call, ToolCall) else call.function
    return {"tool": name, "args": call.args, "result": call.result, "error": call.error}


def _both(one: Json, other: Json) -> DiffStep:
    differs = [name for name in ("args", "result", "error") if not _same(one[name], other[name])]
    return DiffStep(
        sign="~" if differs else " ", tool=one["tool"], differs=differs, one=one, other=other
    )


def _same(one: Any, other: Any) -> bool:
    return identical(one, other)
