"""Record the OpenAI Agents SDK: a tracing processor that stores each of its traces.

Needs `openai-agents`, which is imported only here.
"""

import threading
from typing import Any

import msgspec

from em.errors import MissingExtra
from em.store.protocol import Store
from em.traces.formats._spans import Span, add_spans
from em.traces.formats.openai_agents import NAME, spans_of
from em.traces.intake import Intake

try:
    from agents.tracing import TracingProcessor
except ImportError as error:
    raise MissingExtra("openai-agents", "recording the OpenAI Agents SDK") from error


class EmTracingProcessor(TracingProcessor):
    """Record runs: `agents.add_trace_processor(EmTracingProcessor(memory))`.

    A trace is stored when it ends. `trace_ids` are the traces stored so far, also of sub-agents.
    """

    def __init__(self, memory: Any, *, subject: str | None = None) -> None:
        self._store: Store = memory.store
        self._subject = subject
        self._lock = threading.Lock()
        self._spans: dict[str, list[Span]] = {}
        self.trace_ids: list[str] = []

    def on_trace_start(self, trace: Any) -> None:
        """Begin a trace."""
        with self._lock:
            self._spans[trace.trace_id] = []

    def on_span_start(self, span: Any) -> None:
        """Do nothing: a span is read when it ends."""

    def on_span_end(self, span: Any) -> None:
        """Add a span to its trace."""
        exported = _plain(span.export())
        # The export leaves out the conversation; the span has it.
        data = span.span_data
        if exported is None:
            return
        exported["span_data"] |= {
            name: _plain(getattr(data, name))
            for name in ("input", "output", "response", "usage")
            if getattr(data, name, None) is not None
        }
        with self._lock:
            self._spans.setdefault(span.trace_id, []).extend(spans_of(exported))

    def on_trace_end(self, trace: Any) -> None:
        """Store a trace."""
        with self._lock:
            spans = self._spans.pop(trace.trace_id, [])
        exported = _plain(trace.export())
        if exported is not None:
            spans += spans_of(exported)
        self._store_trace(spans)

    def force_flush(self) -> None:
        """Store what is there of traces that have not ended."""
        with self._lock:
            under_way = [[*spans] for spans in self._spans.values()]
        for spans in under_way:
            self._store_trace(spans)

    def shutdown(self) -> None:
        """Store what is left when the SDK ends."""
        self.force_flush()

    def _store_trace(self, spans: list[Span]) -> None:
        if not spans:
            return
        intake = Intake(self._store, subject=self._subject, source="own")
        add_spans(intake, NAME, spans)
        intake.close()
        self.trace_ids += [one for one in intake.trace_ids if one not in self.trace_ids]


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=_as_json)


def _as_json(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # pydantic's own way
    return dump(mode="json") if callable(dump) else repr(value)
