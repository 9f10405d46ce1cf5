"""Messages of chats, as OpenAI, Anthropic and LangChain write them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from em.traces.intake import Incoming
from em.traces.trace import Outcome, reports_error
from em.values.canonical import Json

_decode = msgspec.json.Decoder().decode
_TEXTS = frozenset({"text", "input_text", "output_text", "reasoning_text", "summary_text"})


def when(value: Any) -> datetime | None:
    """Read a time: ISO 8601, or seconds, milli-, micro- or nanoseconds since 1970."""
    if isinstance(value, str):
        if value.isdecimal():
            return when(int(value))
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        return at if at.tzinfo is UTC else at.astimezone(UTC)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    seconds = float(value)
    while seconds > 1e11:
        seconds /= 1e3
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def as_args(given: Any) -> Json:
    """Return the arguments of a call from an object, or from the text of one."""
    if isinstance(given, str):
        given = as_value(given) if given.strip() else {}
    if given is None:
        return {}
    return given if isinstance(given, dict) else {"value": given}


def as_value(content: Any) -> Any:
    """Return a result: JSON in a text is decoded, text blocks become their text."""
    if isinstance(content, list):
        if content and all(is_text(block) for block in content):
            return as_value(text_of(content))
        return content
    if not isinstance(content, str) or not content.lstrip().startswith(("{", "[", '"')):
        return content
    try:
        return _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return content


def output_of(content: Any, *, is_command: bool) -> Any:
    """Return a result: what a command printed is a text, also where it is JSON."""
    return text_of(content) if is_command else as_value(content)


def is_text(block: Any) -> bool:
    """Return whether a block of content is text."""
    return isinstance(block, dict) and block.get("type") in _TEXTS and "text" in block


def text_of(content: Any) -> str:
    """Return the text of a content: itself, or that of its blocks."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("content") or "")
    if isinstance(content, list):
        return "\n".join(part for part in map(_block_text, content) if part)
    return ""


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    return str(block["text"]) if is_text(block) else ""


_COUNTED = (
    "input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens",
    "prompt_tokens", "completion_tokens", "input", "output",
)  # fmt: skip


def tokens_of(usage: Any) -> int | None:
    """Return all tokens of one answer, input and output, as any provider counts them."""
    if not isinstance(usage, dict):
        return None
    for name in ("total_tokens", "total"):
        if isinstance(usage.get(name), int):
            return int(usage[name])
    counted = [count for name in _COUNTED if isinstance(count := usage.get(name), int)]
    return sum(counted) if counted else None


def first_of(source: Json, names: Iterable[str]) -> Any:
    """Return the first of these fields that has a value."""
    return next((source[name] for name in names if source.get(name) not in (None, "")), None)


def text_or_json(value: Any) -> str:
    """Return a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def exit_failure(exit_code: Any, output: Any) -> str | None:
    """Return the error of a command by its exit code, None if it has none or 0."""
    if not isinstance(exit_code, int) or isinstance(exit_code, bool) or exit_code == 0:
        return None
    return f"exit code {exit_code}: {output if output is not None else ''}".rstrip(": ")


ROLES = {
    "human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "function": "tool",
    "developer": "system", "model": "assistant",
}  # fmt: skip
_CALLS = frozenset({"tool_use", "tool_call", "server_tool_use"})
_RESULTS = frozenset({"tool_result", "tool_call_response"})


def plain(message: Json) -> Json:
    """Return a message without LangChain's wrapping."""
    if message.get("lc") and isinstance(message.get("kwargs"), dict):
        return {"type": _class_role(message.get("id")), **message["kwargs"]}
    if isinstance(message.get("data"), dict) and isinstance(message.get("type"), str):
        return {**message["data"], "type": message["type"]}
    return message


def _class_role(path: Any) -> str:
    name = str(path[-1]) if isinstance(path, list) and path else ""
    return name.removesuffix("Chunk").removesuffix("Message").lower()


def role_of(message: Json) -> str:
    """Return the role of a message: user, assistant, system or tool."""
    role = str(message.get("role") or message.get("type") or "")
    return ROLES.get(role, role)


def is_message(value: Any) -> bool:
    """Return whether a value is a message of a chat."""
    if not isinstance(value, dict):
        return False
    message = plain(value)
    return role_of(message) in ("user", "assistant", "system", "tool", "exit") and (
        "content" in message or "tool_calls" in message or "parts" in message
    )


def add_messages(trace: Incoming, messages: Sequence[Any]) -> None:
    """Add the messages of a chat to a trace, in order."""
    for message in messages:
        if is_message(message):
            add_message(trace, plain(message))
        else:
            trace.say("unknown", text_or_json(message))


def add_message(trace: Incoming, message: Json) -> None:
    """Add one message: its text, its calls, or the result of a call."""
    role = role_of(message)
    at = when(message.get("timestamp") or message.get("created_at"))
    content = message.get("content")
    if role == "tool":
        _add_result(trace, message, content, at)
        return
    usage = message.get("usage") or message.get("usage_metadata")
    tokens = tokens_of(usage)
    if tokens is not None:
        trace.spent(tokens)
    blocks = content if isinstance(content, list) else [content]
    speaker = _as_name(message.get("name")) if role in ("user", "assistant") else ""
    told = Counter(_add_block(trace, block, role, at, speaker) for block in blocks)
    for call in message.get("tool_calls") or ():
        if isinstance(call, dict):
            name, args, call_id = call_parts(call)
            if call_id and told[call_id]:
                told[call_id] -= 1  # LangChain writes a call as a block too
                continue
            trace.call(name, args, call_id, at, tokens=tokens)
            tokens = 0 if tokens is not None else None
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        trace.call(str(legacy.get("name")), as_args(legacy.get("arguments")), "", at)


def call_parts(call: Json) -> tuple[str, Json, str]:
    """Return name, arguments and id of a call, in any provider's form."""
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    given = next(
        (inner[name] for name in ("arguments", "args", "input") if inner.get(name) is not None),
        None,
    )
    return str(inner.get("name", "")), as_args(given), str(call.get("id") or "")


def _as_name(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _add_block(trace: Incoming, block: Any, role: str, at: Any, speaker: str = "") -> str | None:
    """Add a block of a message; return the id of the call that it is, if any."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in _CALLS:
        name, args, call_id = call_parts(block)
        trace.call(name, args, call_id, at)
        return call_id
    if kind in _RESULTS:
        _add_result(trace, block, block.get("content"), at)
    elif kind == "thinking":
        trace.say("thinking", str(block.get("thinking", "")), at)
    elif kind is None or text_of([block]):
        text = text_of(block) if kind is None else text_of([block])
        trace.say(role, text, at, speaker=speaker)
    else:
        trace.say(role, text_or_json(block), at)
    return None


def _add_result(trace: Incoming, message: Json, content: Any, at: Any) -> None:
    result, error = ended(message, content)
    ids = message.get("tool_call_ids") or [
        message.get("tool_call_id") or message.get("tool_use_id")
    ]
    known = [
        trace.result(None if call_id is None else str(call_id), result, error, at)
        for call_id in ids
    ]
    if not any(known):
        trace.say("tool", text_of(content) or text_or_json(content), at)


def ended(message: Json, content: Any) -> tuple[Any, Any]:
    """Return how a call ended, by the message with its result: the result, or the error.

    Where a format has a field for it (`status`, `is_error`), that field decides. Chats have none,
    so there a text that reports an error is one.
    """
    value = as_value(content)
    said = value if isinstance(value, str) else text_of(content)
    if message.get("status") in ("success", "error"):
        failed = message["status"] == "error"
    elif isinstance(message.get("is_error"), bool) or message.get("type") == "tool_result":
        failed = message.get("is_error") is True
    else:
        failed = reports_error(said)
    return (None, said or content or "failed") if failed else (value, None)


TAU = frozenset({"task_id", "instruction", "reward"})
"""The fields of a run of tau-bench, whose reward is 1.0 where the task was done, else less."""


def outcome_of(chat: Json) -> Outcome:
    """Return the outcome that a chat's reward stands for.

    A number is one only where the format defines its maximum: tau-bench does. Elsewhere nobody
    knows how much would have been all.
    """
    reward = chat.get("reward")
    if isinstance(reward, int | float) and not isinstance(reward, bool):
        if not chat.keys() >= TAU or not 0 <= reward <= 1:
            return "unknown"
        reward = reward == 1
    return said_outcome(reward)


def said_outcome(success: Any) -> Outcome:
    """Return the outcome that a boolean stands for; anything else says nothing."""
    if not isinstance(success, bool):
        return "unknown"
    return "success" if success else "failure"
