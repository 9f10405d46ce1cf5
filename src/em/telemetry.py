"""Traces and metrics of em itself, by OpenTelemetry.

Off until `start` finds a variable that says where to send them (the extra `otel`), or is given
providers. While it is off, nothing of OpenTelemetry is imported, and a span costs a comparison.
Attributes are names, counts and codes: never a body, a subject, a path, a header or a message.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from em.errors import EmError

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.trace import Span, Tracer, TracerProvider

Value = str | int | float | bool
NAME = "em"
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_UNITS = {"http.server.request.duration": "s"}


class _Running:
    """The providers in use, and the instruments made so far."""

    def __init__(self, traces: "TracerProvider | None", metrics: "MeterProvider | None") -> None:
        self.providers = (traces, metrics)
        self.tracer: Tracer | None = None if traces is None else traces.get_tracer(NAME)
        self.meter: Meter | None = None if metrics is None else metrics.get_meter(NAME)
        self.instruments: dict[str, Any] = {}


_running: _Running | None = None


class Note:
    """A span under way, to which attributes are added; a comparison where nothing is traced."""

    __slots__ = ("_span",)

    def __init__(self, span: "Span | None" = None) -> None:
        self._span = span

    def set(self, name: str, value: Value | None) -> None:
        """Add an attribute, unless it is None."""
        if self._span is not None and value is not None:
            self._span.set_attribute(name, value)

    def rename(self, name: str) -> None:
        """Give the span another name."""
        if self._span is not None:
            self._span.update_name(name)

    def fail(self, code: str) -> None:
        """Mark the span as failed. A code says why: a message may hold what was said."""
        if self._span is not None:
            from opentelemetry.trace import Status, StatusCode

            self._span.set_attribute("error.type", code)
            self._span.set_status(Status(StatusCode.ERROR))


_NOTHING = Note()


def is_on() -> bool:
    """Return whether anything is traced or measured."""
    return _running is not None


@contextmanager
def span(
    name: str,
    attributes: Mapping[str, Value] | None = None,
    *,
    parent: Mapping[str, str] | None = None,
) -> Iterator[Note]:
    """Trace a block. What it raises marks the span with its code, and is raised.

    parent: the headers of a request, whose `traceparent` may name the span that it belongs to.
    """
    if _running is None or _running.tracer is None:
        yield _NOTHING
        return
    from opentelemetry.trace import SpanKind

    context, kind = None, SpanKind.INTERNAL
    if parent is not None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context, kind = TraceContextTextMapPropagator().extract(dict(parent)), SpanKind.SERVER
    with _running.tracer.start_as_current_span(
        name,
        context=context,
        attributes=dict(attributes or {}),
        record_exception=False,
        set_status_on_exception=False,
        kind=kind,
    ) as found:
        note = Note(found)
        try:
            yield note
        except BaseException as error:
            note.fail(error.code if isinstance(error, EmError) else type(error).__name__)
            raise


def count(name: str, more: float = 1, attributes: Mapping[str, Value] | None = None) -> None:
    """Add to a counter."""
    if _running is not None and _running.meter is not None:
        made = _running.instruments.get(name)
        if made is None:
            made = _running.instruments[name] = _running.meter.create_counter(name)
        made.add(more, dict(attributes or {}))


def measure(name: str, value: float, attributes: Mapping[str, Value] | None = None) -> None:
    """Add a value to a histogram."""
    if _running is not None and _running.meter is not None:
        made = _running.instruments.get(name)
        if made is None:
            unit = _UNITS.get(name, "")
            made = _running.instruments[name] = _running.meter.create_histogram(name, unit)
        made.record(value, dict(attributes or {}))


def watch(name: str, label: str, read: Callable[[], Mapping[str, int]]) -> None:
    """Report what `read` returns, by label, whenever metrics are collected."""
    if _running is None or _running.meter is None:
        return
    from opentelemetry.metrics import Observation

    def observe(_options: "CallbackOptions") -> "Iterable[Observation]":
        try:
            found = read()
        except EmError:
            return []  # the store is away: there is nothing to report
        return [Observation(value, {label: key}) for key, value in found.items()]

    _running.instruments[name] = _running.meter.create_observable_gauge(name, [observe])


def start(
    environ: Mapping[str, str] | None = None,
    *,
    traces: "TracerProvider | None" = None,
    metrics: "MeterProvider | None" = None,
) -> bool:
    """Begin to trace and measure, as the OTEL_* variables say; return whether it is on.

    traces, metrics: providers to use instead, as a program has them that em is a part of.
    """
    global _running  # noqa: PLW0603 - there is one of each process, as of its log
    environ = os.environ if environ is None else environ
    if traces is None and metrics is None:
        if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
            return is_on()
        wanted = {kind: _exporter(kind, environ) for kind in ("TRACES", "METRICS")}
        if not any(wanted.values()):
            return is_on()
        try:
            traces, metrics = _providers(wanted["TRACES"], wanted["METRICS"], environ)
        except ImportError:
            return is_on()  # the variables are there for others
    _running = _Running(traces, metrics)
    return True


def _exporter(kind: str, environ: Mapping[str, str]) -> str:
    """Return which exporter the variables name: otlp, console or none of them."""
    named = environ.get(f"OTEL_{kind}_EXPORTER", "").strip().lower()
    address = environ.get(ENDPOINT) or environ.get(f"OTEL_EXPORTER_OTLP_{kind}_ENDPOINT")
    found = named or ("otlp" if address else "")
    return found if found in ("otlp", "console") else ""


def _providers(
    traces: str, metrics: str, environ: Mapping[str, str]
) -> "tuple[TracerProvider | None, MeterProvider | None]":
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        ConsoleMetricExporter,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    named = "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    has_name = named or environ.get("OTEL_SERVICE_NAME")
    resource = Resource.create({} if has_name else {"service.name": NAME})
    tracing, measuring = None, None
    if traces:
        tracing = TracerProvider(resource=resource)
        exporter = OTLPSpanExporter() if traces == "otlp" else ConsoleSpanExporter()
        tracing.add_span_processor(BatchSpanProcessor(exporter))
    if metrics:
        sent = OTLPMetricExporter() if metrics == "otlp" else ConsoleMetricExporter()
        measuring = MeterProvider([PeriodicExportingMetricReader(sent)], resource=resource)
    return tracing, measuring


def stop() -> None:
    """Send what is left, and be off again."""
    global _running
    ended, _running = _running, None
    for provider in ended.providers if ended is not None else ():
        # Only those of the SDK have it; the API's own do nothing.
        getattr(provider, "shutdown", lambda: None)()
