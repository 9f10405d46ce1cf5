"""Retention: forget recordings that are older than a person wants to keep them.

A recording is a trace with everything that was derived from it: its passages, its lessons unless
other sessions teach them too, proposals, and routines out of use. What a routine in use was learnt
from stays, since the routine would go with it; `em forget` can still erase that.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from em.compiler.proposals import learnt_from
from em.log.event import TRANSCRIPT_PREFIX, EventQuery, trace_stream
from em.memory import Memory
from em.store.protocol import Store
from em.traces.catalogue import trace_ids

BATCH = 20_000
"""Events that are erased at a time."""


class ForgottenRecordings(msgspec.Struct, frozen=True, kw_only=True):
    """What was forgotten, or would be. kept: traces that are old and that routines need."""

    traces: Sequence[str] = ()
    events: int = 0
    kept: Sequence[str] = ()
    is_dry_run: bool = False
    scrubbed: bool = True


def forget_recordings(
    memory: Memory, older_than: timedelta, *, dry_run: bool = False, now: datetime | None = None
) -> ForgottenRecordings:
    """Erase the traces to which nothing was added for so long, and what was derived from them."""
    store, until = memory.store, (now or datetime.now(UTC)) - older_than
    needed = learnt_from(store)
    traces: list[str] = []
    kept: list[str] = []
    events = [*_lines_without_a_trace(store, until)]
    for trace_id in _old(store, until):
        found = store.read(EventQuery(stream=trace_stream(trace_id)))
        ids = [one.id for one in found if one.body is not None and one.kind != "erased"]
        if needed.isdisjoint(ids):
            traces += [trace_id] if ids else []
            events += ids
        else:
            kept.append(trace_id)
    scrubbed = True
    for start in range(0, 0 if dry_run else len(events), BATCH):
        reason = f"recordings are kept for {older_than / timedelta(days=1):g} days"
        scrubbed = memory.forget(events[start : start + BATCH], reason=reason).scrubbed
    return ForgottenRecordings(
        traces=traces, events=len(events), kept=kept, is_dry_run=dry_run, scrubbed=scrubbed
    )


def _old(store: Store, until: datetime) -> Iterator[str]:
    """Yield the traces whose newest event was recorded before a moment."""
    for trace_id in trace_ids(store):
        query = EventQuery(stream=trace_stream(trace_id), newest=True, limit=1)
        if all(event.recorded_at < until for event in store.read(query)):
            yield trace_id


def _lines_without_a_trace(store: Store, until: datetime) -> Iterator[str]:
    """Yield the lines of transcripts that were stored verbatim, since no trace could have them."""
    for event in store.read(EventQuery(kinds=["unknown_line"])):
        is_old = event.recorded_at < until and event.stream.startswith(TRANSCRIPT_PREFIX)
        if is_old and event.body is not None:
            yield event.id
