"""Traces in short, as far as a caller may see them."""

from collections.abc import Iterator

import msgspec

from em.log.event import EventQuery
from em.serve.api.shapes import TrajectoryOut
from em.serve.auth import Caller
from em.store.protocol import Store
from em.traces.trace import Outcome


def summaries(
    store: Store, caller: Caller, task: str | None = None, outcome: Outcome | None = None
) -> Iterator[TrajectoryOut]:
    """Every trace in short: from its first and its last event, read in one pass."""
    started: dict[str, TrajectoryOut] = {}
    for event in store.read(EventQuery(kinds=["trace_started", "trace_ended"])):
        if event.body is None:
            continue
        if event.kind == "trace_started":
            goal = str(event.body.get("goal", ""))
            if caller.sees(event.subject) and (task is None or goal == task):
                started[event.stream] = TrajectoryOut(
                    id=event.stream.removeprefix("trace/"),
                    task=goal,
                    outcome="unknown",
                    subject=event.subject,
                    created_at=event.at,
                )
        elif event.stream in started:
            ended = event.body.get("outcome", "unknown")
            started[event.stream] = msgspec.structs.replace(started[event.stream], outcome=ended)
    return (one for one in started.values() if outcome is None or one.outcome == outcome)
