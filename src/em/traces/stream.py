"""Traces in the log: one stream each, from `trace_started` to `trace_ended`."""

from collections.abc import Iterator, Sequence

import msgspec

from em.errors import InputError, NotFound
from em.log.event import Draft, Event, EventQuery
from em.store.protocol import Store
from em.traces.trace import KeptTrace, Mission, Outcome, Trace, TraceEvent
from em.values.call import Usage
from em.values.canonical import Json
from em.values.times import now

_TYPE = "type"
PREFIX = "trace/"
_HAPPENED = frozenset({"tool_call", "udf_call", "approval", "message"})


def trace_events(
    trace: Trace, trace_id: str, *, known_ids: bool = False, subject: str | None = None
) -> list[Draft]:
    """The events of a trace, in their order; `known_ids` gives them ids made of the trace's."""
    stream = PREFIX + trace_id
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
            above.add(started.stream.removeprefix(PREFIX))
            found.append(kept_trace(list(store.read(EventQuery(stream=started.stream)))))
    return found


def get_traces(store: Store, trace_ids: Sequence[str]) -> list[KeptTrace]:
    """The traces of these ids, in this order."""
    return [_get(store, trace_id) for trace_id in trace_ids]


def _get(store: Store, trace_id: str) -> KeptTrace:
    events = list(store.read(EventQuery(stream=PREFIX + trace_id)))
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
    trace_id = first.stream.removeprefix(PREFIX)
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
