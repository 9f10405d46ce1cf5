"""Jaeger: traces as its API and its pages export them."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from em.traces.formats._messages import when
from em.traces.formats._spans import Span, span_from, span_importer
from em.values.canonical import Json

NAME = "jaeger"


def _traces(value: Any) -> list[Json]:
    found = value.get("data") if isinstance(value, dict) else value
    traces = found if isinstance(found, list) else [value]
    return [one for one in traces if isinstance(one, dict) and isinstance(one.get("spans"), list)]


def _is_jaeger(value: Any) -> bool:
    traces = _traces(value)
    return bool(traces) and all(
        "traceID" in trace or any("operationName" in span for span in trace["spans"][:1])
        for trace in traces
    )


def spans_of(value: Any) -> Iterator[Span]:
    """Yield the spans of an export."""
    for trace in _traces(value):
        for span in trace["spans"]:
            yield _span(span)


def _span(span: Json) -> Span:
    tags = _tags(span.get("tags"))
    start = when(span.get("startTime"))
    took = span.get("duration")
    end = None
    if start is not None and isinstance(took, int | float):
        end = start + timedelta(microseconds=took)
    failed = tags.get("error") in (True, "true") or tags.get("otel.status_code") == "ERROR"
    events = [_event(log) for log in span.get("logs") or ()]
    return span_from(
        tags,
        trace=str(span.get("traceID")),
        own=str(span.get("spanID")),
        parent=_parent(span),
        name=str(span.get("operationName", "")),
        start=start,
        end=end,
        error=str(tags.get("otel.status_description") or "failed") if failed else None,
        events=events,
        raw=span,
    )


def _parent(span: Json) -> str:
    for reference in span.get("references") or ():
        if reference.get("refType", "CHILD_OF") == "CHILD_OF":
            return str(reference.get("spanID", ""))
    return str(span.get("parentSpanID") or "")


def _event(log: Json) -> tuple[str, Json]:
    fields = _tags(log.get("fields"))
    return str(fields.pop("event", "")), fields


def _tags(given: Any) -> Json:
    return {str(tag["key"]): tag.get("value") for tag in given or () if "key" in tag}


IMPORTER = span_importer(NAME, "Jaeger exports", _is_jaeger, spans_of)
