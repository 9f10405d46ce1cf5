"""Langfuse: traces with their observations, or one observation per line."""

from collections.abc import Iterator
from typing import Any

from em.traces.formats._messages import as_args, as_value, first_of, read_messages, tokens_of, when
from em.traces.formats._spans import Kind, Span, prompt_text, span_importer
from em.values.canonical import Json

NAME = "langfuse"
_KINDS: dict[str, Kind] = {
    "TOOL": "tool", "RETRIEVER": "tool", "GENERATION": "llm", "AGENT": "agent",
}  # fmt: skip
_TYPES = frozenset({
    "SPAN", "EVENT", "CHAIN", "EVALUATOR", "EMBEDDING", "GUARDRAIL", *_KINDS,
})  # fmt: skip


def _items(value: Any) -> list[Json]:
    found = value.get("data") if isinstance(value, dict) and "data" in value else value
    items = found if isinstance(found, list) else [found]
    return [item for item in items if isinstance(item, dict)]


def _is_observation(item: Json) -> bool:
    return item.get("type") in _TYPES and ("traceId" in item or "startTime" in item)


def _is_trace(item: Json) -> bool:
    found = item.get("observations")
    return isinstance(found, list) and all(
        isinstance(one, dict) and one.get("type") in _TYPES for one in found
    )


def _is_langfuse(value: Any) -> bool:
    items = _items(value)
    return bool(items) and all(_is_observation(one) or _is_trace(one) for one in items)


def spans_of(value: Any) -> Iterator[Span]:
    """Yield the observations of an export; a trace itself is the span of the agent."""
    for item in _items(value):
        if _is_observation(item):
            yield _span(item, "")
        elif _is_trace(item):
            inner = item.get("trace")
            trace: Json = {**item, **(inner if isinstance(inner, dict) else {})}
            own = str(trace.get("id"))
            output = trace.get("output")
            yield Span(
                trace=own,
                id=own,
                kind="agent",
                name=str(trace.get("name") or ""),
                start=when(first_of(trace, ("timestamp", "createdAt"))),
                goal=prompt_text(as_value(trace.get("input"))),
                **({} if output is None else {"output": as_value(output)}),
            )
            for observation in item["observations"]:
                yield _span(observation, own)


def _span(item: Json, trace: str) -> Span:
    kind = _KINDS.get(str(item.get("type")), "")
    if kind == "" and _looks_like_a_tool(item):
        kind = "tool"
    failed = item.get("level") == "ERROR"
    span = Span(
        trace=str(item.get("traceId") or trace or item.get("id")),
        id=str(item.get("id")),
        parent=str(item.get("parentObservationId") or trace or ""),
        kind=kind,
        name=str(item.get("name") or ""),
        start=when(item.get("startTime")),
        end=when(item.get("endTime")),
        error=str(item.get("statusMessage") or "failed") if failed else None,
        raw=None if kind else item,
    )
    given, gave = as_value(item.get("input")), as_value(item.get("output"))
    if kind == "tool":
        span.args = as_args(given)
        if gave is not None:
            span.result = gave
    elif kind == "llm":
        heard = given.get("messages", given) if isinstance(given, dict) else given
        span.hear(*read_messages(heard or []))
        span.answer(*read_messages(gave if isinstance(gave, list) else [gave]))
        span.tokens = tokens_of(item.get("usageDetails") or item.get("usage"))
    elif kind == "agent":
        span.goal = prompt_text(given)
    return span


def _looks_like_a_tool(item: Json) -> bool:
    """Return whether a span is a tool's, from before Langfuse had a type for tools."""
    metadata = item.get("metadata")
    named: Json = metadata if isinstance(metadata, dict) else {}
    kind = first_of(named, ("run_type", "tool", "ls_run_type", "type"))
    return str(kind).lower() == "tool" or str(item.get("name", "")).startswith("tool:")


IMPORTER = span_importer(NAME, "Langfuse exports", _is_langfuse, spans_of)
