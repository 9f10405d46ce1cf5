"""Catalogue of stored traces: list them, read them by id, compare two."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any, Literal, TypedDict, Unpack, overload

import msgspec

from em.errors import InputError, NotFound
from em.log.event import TRACE_PREFIX, Event, EventQuery, trace_stream
from em.log.summary import Cursor, Summary, SummaryQuery
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

    `incomplete` says why calls may be missing from the trace, so that it can't be compiled.
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
    calls: int = 0
    failed: int = 0
    tokens: int | None = None
    parent: str | None = None
    subject: str | None = None

    @property
    def title(self) -> str:
        """The goal; else the input in words; else the id."""
        given = self.input if isinstance(self.input, dict) else {"input": self.input}
        said = ", ".join(
            f"{name}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
            for name, value in given.items()
            if value is not None
        )
        return self.goal.strip() or said.strip() or f"trace {self.id}"


class TracePage(msgspec.Struct, frozen=True):
    """Some traces. `older`: the `before` of the next page, None on the last.

    first: the place of the first trace, None if there are none.
    """

    traces: Sequence[TraceSummary]
    older: Cursor | None
    first: Cursor | None = None


class TraceFilter(TypedDict, total=False):
    """Which traces to list.

    task: text that the goal contains, in upper or lower case.
    outcome: only traces that ended so; a trace without an end or a label is `unknown`.
    tags: only traces that have all of these.
    subjects: only traces about one of these; None for all traces.
    agent: only traces of the app with this name.
    since, until: when they began.
    """

    task: str | None
    outcome: str | None
    tags: Iterable[str]
    subjects: Iterable[str] | None
    agent: str | None
    since: datetime | None
    until: datetime | None


def list_traces(
    store: Store,
    *,
    before: Cursor | None = None,
    limit: int | None = None,
    scan: int | None = None,
    oldest: bool = False,
    **chosen: Unpack[TraceFilter],
) -> TracePage:
    """List traces by when they began, the newest first: the one way to list them.

    before: go on behind this place, which an earlier page returned.
    limit: how many to return; None for all.
    scan: stop after so many traces that don't match, so that a search has a bounded cost.
    oldest: the oldest first instead.
    """
    found: list[TraceSummary] = []
    skipped = 0
    first, last = None, before
    for row in store.summaries.read(_query(chosen, before, oldest=oldest)):
        if len(found) == limit or skipped == scan:
            return TracePage(found, last, first)
        last = row.cursor
        if _is_chosen(store, row, chosen):
            first = first or last
            found.append(_summary(store, row))
        else:
            skipped += 1
    return TracePage(found, None, first)


def summaries_of(store: Store, trace_ids: Sequence[str]) -> list[TraceSummary]:
    """Return the traces of these ids in short; those that there are."""
    rows = store.summaries.of([trace_stream(trace_id) for trace_id in trace_ids])
    return [_summary(store, row) for row in rows.values() if row.noun == "trace"]


def count_traces(store: Store, **chosen: Unpack[TraceFilter]) -> int:
    """Count the traces that `list_traces` finds, up to as many as it looks at."""
    if not chosen.get("task") and not chosen.get("tags"):
        return store.summaries.count(_query(chosen))
    return len(list_traces(store, limit=COUNTED, scan=MOST_SCANNED, **chosen).traces)


COUNTED = 1_000
"""Traces that a search counts."""
MOST_SCANNED = 2_000
"""Traces that don't match, after which a search ends and says where to go on."""


def _query(
    chosen: TraceFilter, before: Cursor | None = None, *, oldest: bool = False
) -> SummaryQuery:
    subjects = chosen.get("subjects")
    return SummaryQuery(
        noun="trace",
        subjects=None if subjects is None else list(subjects),
        status=chosen.get("outcome"),
        agent=chosen.get("agent"),
        since=chosen.get("since"),
        until=chosen.get("until"),
        beyond=before,
        oldest=oldest,
    )


def _is_chosen(store: Store, row: Summary, chosen: TraceFilter) -> bool:
    """Return whether a trace has the task and the tags, which the table can't look up."""
    task, tags = (chosen.get("task") or "").casefold(), chosen.get("tags") or ()
    return {*tags}.issubset(row.shown.get("tags") or ()) and (
        not task or task in _goal(store, row).casefold()
    )


def _goal(store: Store, row: Summary) -> str:
    """Return the whole goal of a trace. A summary has its first characters."""
    return str(_started(store, row).get("goal", "")) if row.shown.get("cut") else row.name


def _started(store: Store, row: Summary) -> Json:
    first = EventQuery(stream=trace_stream(row.id), limit=1)
    return next((event.body or {} for event in store.read(first)), {})


def _summary(store: Store, row: Summary) -> TraceSummary:
    shown = row.shown
    given: Json = shown.get("input") or {}
    started: Json = {"goal": row.name, "input": given.get("value")}
    if shown.get("cut") or given.get("cut"):
        started = _started(store, row)
    return TraceSummary(
        id=row.id,
        seq=row.seq,
        at=row.at,
        goal=str(started.get("goal", "")),
        outcome=row.status,  # type: ignore[arg-type]  # a trace's status is its outcome
        incomplete=shown.get("incomplete", ""),
        input=started.get("input"),
        app=row.agent,
        tags=shown.get("tags") or (),
        calls=row.calls,
        failed=row.failed,
        tokens=shown.get("tokens"),
        parent=None if row.parent is None else row.parent.removeprefix(TRACE_PREFIX),
        subject=row.subject,
    )


class Traces(Sequence[KeptTrace]):
    """Traces that are read one at a time when they are taken, so that a large list takes no memory.

    It compares equal to a list of the same traces.
    """

    def __init__(self, store: Store, ids: Sequence[str]) -> None:
        self._store = store
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> KeptTrace: ...
    @overload
    def __getitem__(self, at: slice) -> "Traces": ...
    def __getitem__(self, at: int | slice) -> "KeptTrace | Traces":
        if isinstance(at, slice):
            return Traces(self._store, self.ids[at])
        return _get(self._store, self.ids[at])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        return f"<{len(self)} traces>"


def find_traces(store: Store, **chosen: Unpack[TraceFilter]) -> Traces:
    """Return the traces that `list_traces` finds, oldest first."""
    return Traces(store, trace_ids(store, **chosen))


def trace_ids(store: Store, **chosen: Unpack[TraceFilter]) -> list[str]:
    """Return the ids of the traces that `list_traces` finds, oldest first."""
    return [row.id for row in trace_rows(store, oldest=True, **chosen)]


def trace_rows(
    store: Store, *, oldest: bool = False, **chosen: Unpack[TraceFilter]
) -> Iterator[Summary]:
    """Yield the summaries of the traces that `list_traces` finds, one at a time."""
    for row in store.summaries.read(_query(chosen, oldest=oldest)):
        if _is_chosen(store, row, chosen):
            yield row


def children_of(store: Store, trace_id: str) -> list[KeptTrace]:
    """Read the traces of a trace's sub-agents, and of their sub-agents."""
    found: dict[str, Summary] = {}
    above = [trace_stream(trace_id)]
    while above:
        query = SummaryQuery(noun="trace", parent=above.pop())
        new = [row for row in store.summaries.read(query) if row.stream not in found]
        found |= {row.stream: row for row in new}
        above += [row.stream for row in new]
    return [_get(store, row.id) for row in sorted(found.values(), key=lambda row: row.cursor)]


def get_traces(
    store: Store, trace_ids: Sequence[str], *, subjects: Collection[str] | None = None
) -> list[KeptTrace]:
    """Read the traces of these ids, in this order. The first characters of an id are enough.

    subjects: look only among traces about one of these, as if there were no others.
    """
    return [_get(store, trace_id, subjects) for trace_id in trace_ids]


SHORTEST = 4
"""First characters of an id that are enough to find a trace."""


def _get(store: Store, trace_id: str, subjects: Collection[str] | None = None) -> KeptTrace:
    events = _events(store, trace_id, subjects)
    if not events and len(trace_id) >= SHORTEST:
        events = _events(store, _whole_id(store, trace_id, subjects), subjects)
    if not events:
        raise NotFound(f"there is no trace {trace_id!r}", fix="`em traces list` lists the traces")
    if events[0].body is None:
        raise NotFound("the trace was erased", place=f"trace {trace_id}")
    return kept_trace(events)


def _events(store: Store, trace_id: str, subjects: Collection[str] | None) -> list[Event]:
    """Return the events of a trace; none if it is not there, or not about one of the subjects."""
    events = list(store.read(EventQuery(stream=trace_stream(trace_id))))
    if not events or events[0].kind != "trace_started":
        return []
    return events if subjects is None or events[0].subject in subjects else []


def _whole_id(store: Store, start: str, subjects: Collection[str] | None) -> str:
    """Return the one id that begins so; the text itself if none does."""
    streams = list(store.streams(trace_stream(start)))
    if subjects is not None:
        rows = store.summaries.of(streams)
        streams = [one for one in streams if one in rows and rows[one].subject in subjects]
    found = [one.removeprefix(TRACE_PREFIX) for one in streams]
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
    for row in store.summaries.read(SummaryQuery(noun="trace", oldest=True)):
        if row.status in usable and row.name and not row.shown.get("incomplete"):
            found.setdefault(_goal(store, row), []).append(row.id)
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
    parts = ("args", "result", "error")
    differs = [name for name in parts if not identical(one[name], other[name])]
    return DiffStep(
        sign="~" if differs else " ", tool=one["tool"], differs=differs, one=one, other=other
    )
