"""Catalogue of stored traces: list them, read them by id, compare two."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from heapq import merge, nlargest
from typing import Any, Literal

import msgspec

from em.errors import InputError, NotFound
from em.log.event import TRACE_PREFIX, Event, EventQuery, trace_stream
from em.store.log import newest_first
from em.store.protocol import Store
from em.traces.trace import (
    KeptTrace,
    Outcome,
    ToolCall,
    Trace,
    UdfCall,
    kept_trace,
)
from em.values.canonical import Json, identical


class TraceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A trace in short. `seq` is the number of its first event.

    `calls` and `failed` are None where `list_traces` was not asked to count them. `incomplete`
    says why calls may be missing from the trace, so that it can't be compiled.
    """

    id: str
    seq: int
    at: datetime
    goal: str
    outcome: Outcome = "unknown"
    incomplete: str = ""
    input: Any = None
    app: str = ""
    tags: Sequence[str] = ()
    calls: int | None = None
    failed: int | None = None
    tokens: int | None = None
    parent: str | None = None
    subject: str | None = None

    @property
    def title(self) -> str:
        """The goal; the input as JSON where no goal was recorded."""
        return self.goal or msgspec.json.encode(self.input).decode()


class TracePage(msgspec.Struct, frozen=True):
    """Some traces, newest first. `older`: the `before` of the next page, None on the last."""

    traces: Sequence[TraceSummary]
    older: int | None


def list_traces(
    store: Store,
    *,
    task: str | None = None,
    outcome: str | None = None,
    tags: Iterable[str] = (),
    subjects: Iterable[str] | None = None,
    before: int | None = None,
    limit: int | None = None,
    scan: int | None = None,
    count_calls: bool = False,
) -> TracePage:
    """List traces, newest first: the one way to list them.

    task: text that the goal contains, in upper or lower case.
    outcome: only traces that ended so; a trace without an end or a label is `unknown`.
    tags: only traces that have all of these.
    subjects: only traces about one of these; None for all traces.
    before: only traces that began before the event of this number.
    limit: how many to return; None for all.
    scan: stop after so many traces that don't match, so that a search has a bounded cost.
    count_calls: also count the calls of each trace that is returned, which reads them.
    """
    wanted = set(tags)
    found: list[TraceSummary] = []
    skipped = 0
    for one in _newest(store, subjects, before):
        if len(found) == limit or skipped == scan:
            return TracePage(found, one.seq + 1)
        if _matches(one, task, outcome) and wanted.issubset(one.tags):
            found.append(_with_calls(store, one) if count_calls else one)
        else:
            skipped += 1
    return TracePage(found, None)


def _matches(one: TraceSummary, task: str | None, outcome: str | None) -> bool:
    return (task or "").casefold() in one.goal.casefold() and outcome in (None, one.outcome)


def latest_traces(
    store: Store, *, task: str | None = None, outcome: str | None = None, limit: int
) -> list[TraceSummary]:
    """Return the traces that began last, the latest first, however late they were imported.

    task, outcome: as for `list_traces`. Every trace is looked at, and `limit` are held.
    """
    matching = (one for one in _newest(store, None, None) if _matches(one, task, outcome))
    latest = nlargest(limit, matching, key=lambda one: (one.at, one.seq))
    return [_with_calls(store, one) for one in latest]


def _newest(
    store: Store, subjects: Iterable[str] | None, before: int | None
) -> Iterator[TraceSummary]:
    """Summarise every trace, newest first, in one pass back over their first and last events."""
    kinds = ("trace_started", "trace_ended", "trace_labelled")
    each = [
        newest_first(store, *kinds, subject=subject, before=before)
        for subject in ([None] if subjects is None else subjects)
    ]
    ends: dict[str, Json] = {}
    labels = {} if before is None else _labels_since(store, before)
    for event in merge(*each, key=lambda event: -event.seq):
        if event.kind == "trace_ended":
            # Going back, the first end of a stream is its last: it counts.
            ends.setdefault(event.stream, event.body or {})
            continue
        if event.kind == "trace_labelled":
            if event.body is not None:
                labels.setdefault(event.stream, event.body["outcome"])
            continue
        end = ends.pop(event.stream, None)
        if end is None and before is not None:
            end = _end_of(store, event.stream)  # it may have ended after `before`
        yield _summary(event, event.body or {}, end or {}, labels.pop(event.stream, None))


def _end_of(store: Store, stream: str) -> Json | None:
    query = EventQuery(stream=stream, kinds=["trace_ended"], limit=1, newest=True)
    return next((event.body for event in store.read(query)), None)


def _labels_since(store: Store, seq: int) -> dict[str, Outcome]:
    """Return the last labels that were given from this event on, by stream."""
    query = EventQuery(kinds=["trace_labelled"], after=seq - 1)
    return {event.stream: event.body["outcome"] for event in store.read(query) if event.body}


def _summary(started: Event, body: Json, end: Json, label: Outcome | None) -> TraceSummary:
    app, usage = body.get("app"), end.get("usage")
    tokens = usage.get("tokens") if isinstance(usage, dict) else None
    return TraceSummary(
        id=started.stream.removeprefix(TRACE_PREFIX),
        seq=started.seq,
        at=started.at,
        goal=str(body.get("goal", "")),
        outcome=label or end.get("outcome", "unknown"),
        incomplete=end.get("incomplete", ""),
        input=body.get("input"),
        app=str(app.get("name", "")) if isinstance(app, dict) else "",
        tags=body.get("tags") or (),
        tokens=tokens if isinstance(tokens, int) else None,
        parent=body.get("parent"),
        subject=started.subject,
    )


def _with_calls(store: Store, one: TraceSummary) -> TraceSummary:
    kinds = ("tool_call", "udf_call", "call_ended")
    calls = failed = 0
    for event in store.read(EventQuery(stream=trace_stream(one.id), kinds=kinds)):
        if event.body is not None:
            calls += event.kind != "call_ended"
            failed += event.body.get("error") is not None
    return msgspec.structs.replace(one, calls=calls, failed=failed)


def find_traces(
    store: Store, *, task: str | None = None, outcome: Outcome | None = None
) -> Iterator[KeptTrace]:
    """Read the traces that `list_traces` finds, oldest first, one at a time."""
    for one in reversed(list_traces(store, task=task, outcome=outcome).traces):
        yield _get(store, one.id)


def children_of(store: Store, trace_id: str) -> list[KeptTrace]:
    """Read the traces of a trace's sub-agents, and of their sub-agents."""
    found: list[KeptTrace] = []
    above = {trace_id}
    for one in reversed(list_traces(store).traces):
        if one.parent in above:
            above.add(one.id)
            found.append(_get(store, one.id))
    return found


def get_traces(store: Store, trace_ids: Sequence[str]) -> list[KeptTrace]:
    """Read the traces of these ids, in this order. The first characters of an id are enough."""
    return [_get(store, trace_id) for trace_id in trace_ids]


SHORTEST = 4
"""First characters of an id that are enough to find a trace."""
POOLED = 100
"""Traces of other tasks that a routine may learn from what their reads give: the newest."""


def pooled_traces(store: Store, but: Iterable[str]) -> list[KeptTrace]:
    """Read the newest traces but some, those that succeeded; as many events for any log."""
    left_out = {*but}
    found = list_traces(store, outcome="success", limit=POOLED + len(left_out)).traces
    ids = [one.id for one in found if one.id not in left_out and not one.incomplete]
    return get_traces(store, ids[:POOLED])


def _get(store: Store, trace_id: str) -> KeptTrace:
    events = _events(store, trace_id)
    if not events and len(trace_id) >= SHORTEST:
        events = _events(store, _whole_id(store, trace_id))
    if not events:
        raise NotFound(f"there is no trace {trace_id!r}", fix="`em traces list` lists the traces")
    if events[0].body is None:
        raise NotFound("the trace was erased", place=f"trace {trace_id}")
    return kept_trace(events)


def _events(store: Store, trace_id: str) -> list[Event]:
    """Return the events of a trace; none if it is not there."""
    events = list(store.read(EventQuery(stream=trace_stream(trace_id))))
    return events if events and events[0].kind == "trace_started" else []


def _whole_id(store: Store, start: str) -> str:
    """Return the one id that begins so; the text itself if none does."""
    found = [one.removeprefix(TRACE_PREFIX) for one in store.streams(trace_stream(start))]
    if len(found) > 1:
        raise InputError(
            f"{start!r} is ambiguous: {len(found)} traces begin with it",
            place="trace",
            fix="one of: " + ", ".join(found[:5]),
        )
    return found[0] if found else start


def attempts(store: Store, *, allow_unlabelled: bool = False) -> dict[str, list[str]]:
    """Map each task to the ids of its traces that succeeded, oldest first.

    With `allow_unlabelled` also of those that don't say how they ended. Incomplete traces are
    left out: they can't be compiled.
    """
    usable = {"success", "unknown"} if allow_unlabelled else {"success"}
    found: dict[str, list[str]] = {}
    for one in reversed(list_traces(store).traces):
        if one.outcome in usable and one.goal and not one.incomplete:
            found.setdefault(one.goal, []).append(one.id)
    return found


class DiffStep(msgspec.Struct, frozen=True, kw_only=True):
    """A call in two traces: equal (" "), different (~), or in only one of them (- or +)."""

    sign: Literal[" ", "~", "-", "+"]
    tool: str
    differs: Sequence[str] = ()
    one: Json = {}
    other: Json = {}


def diff_traces(one: Trace, other: Trace) -> list[DiffStep]:
    """Compare the calls of two traces, in order."""
    left, right = [_shown(call) for call in one.calls], [_shown(call) for call in other.calls]
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


def _shown(call: ToolCall | UdfCall) -> Json:
    name = call.tool if isinstance(call, ToolCall) else call.function
    return {"tool": name, "args": call.args, "result": call.result, "error": call.error}


def _both(one: Json, other: Json) -> DiffStep:
    differs = [name for name in ("args", "result", "error") if not _same(one[name], other[name])]
    return DiffStep(
        sign="~" if differs else " ", tool=one["tool"], differs=differs, one=one, other=other
    )


def _same(one: Any, other: Any) -> bool:
    return identical(one, other)
