"""OpenTelemetry: spans as OTLP JSON, as Tempo exports them, and as its SDK writes them."""

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from em.traces.formats._messages import first_of, when
from em.traces.formats._spans import Span, span_from, span_importer
from em.values.canonical import Json

NAME = "otel"
_RESOURCES = ("resourceSpans", "resource_spans", "batches")
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_FAILED = (2, "2", "STATUS_CODE_ERROR", "ERROR")


def _resources(value: Any) -> list[Json]:
    if not isinstance(value, dict):
        return []
    inner = value.get("trace")
    value = inner if isinstance(inner, dict) else value
    for name in _RESOURCES:
        if isinstance(value.get(name), list):
            return [one for one in value[name] if isinstance(one, dict)]
    return []


def _is_sdk_span(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("context"), dict)
        and "span_id" in value["context"]
        and "start_time" in value
    )


def _is_otel(value: Any) -> bool:
    return bool(_resources(value)) or _is_sdk_span(value)


def spans_of(value: Any) -> Iterator[Span]:
    """Yield the spans of an export, of a line of one, or one span of the SDK."""
    if _is_sdk_span(value):
        yield _span(value)
        return
    for resource in _resources(value):
        for name in _SCOPES:
            for scope in resource.get(name) or ():
                for span in scope.get("spans") or ():
                    yield _span(span)


def _span(span: Json) -> Span:
    """Read a span of OTLP, or one of the SDK, whose ids are in its `context`."""
    ids = span["context"] if _is_sdk_span(span) else span
    given = span.get("status")
    status: Json = given if isinstance(given, dict) else {}
    events = [
        (str(event.get("name")), _attributes(event.get("attributes")))
        for event in span.get("events") or ()
    ]
    failed = first_of(status, ("code", "status_code")) in _FAILED
    message = str(first_of(status, ("message", "description")) or "")
    return span_from(
        _attributes(span.get("attributes")),
        trace=_id(first_of(ids, ("traceId", "trace_id"))),
        own=_id(first_of(ids, ("spanId", "span_id"))),
        parent=_id(first_of(span, ("parentSpanId", "parent_span_id", "parent_id"))),
        name=str(span.get("name", "")),
        start=when(first_of(span, ("startTimeUnixNano", "start_time_unix_nano", "start_time"))),
        end=when(first_of(span, ("endTimeUnixNano", "end_time_unix_nano", "end_time"))),
        error=_error(message, events) if failed else None,
        events=events,
        raw=span,
    )


def _error(message: str, events: list[tuple[str, Json]]) -> str:
    for name, attributes in events:
        if name == "exception" and not message:
            kind, text = attributes.get("exception.type"), attributes.get("exception.message")
            message = ": ".join(str(part) for part in (kind, text) if part)
    return message or "failed"


def _id(given: Any) -> str:
    """Return an id in hexadecimal; Tempo and protobuf write base64."""
    text = str(given or "").removeprefix("0x").lower() if given else ""
    original = str(given or "")
    if text and (len(text) not in (16, 32) or any(char not in "0123456789abcdef" for char in text)):
        try:
            return b64decode(original, validate=True).hex()
        except ValueError:
            return original
    return text


def _attributes(given: Any) -> Json:
    if isinstance(given, dict):
        return given
    pairs = [pair for pair in given or () if isinstance(pair, dict) and "key" in pair]
    return {str(pair["key"]): _value(pair.get("value")) for pair in pairs}


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for name, inner in value.items():
        plain = name.replace("_", "").lower()
        if plain == "arrayvalue":
            return [_value(one) for one in (inner or {}).get("values") or ()]
        if plain == "kvlistvalue":
            return _attributes((inner or {}).get("values"))
        if plain == "intvalue":
            return int(inner)
        if plain.endswith("value"):
            return inner
    return None


IMPORTER = span_importer(NAME, "OpenTelemetry spans: OTLP JSON, Tempo, SDK", _is_otel, spans_of)
