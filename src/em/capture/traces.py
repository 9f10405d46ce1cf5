"""Traces in the log: one stream each, from `trace_started` to `trace_ended`."""

import msgspec

from em.models.canonical import Json
from em.models.event import Draft
from em.models.trace import Trace

_TYPE = "type"


def trace_events(trace: Trace, trace_id: str) -> list[Draft]:
    """The events of a trace, in their order."""
    stream = f"trace/{trace_id}"
    started: Json = {"goal": trace.mission.goal, "input": trace.mission.input_summary}
    if trace.app:
        started["app"] = trace.app
    ended: Json = {"outcome": trace.outcome, "usage": msgspec.to_builtins(trace.usage)}
    if trace.final_output is not msgspec.UNSET:
        ended["output"] = trace.final_output
    happened = [msgspec.to_builtins(event) for event in trace.events]
    return [
        Draft(stream=stream, kind="trace_started", body=started),
        *(Draft(stream=stream, kind=event.pop(_TYPE), body=event) for event in happened),
        Draft(stream=stream, kind="trace_ended", body=ended),
    ]
