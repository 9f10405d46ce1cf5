"""Record LangChain and LangGraph: a callback handler that stores each run as a trace.

Needs `langchain-core`, which is imported only here.
"""

import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from em.errors import MissingExtra
from em.store.protocol import Store
from em.traces.formats._messages import as_args, as_value, read_messages, text_of
from em.traces.formats._spans import Span, add_spans, prompt_text
from em.traces.intake import Intake
from em.traces.model_request import Said
from em.values.canonical import Json
from em.values.times import now

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import message_to_dict
except ImportError as error:
    raise MissingExtra("langchain", "recording LangChain") from error

NAME = "langchain"


class EmCallbackHandler(BaseCallbackHandler):
    """Record runs: `agent.invoke(…, config={"callbacks": [EmCallbackHandler(memory)]})`.

    Each outermost run becomes one trace, stored when it ends. The handler may be shared between
    threads, and given to async runs. `trace_ids` are the traces stored so far.
    """

    def __init__(self, memory: Any, *, subject: str | None = None) -> None:
        self._store: Store = memory.store
        self._subject = subject
        self._lock = threading.Lock()
        self._spans: dict[UUID, Span] = {}
        self._roots: dict[UUID, UUID] = {}
        self.trace_ids: list[str] = []

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None,
        **more: Any,
    ) -> None:  # fmt: skip
        """Begin the span of a chain or a graph; the outermost is the agent."""
        span = self._begin(run_id, parent_run_id, str(more.get("name") or _name(serialized)))
        if parent_run_id is None:
            span.kind, span.goal = "agent", prompt_text(_plain(inputs))

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **_more: Any) -> None:
        """End the span of a chain."""
        self._end(run_id, output=_final(outputs))

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_more: Any) -> None:
        """End the span of a chain, a tool call or a model that raised."""
        self._end(run_id, error=f"{type(error).__name__}: {error}")

    on_tool_error = on_llm_error = on_chain_error

    def on_tool_start(
        self, serialized: Any, input_str: str, *, run_id: UUID, parent_run_id: UUID | None = None,
        inputs: Any = None, **more: Any,
    ) -> None:  # fmt: skip
        """Begin the span of a tool call."""
        span = self._begin(run_id, parent_run_id, _name(serialized) or str(more.get("name") or ""))
        span.kind = "tool"
        span.args = as_args(_plain(inputs) if inputs is not None else input_str)
        span.call_id = str(more.get("tool_call_id") or "")

    def on_tool_end(self, output: Any, *, run_id: UUID, **_more: Any) -> None:
        """End the span of a tool call with its result."""
        message = _plain(output)
        if isinstance(message, dict) and "tool_call_id" in message:
            failed = message.get("status") == "error"
            text = text_of(message.get("content"))
            value = as_value(message.get("content"))
            self._end(run_id, error=text if failed else None, result=value)
        else:
            self._end(run_id, result=as_value(message))

    def on_chat_model_start(
        self, serialized: Any, messages: Sequence[Sequence[Any]], *, run_id: UUID,
        parent_run_id: UUID | None = None, **_more: Any,
    ) -> None:  # fmt: skip
        """Begin the span of a chat model."""
        span = self._begin(run_id, parent_run_id, _name(serialized))
        span.kind = "llm"
        span.hear(*read_messages(_plain(messages[0] if messages else [])))

    def on_llm_start(
        self, serialized: Any, prompts: Sequence[str], *, run_id: UUID,
        parent_run_id: UUID | None = None, **_more: Any,
    ) -> None:  # fmt: skip
        """Begin the span of a model that completes texts."""
        span = self._begin(run_id, parent_run_id, _name(serialized))
        span.kind, span.heard = "llm", [Said("user", prompt) for prompt in prompts]

    def on_llm_end(self, response: Any, *, run_id: UUID, **_more: Any) -> None:
        """End the span of a model with its answer."""
        span = self._spans.get(run_id)
        if span is not None:
            answers = [one for group in response.generations for one in group]
            given = [getattr(one, "message", None) or one.text for one in answers]
            span.answer(*read_messages(_plain(given)))
            span.tokens = _tokens(given)
        self._end(run_id)

    def _begin(self, run_id: UUID, parent: UUID | None, name: str) -> Span:
        with self._lock:
            root = run_id if parent is None else self._roots.get(parent, parent)
            self._roots[run_id] = root
            span = Span(
                trace=str(root),
                id=str(run_id),
                parent="" if parent is None else str(parent),
                name=name,
                start=now(),
            )
            self._spans[run_id] = span
            return span

    def _end(
        self, run_id: UUID, *, error: str | None = None, result: Any = msgspec.UNSET,
        output: Any = msgspec.UNSET,
    ) -> None:  # fmt: skip
        with self._lock:
            span = self._spans.get(run_id)
            if span is None:
                return
            span.end, span.error, span.result, span.output = now(), error, result, output
            if self._roots[run_id] != run_id:
                return
            mine = [own for own, root in self._roots.items() if root == run_id]
            spans = [self._spans.pop(own) for own in mine]
            for own in mine:
                del self._roots[own]
        self._store_trace([one for one in spans if one.kind])

    def _store_trace(self, spans: list[Span]) -> None:
        """Store a run as a trace, without the chains inside: they are structure, not actions."""
        intake = Intake(self._store, subject=self._subject, source="own")
        known = {span.id for span in spans}
        root = next((span.id for span in spans if not span.parent), "")
        for span in spans:
            if span.parent and span.parent not in known:
                span.parent = root
        add_spans(intake, NAME, spans)
        intake.close()
        self.trace_ids += intake.trace_ids


def _name(serialized: Any) -> str:
    if not isinstance(serialized, dict):
        return ""
    path = serialized.get("id")
    return str(serialized.get("name") or (path[-1] if isinstance(path, list) and path else ""))


def _plain(value: Any) -> Any:
    """Return LangChain's values as JSON; messages become dicts."""
    if hasattr(value, "type") and hasattr(value, "content"):
        written: Json = message_to_dict(value)
        return {**_plain(written["data"]), "type": written["type"]}
    if isinstance(value, dict):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return repr(value)


def _final(outputs: Any) -> Any:
    """Return a run's output: the text of its last message, else all of it."""
    plain = _plain(outputs)
    messages = plain.get("messages") if isinstance(plain, dict) else None
    if isinstance(messages, list) and messages and isinstance(messages[-1], dict):
        return text_of(messages[-1].get("content")) or messages[-1].get("content")
    if isinstance(plain, dict) and "content" in plain:
        return text_of(plain["content"])
    return plain


def _tokens(answers: Sequence[Any]) -> int | None:
    counted = [getattr(answer, "usage_metadata", None) for answer in answers]
    totals = [one["total_tokens"] for one in counted if one]
    return sum(totals) if totals else None
