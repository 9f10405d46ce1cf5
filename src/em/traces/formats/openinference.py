"""OpenInference: spans with their children inside, or one per line, with flat attributes."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from em.traces.formats._messages import first_of, when
from em.traces.formats._spans import Span, span_from, span_importer
from em.values.canonical import Json

NAME = "openinference"
_NAMES = ("span_name", "name")
_CHILDREN = ("child_spans", "children")
_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?")


def _roots(value: Any) -> list[Json]:
    found = value.get("spans") if isinstance(value, dict) else value
    spans = found if isinstance(found, list) else [value]
    return [span for span in spans if isinstance(span, dict)]


def _is_span(span: Json) -> bool:
    has_attributes = isinstance(span.get("span_attributes"), dict) or (
        isinstance(span.get("attributes"), dict) and "span_kind" in span
    )
    return has_attributes and any(name in span for name in _NAMES) and bool(_ids(span)[1])


def _is_openinference(value: Any) -> bool:
    roots = _roots(value)
    return bool(roots) and all(map(_is_span, roots))


def _ids(span: Json) -> tuple[str, str, str]:
    context = span.get("context")
    named: Json = {**span, **(context if isinstance(context, dict) else {})}
    parent = first_of(span, ("parent_span_id", "parent_id"))
    return str(named.get("trace_id") or ""), str(named.get("span_id") or ""), str(parent or "")


def spans_of(value: Any) -> Iterator[Span]:
    """Yield the spans of a tree, parents first."""
    todo = [(span, "") for span in reversed(_roots(value))]
    while todo:
        span, above = todo.pop()
        if _is_span(span):
            found = _span(span, above)
            yield found
            children = span.get("child_spans") or span.get("children") or ()
            todo += [(child, found.id) for child in reversed(children) if isinstance(child, dict)]


def _span(span: Json, above: str) -> Span:
    trace, own, parent = _ids(span)
    start = when(first_of(span, ("timestamp", "start_time")))
    end = when(span.get("end_time"))
    if end is None and start is not None:
        end = start + _duration(span.get("duration"))
    failed = str(span.get("status_code", "")).upper() == "ERROR"
    events = [
        (str(first_of(event, ("name", "Name")) or ""), dict(event.get("attributes") or {}))
        for event in span.get("events") or ()
        if isinstance(event, dict)
    ]
    return span_from(
        span.get("span_attributes") or span.get("attributes") or {},
        trace=trace,
        own=own,
        parent=parent or above,
        name=str(first_of(span, _NAMES)),
        start=start,
        end=end,
        error=str(span.get("status_message") or "failed") if failed else None,
        events=events,
        raw={name: value for name, value in span.items() if name not in _CHILDREN},
    )


def _duration(given: Any) -> timedelta:
    match = _DURATION.fullmatch(str(given))
    if match is None:
        return timedelta(0)
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


IMPORTER = span_importer(NAME, "OpenInference spans", _is_openinference, spans_of)
