"""OpenAI Agents SDK: spans and traces as the SDK gives them to its exporters."""

from collections.abc import Iterator
from typing import Any

from em.traces.formats._messages import (
    as_args,
    as_value,
    ended_by,
    read_messages,
    text_of,
    tokens_of,
    when,
)
from em.traces.formats._spans import Kind, Span, span_importer
from em.traces.model_request import Called, Ended, Said
from em.values.canonical import Json

NAME = "openai-agents"
_KINDS: dict[str, Kind] = {
    "function": "tool", "generation": "llm", "response": "llm", "agent": "agent",
}  # fmt: skip


def _values(value: Any) -> list[Json]:
    found = value.get("data") if isinstance(value, dict) and "data" in value else value
    items = found if isinstance(found, list) else [found]
    return [item for item in items if isinstance(item, dict)]


def _is_span(item: Json) -> bool:
    return isinstance(item.get("span_data"), dict) and "trace_id" in item


def _is_openai_agents(value: Any) -> bool:
    items = _values(value)
    return bool(items) and all(_is_span(one) or one.get("object") == "trace" for one in items)


def spans_of(value: Any) -> Iterator[Span]:
    """Yield the spans of a batch; a trace's own line has its name."""
    for item in _values(value):
        if _is_span(item):
            yield _span(item)
        elif item.get("object") == "trace":
            name = str(item.get("workflow_name") or "")
            yield Span(trace=str(item.get("id")), id=str(item.get("id")), name=name, raw=item)


def _span(item: Json) -> Span:
    data: Json = item["span_data"]
    kind = _KINDS.get(str(data.get("type")), "")
    given = item.get("error")
    error = str(given.get("message") or given) if isinstance(given, dict) else None
    span = Span(
        trace=str(item["trace_id"]),
        id=str(item.get("id")),
        parent=str(item.get("parent_id") or ""),
        kind=kind,
        name=str(data.get("name") or data.get("type") or ""),
        start=when(item.get("started_at")),
        end=when(item.get("ended_at")),
        error=error if error is not None or given is None else str(given),
        raw=None if kind else item,
    )
    if kind == "tool":
        span.args = as_args(data.get("input"))
        if data.get("output") is not None:
            span.result = as_value(data["output"])
    elif kind == "llm":
        _read_model(span, data)
    return span


def _read_model(span: Span, data: Json) -> None:
    answer = data.get("response")
    output = data.get("output") or (answer.get("output") if isinstance(answer, dict) else None)
    usage = data.get("usage") or (answer.get("usage") if isinstance(answer, dict) else None)
    span.tokens = tokens_of(usage)
    span.hear(*read_items(data.get("input")))
    span.answer(*read_items(output))


def read_items(items: Any) -> tuple[list[Said], list[Called], list[Ended]]:
    """Return the texts, the calls and the results of a conversation's items."""
    messages: list[Any] = []
    asked: list[Called] = []
    results: list[Ended] = []
    for item in items if isinstance(items, list) else [items] if items else []:
        kind = item.get("type") if isinstance(item, dict) else None
        if kind in ("function_call", "custom_tool_call"):
            given = item.get("arguments", item.get("input"))
            asked.append(Called(str(item.get("call_id")), str(item.get("name")), as_args(given)))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            results.append(ended_by(item, item.get("output"), str(item.get("call_id"))))
        elif kind == "message" and isinstance(item, dict):
            messages.append({**item, "content": text_of(item.get("content"))})
        else:
            messages.append(item)
    texts, more, found = read_messages(messages)
    return texts, [*asked, *more], [*results, *found]


IMPORTER = span_importer(NAME, "OpenAI Agents SDK spans", _is_openai_agents, spans_of)
