"""Pages of traces: the list, and one trace beside the routine it compiles to."""

from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import Response, get

from em.compiler.compile_trace import compile_trace
from em.compiler.draft import Draft
from em.errors import EmError
from em.runner.package import kept_routines
from em.serve.auth import PAGES
from em.serve.pages.drawing import Span, graph_of, spans
from em.serve.pages.view import page, parameter, whole_number
from em.serve.service import AnyRequest, Service, service_of
from em.traces.catalogue import get_traces, list_traces
from em.traces.trace import Approval, KeptTrace, Message, ToolCall

OUTCOMES = ("success", "failure", "unknown")
MOST_CALLS = 400
"""Calls of the largest trace that is compiled for its page."""
MOST_EVENTS = 500
MOST_SCANNED = 2_000
"""Traces that don't match a search, after which a page ends and links to the next."""


@get(f"{PAGES}/traces", include_in_schema=False, sync_to_thread=True)
def get_traces_page(request: AnyRequest) -> Response[str]:
    """Show the traces that the caller may see, newest first, filtered by words and outcome."""
    service = service_of(request)
    caller = service.caller(request)
    words, outcome = parameter(request, "q"), parameter(request, "outcome")
    outcome = outcome if outcome in OUTCOMES else ""
    before = whole_number(request, "before")
    found = list_traces(
        service.store,
        subjects=caller.subjects,
        task=words,
        outcome=outcome or None,
        before=before,
        limit=25,
        scan=MOST_SCANNED,
        count_calls=True,
    )
    return page(
        request,
        "traces.html",
        traces=found.traces,
        older=found.older,
        q=words,
        outcome=outcome,
        before=before,
        outcomes=OUTCOMES,
    )


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a trace: a message, a call or an approval."""

    kind: str
    name: str
    text: str = ""
    args: Any = None
    result: Any = None
    error: Any = None
    seconds: float | None = None
    span: Span | None = None


@get(f"{PAGES}/trace", include_in_schema=False, sync_to_thread=True)
def get_trace(request: AnyRequest) -> Response[str]:
    """Show one trace: its events, and the routine it compiles to."""
    service = service_of(request)
    caller = service.caller(request)
    trace_id = parameter(request, "id")
    (stored,) = get_traces(service.store, [trace_id])
    caller.must_find(stored.subject, f"trace {trace_id!r}")
    draft, problem = _compiled(stored)
    return page(
        request,
        "trace.html",
        stored=stored,
        trace=stored.trace,
        has_output=stored.trace.final_output is not msgspec.UNSET,
        usage=stored.trace.recorded_usage,
        lines=_lines(stored)[:MOST_EVENTS],
        left_out=max(0, len(stored.trace.events) - MOST_EVENTS),
        draft=draft,
        pairs=[] if draft is None else _pairs(draft),
        graph=None if draft is None else graph_of(draft.routine),
        problem=problem,
        routines=_became(service, stored) if caller.subjects is None else [],
    )


def _lines(stored: KeptTrace) -> list[Line]:
    took = [getattr(event, "duration_ms", None) for event in stored.trace.events]
    starts: list[tuple[float, float]] = []
    at = 0.0
    for one in took:
        starts.append((at, (one or 0.0) / 1e3))
        at += (one or 0.0) / 1e3
    bars: Sequence[Span | None] = spans(starts) if at else [None] * len(took)
    return [
        _line(event, seconds, bar)
        for event, seconds, bar in zip(stored.trace.events, took, bars, strict=True)
    ]


def _line(event: Any, took: float | None, span: Span | None) -> Line:
    if isinstance(event, Message):
        return Line(kind="message", name=event.role, text=event.text)
    if isinstance(event, Approval):
        return Line(kind="approval", name="asked", text=event.prompt, result=event.answer)
    return Line(
        kind="tool" if isinstance(event, ToolCall) else "udf",
        name=event.tool if isinstance(event, ToolCall) else event.function,
        args=event.args,
        result=event.result,
        error=event.error,
        seconds=None if took is None else took / 1e3,
        span=span,
    )


def _compiled(stored: KeptTrace) -> tuple[Draft | None, EmError | None]:
    """Compile a trace, without storing the routine."""
    if not 0 < len(stored.trace.calls) <= MOST_CALLS:
        return None, None
    try:
        return compile_trace(stored.trace), None
    except EmError as error:
        return None, error


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A call, whether it was pruned and why, and the step that it became."""

    number: int
    name: str
    effect: str
    failed: bool
    keep: bool
    reason: str
    step: Any = None
    wires: Sequence[Any] = ()


def _pairs(draft: Draft) -> list[Pair]:
    """Pair calls with their steps; the recording has the calls that were not pruned, in order."""
    steps = {step.id: step for step in draft.routine.steps}
    became = iter(draft.recording)
    pairs = []
    for call, verdict in zip(draft.calls, draft.verdicts, strict=True):
        recorded = next(became, None) if verdict.keep else None
        pairs.append(
            Pair(
                number=call.index + 1,
                name=call.name,
                effect=call.effect,
                failed=call.failed,
                keep=verdict.keep,
                reason=verdict.reason,
                step=None if recorded is None else steps.get(recorded.step),
                wires=[found for found in draft.explained if found.call == call.index],
            )
        )
    return pairs


def _became(service: Service, stored: KeptTrace) -> list[str]:
    """Return the stored routines that were compiled from this trace."""
    ids = set(stored.event_ids)
    return [
        f"{one.name}@{one.version}"
        for one in kept_routines(service.store)
        if one.body is not None and not ids.isdisjoint(one.from_events)
    ]


HANDLERS = [get_traces_page, get_trace]
