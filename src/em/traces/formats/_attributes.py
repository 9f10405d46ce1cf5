"""The attributes of spans by two conventions: OpenTelemetry's `gen_ai.*`, and OpenInference."""

import re
from datetime import datetime
from typing import Any

from em.traces.formats._fields import as_args, as_value, first_of, text_of
from em.traces.formats._spans import Kind, Said, Span, prompt_text, said_in
from em.values.canonical import Json

_MODELS = frozenset({"chat", "text_completion", "generate_content", "completion", "responses"})
_KINDS: dict[str, Kind] = {
    "tool": "tool", "llm": "llm", "agent": "agent", "execute_tool": "tool",
    "invoke_agent": "agent", **dict.fromkeys(_MODELS, "llm"),
}  # fmt: skip
_ARGS = (
    "gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "input.value",
    "traceloop.entity.input", "tool_arguments",
)  # fmt: skip
_RESULTS = (
    "gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "output.value",
    "traceloop.entity.output", "tool_response",
)  # fmt: skip
_MCP = frozenset({"content", "isError", "structuredContent", "_meta", "meta"})
_GIVEN = ("gen_ai.input.messages", "gen_ai.prompt")
_GAVE = ("gen_ai.output.messages", "gen_ai.completion")
_INDEXED = re.compile(
    r"(?:gen_ai\.(prompt|completion)|llm\.(input|output)_messages)\.(\d+)\.(?:message\.)?(.+)"
)
_CALL = re.compile(r"tool_calls\.(\d+)\.(?:tool_call\.)?(?:function\.)?(id|name|arguments)")
_TOKENS = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
)


def is_agents_span(attributes: Json) -> bool:
    """Whether a span is one of an agent's, by its attributes."""
    return any(
        name.startswith(("gen_ai.", "openinference.", "llm.", "traceloop.")) for name in attributes
    )


def span_from(
    attributes: Json,
    *,
    trace: str,
    own: str,
    parent: str,
    name: str,
    start: datetime | None,
    end: datetime | None,
    error: str | None,
    events: list[tuple[str, Json]],
    raw: Json,
) -> Span:
    """A span as its attributes tell it."""
    kind = _kind(attributes)
    span = Span(
        trace=trace, id=own, parent=parent, kind=kind, name=name, start=start, end=end, error=error,
        raw=None if kind else raw,
    )  # fmt: skip
    if kind == "tool":
        _tell_tool(span, attributes)
    elif kind == "llm":
        _tell_model(span, attributes, events)
    elif kind == "agent":
        named = first_of(attributes, ("gen_ai.agent.name", "agent.name", "traceloop.entity.name"))
        span.name = str(named or name)
        given = as_value(first_of(attributes, ("gen_ai.input.messages", "input.value")))
        span.goal = prompt_text(given)
        if "output.value" in attributes:
            span.output = as_value(attributes["output.value"])
    return span


def _kind(attributes: Json) -> Kind:
    said = first_of(
        attributes, ("gen_ai.operation.name", "openinference.span.kind", "traceloop.span.kind")
    )
    if said is not None:
        return _KINDS.get(str(said).lower(), "")
    is_model = any(
        name in attributes
        for name in ("gen_ai.completion.0.role", "llm.request.type", "llm.model_name")
    ) or ("gen_ai.request.model" in attributes and "gen_ai.tool.name" not in attributes)
    if is_model:
        return "llm"
    return "tool" if "gen_ai.tool.name" in attributes else ""


def _tell_tool(span: Span, attributes: Json) -> None:
    named = first_of(attributes, ("gen_ai.tool.name", "tool.name", "traceloop.entity.name"))
    span.name = str(named or span.name.removeprefix("execute_tool").strip())
    call_id = first_of(attributes, ("gen_ai.tool.call.id", "tool_call.id", "tool.id"))
    span.call_id = str(call_id or "")
    given = first_of(attributes, _ARGS)
    if given is not None:
        span.args = _by_name(as_args(given), attributes.get("tool.parameters"))
    gave = first_of(attributes, _RESULTS)
    if gave is not None:
        span.result = _result(as_value(gave))


def _by_name(args: Json, parameters: Any) -> Json:
    """Arguments that a wrapper took by place (smolagents), by their names."""
    if not {"args", "kwargs"} <= args.keys() or not isinstance(args["args"], list):
        return args
    known = as_args(parameters)
    known = known.get("properties", known)
    names = [*known, *(f"arg{n}" for n in range(len(known), len(args["args"])))]
    by_place = dict(zip(names, args["args"], strict=False))
    return {**by_place, **as_args(args["kwargs"])}


def _result(value: Any) -> Any:
    """A result of MCP that is one text is that text."""
    if (
        isinstance(value, dict)
        and isinstance(value.get("content"), list)
        and value.get("isError") is not True
        and value.keys() <= _MCP
    ):
        return as_value(value["content"])
    return value


def _tell_model(span: Span, attributes: Json, events: list[tuple[str, Json]]) -> None:
    for name, attributes_of_event in events:
        if name.startswith("gen_ai."):
            _tell_event(span, name, attributes_of_event)
    heard, answered = _indexed(attributes)
    for names, into in ((_GIVEN, heard), (_GAVE, answered)):
        given = as_value(first_of(attributes, names))
        if isinstance(given, list):
            into.extend(given)
    system = as_value(attributes.get("gen_ai.system_instructions"))
    if system:
        heard.insert(
            0, {"role": "system", "parts": system if isinstance(system, list) else [system]}
        )
    if not heard and not answered:
        _tell_vertex(heard, answered, attributes)
    if not answered and isinstance(attributes.get("output.value"), str):
        answered.append({"role": "assistant", "content": attributes["output.value"]})
    said, earlier, results = said_in(heard)
    answers, asked, _ = said_in(answered)
    span.heard = [*span.heard, *said]
    span.answered = [*span.answered, *(Said("assistant", one.text) for one in answers)]
    span.earlier = [*span.earlier, *earlier]
    span.asked_for = [*span.asked_for, *asked]
    span.results = {**span.results, **results}
    span.tokens = _tokens(attributes)


def _tokens(attributes: Json) -> int | None:
    total = first_of(attributes, ("llm.usage.total_tokens", "llm.token_count.total"))
    counted = [first_of(attributes, names) for names in _TOKENS]
    numbers = [int(one) for one in counted if str(one).isdecimal()]
    if numbers:
        return sum(numbers)
    return int(total) if str(total).isdecimal() else None


def _indexed(attributes: Json) -> tuple[list[Json], list[Json]]:
    """Messages that were written as one attribute for each of their fields."""
    found: dict[tuple[bool, int], Json] = {}
    for name, value in attributes.items():
        match = _INDEXED.fullmatch(name)
        if match is None:
            continue
        given, heard, number, field = match.groups()
        is_answer = given == "completion" or heard == "output"
        message = found.setdefault((is_answer, int(number)), {})
        call = _CALL.fullmatch(field)
        if call is not None:
            calls = message.setdefault("calls", {})
            calls.setdefault(int(call.group(1)), {})[call.group(2)] = value
        elif field.startswith("contents.") and field.endswith(".text"):
            message.setdefault("content", []).append({"type": "text", "text": value})
        else:
            message.setdefault(field, value)
    parted: tuple[list[Json], list[Json]] = ([], [])
    for is_answer, number in sorted(found):
        message = found[is_answer, number]
        calls = message.pop("calls", {})
        message["tool_calls"] = [calls[n] for n in sorted(calls)]
        message.setdefault("role", "assistant" if is_answer else "user")
        parted[is_answer].append(message)
    return parted


def _tell_event(span: Span, name: str, attributes: Json) -> None:
    """Older spans keep the conversation as events."""
    role = name.removeprefix("gen_ai.").removesuffix(".message")
    if role == "choice":
        message = as_value(attributes.get("message")) or attributes
        said, asked, _ = said_in([{"role": "assistant", **_mapping(message)}])
        span.answered = [*span.answered, *said]
        span.asked_for = [*span.asked_for, *asked]
        return
    if role == "tool":
        own = attributes.get("id") or attributes.get("gen_ai.tool.call.id")
        span.results = {**span.results, str(own): as_value(attributes.get("content"))}
        return
    fields = {**attributes, "tool_calls": as_value(attributes.get("tool_calls")) or []}
    if role in ("user", "system", "assistant"):
        said, earlier, _ = said_in([{**fields, "role": role}])
        span.heard = [*span.heard, *said]
        span.earlier = [*span.earlier, *earlier]


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {"content": text_of(value)}


def _tell_vertex(heard: list[Json], answered: list[Json], attributes: Json) -> None:
    """What Google's agent kit keeps of a request and its answer."""
    request = as_value(attributes.get("gcp.vertex.agent.llm_request"))
    answer = as_value(attributes.get("gcp.vertex.agent.llm_response"))
    if isinstance(request, dict):
        heard += [one for one in request.get("contents") or () if isinstance(one, dict)]
    if isinstance(answer, dict) and isinstance(answer.get("content"), dict):
        answered.append(answer["content"])
