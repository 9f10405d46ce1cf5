"""Messages of chats, as OpenAI, Anthropic and LangChain write them, told to a trace."""

from collections.abc import Sequence
from typing import Any

from em.traces.builder import Incoming
from em.traces.formats._fields import (
    as_args,
    as_value,
    text_of,
    text_or_json,
    tokens_of,
    when,
)
from em.traces.trace import Outcome
from em.values.canonical import Json

ROLES = {
    "human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "function": "tool",
    "developer": "system", "model": "assistant",
}  # fmt: skip
_CALLS = frozenset({"tool_use", "tool_call", "server_tool_use"})
_RESULTS = frozenset({"tool_result", "tool_call_response"})


def plain(message: Json) -> Json:
    """A message without what LangChain wraps around it when it writes one."""
    if message.get("lc") and isinstance(message.get("kwargs"), dict):
        return {"type": _class_role(message.get("id")), **message["kwargs"]}
    if isinstance(message.get("data"), dict) and isinstance(message.get("type"), str):
        return {**message["data"], "type": message["type"]}
    return message


def _class_role(path: Any) -> str:
    name = str(path[-1]) if isinstance(path, list) and path else ""
    return name.removesuffix("Chunk").removesuffix("Message").lower()


def role_of(message: Json) -> str:
    """Who says a message: user, assistant, system or tool."""
    role = str(message.get("role") or message.get("type") or "")
    return ROLES.get(role, role)


def is_message(value: Any) -> bool:
    """Whether this is a message of a chat."""
    if not isinstance(value, dict):
        return False
    message = plain(value)
    return role_of(message) in ("user", "assistant", "system", "tool", "exit") and (
        "content" in message or "tool_calls" in message or "parts" in message
    )


def tell_messages(trace: Incoming, messages: Sequence[Any]) -> None:
    """Everything that a chat says, in its order."""
    for message in messages:
        if is_message(message):
            tell_message(trace, plain(message))
        else:
            trace.say("unknown", text_or_json(message))


def tell_message(trace: Incoming, message: Json) -> None:
    """One message: its text, its calls, or the result of one."""
    role = role_of(message)
    at = when(message.get("timestamp") or message.get("created_at"))
    content = message.get("content")
    if role == "tool":
        _tell_result(trace, message, content, at)
        return
    usage = message.get("usage") or message.get("usage_metadata")
    tokens = tokens_of(usage)
    if tokens is not None:
        trace.spent(tokens)
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        _tell_block(trace, block, role, at)
    for call in message.get("tool_calls") or ():
        if isinstance(call, dict):
            name, args, call_id = call_parts(call)
            if not trace.has_open(call_id):
                trace.call(name, args, call_id, at, tokens=tokens)
                tokens = 0 if tokens is not None else None
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        trace.call(str(legacy.get("name")), as_args(legacy.get("arguments")), "", at)


def call_parts(call: Json) -> tuple[str, Json, str]:
    """The name, the arguments and the id of a call, whoever wrote it."""
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    given = next(
        (inner[name] for name in ("arguments", "args", "input") if inner.get(name) is not None),
        None,
    )
    return str(inner.get("name", "")), as_args(given), str(call.get("id") or "")


def _tell_block(trace: Incoming, block: Any, role: str, at: Any) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in _CALLS:
        trace.call(str(block.get("name")), call_parts(block)[1], block.get("id"), at)
    elif kind in _RESULTS:
        _tell_result(trace, block, block.get("content"), at)
    elif kind == "thinking":
        trace.say("thinking", str(block.get("thinking", "")), at)
    elif kind is None or text_of([block]):
        trace.say(role, text_of(block) if kind is None else text_of([block]), at)
    else:
        trace.say(role, text_or_json(block), at)


def _tell_result(trace: Incoming, message: Json, content: Any, at: Any) -> None:
    text = text_of(content)
    failed = (
        message.get("status") == "error"
        or message.get("is_error") is True
        or (isinstance(content, str) and content.startswith("Error"))
    )
    ids = message.get("tool_call_ids") or [
        message.get("tool_call_id") or message.get("tool_use_id")
    ]
    result = None if failed else as_value(content)
    error = (text or content or "failed") if failed else None
    known = [trace.result(str(call_id), result, error, at) for call_id in ids]
    if not any(known):
        trace.say("tool", text or text_or_json(content), at)


def outcome_of(reward: Any) -> Outcome:
    """A reward above nothing is a success."""
    if isinstance(reward, bool):
        return "success" if reward else "failure"
    if not isinstance(reward, int | float):
        return "unknown"
    return "success" if reward > 0 else "failure"
