"""Traces as people look at them: the newest first, in short."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from heapq import merge

import msgspec

from em.log.event import Event, EventQuery
from em.store.protocol import Store
from em.store.tail import newest_first
from em.traces.trace import Outcome

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
        id=started.stream.removeprefix("trace/"),
        seq=started.seq,
        at=started.at,
        goal=str(body.get("goal") or msgspec.json.encode(body.get("input")).decode()),
        outcome=said.get("outcome", "unknown"),
        events=max(0, store.head(started.stream)[0] - 2),
        subject=started.subject,
        app=str(app.get("name", "")) if isinstance(app, dict) else "",
    )
