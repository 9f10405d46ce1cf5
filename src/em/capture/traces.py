"""Traces in the log: one stream each, from `trace_started` to `trace_ended`."""

import hashlib

import msgspec

from em.models.canonical import Json
from em.models.event import Draft
from em.models.trace import Trace

_TYPE = "type"


def content_id(trace: Trace) -> str:
    """An id that the same trace has every time it is read."""
    return hashlib.sha256(msgspec.json.encode(trace)).hexdigest()[:28]


def trace_events(trace: Trace, trace_id: str, *, known_ids: bool = False) -> list[Draft]:
    """The events of a trace, in their order; `known_ids` gives them ids made of the trace's."""
    stream = f"trace/{trace_id}"
    started: Json = {"goal": trace.mission.goal, "input": trace.mission.input_summary}
    if trace.app:
        started["app"] = trace.app
    ended: Json = {"outcome": trace.outcome, "usage": msgspec.to_builtins(trace.usage)}
    if trace.final_output is not msgspec.UNSET:
        ended["output"] = trace.final_output
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
            id=f"{trace_id}-{number}" if known_ids else None,
        )
        for number, (kind, body) in enumerate(bodies)
    ]
