"""Capture from the OpenAI Agents SDK: a tracing processor that keeps each of its traces.

Needs `openai-agents`, which is imported only here.
"""

import threading
from typing import Any

import msgspec

from em.errors import MissingExtra
from em.store.protocol import Store
from em.traces.formats._spans import Span, tell_spans
from em.traces.formats.openai_agents import NAME, spans_of
from em.traces.intake import Intake

try:
    from agents.tracing import TracingProcessor
except ImportError as error:
    raise MissingExtra("openai-agents", "capturing the OpenAI Agents SDK") from error


class EmTracingProcessor(TracingProcessor):
    """Give it to the SDK: `agents.add_trace_processor(EmTracingProcessor(memory))`.

    A trace is kept when it ends; `trace_ids` are those kept so far, sub-agents' included.
    """

    def __init__(self, memory: Any, *, subject: str | None = None) -> None:
        self._store: Store = memory.store
        self._subject = subject
        self._lock = threading.Lock()
        self._spans: dict[str, list[Span]] = {}
        self.trace_ids: list[str] = []

    def on_trace_start(self, trace: Any) -> None:
        """A trace begins."""
        with self._lock:
            self._spans[trace.trace_id] = []

    def on_span_start(self, span: Any) -> None:
        """Nothing is known of a span before it ends."""

    def on_span_end(self, span: Any) -> None:
        """A span is over."""
        told = _plain(span.export())
        # The export leaves out what was asked and answered; the span has it.
        data = span.span_data
        if told is None:
            return
        told["span_data"] |= {
            name: _plain(getattr(data, name))
            for name in ("input", "output", "response", "usage")
            if getattr(data, name, None) is not None
        }
        with self._lock:
            self._spans.setdefault(span.trace_id, []).extend(spans_of(told))

    def on_trace_end(self, trace: Any) -> None:
        """A trace is over: it is kept."""
        with self._lock:
            spans = self._spans.pop(trace.trace_id, [])
        told = _plain(trace.export())
        if told is not None:
            spans += spans_of(told)
        self._keep(spans)

    def force_flush(self) -> None:
        """Keep what is there of traces that have not ended."""
        with self._lock:
            under_way = [[*spans] for spans in self._spans.values()]
        for spans in under_way:
            self._keep(spans)

    def shutdown(self) -> None:
        """The SDK ends."""
        self.force_flush()

    def _keep(self, spans: list[Span]) -> None:
        if not spans:
            return
        intake = Intake(self._store, subject=self._subject)
        tell_spans(intake, NAME, spans)
        intake.close()
        self.trace_ids += [one for one in intake.trace_ids if one not in self.trace_ids]


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=_as_json)


def _as_json(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic's own way
    return dump(mode="json") if callable(dump) else repr(value)
