"""Messages of chats, as OpenAI, Anthropic and LangChain write them."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from em.traces.intake import Incoming
from em.traces.model_request import Called, Ended, Said
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


REMEMBERED = 1024
"""How many lines, calls and prompts of a session are remembered, to recognise them."""


def remember(
    seen: "OrderedDict[str, Any]", key: str, value: Any = None, most: int = REMEMBERED
) -> None:
    """Remember something, and forget the oldest one beyond so many."""
    seen[key] = value
    if len(seen) > most:
        seen.popitem(last=False)


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
    """Add one message: its texts, its calls, and the results of calls."""
    at = when(message.get("timestamp") or message.get("created_at"))
    tokens = tokens_of(message.get("usage") or message.get("usage_metadata"))
    if tokens is not None:
        trace.spent(tokens)
    for part in parts_of(message):
        if isinstance(part, Said):
            trace.say(part.role, part.text, at, speaker=part.speaker)
        elif isinstance(part, Called):
            trace.call(part.name, part.args, part.id, at, tokens=tokens)
            tokens = None if tokens is None else 0  # they count for the first call
        elif isinstance(part, Ended):
            if not trace.result(part.id, part.result, part.error, at):
                trace.say("tool", part.text, at)
        else:
            trace.say(role_of(message), text_or_json(part), at)


def read_messages(messages: Any) -> tuple[list[Said], list[Called], list[Ended]]:
    """Return the texts, the calls and the results in messages of any provider, in order."""
    found: tuple[list[Said], list[Called], list[Ended]] = ([], [], [])
    for given in messages if isinstance(messages, list) else [messages]:
        if isinstance(given, str):
            found[0].append(Said("user", given))
        for part in parts_of(plain(given)) if isinstance(given, dict) else ():
            if isinstance(part, Called):
                found[1].append(part)
            elif isinstance(part, Ended) and part.id:
                found[2].append(part)
            elif isinstance(part, Said | Ended) and part.text:
                role = "tool" if isinstance(part, Ended) else part.role
                found[0].append(Said(role or "user", part.text))
    return found


Part = Said | Called | Ended | Json


def parts_of(message: Json) -> Iterator[Part]:
    """Yield what a message of any provider has, in order; a block of an unknown kind as it is.

    LangChain writes a call in `tool_calls` and as a block too: it is yielded once.
    """
    role, content = role_of(message), message.get("content", message.get("parts"))
    blocks = content if isinstance(content, list) else [content]
    if role == "tool" and not any(map(_has_result, blocks)):
        only = message.get("tool_call_id") or message.get("tool_use_id") or ""
        found = ended_by(message, content, str(only))
        first, *others = message.get("tool_call_ids") or [found.id]
        yield msgspec.structs.replace(found, id=str(first))
        for one in others:
            yield Ended(str(one), found.result, found.error)
        return
    calls = [called_by(call) for call in message.get("tool_calls") or () if isinstance(call, dict)]
    name = message.get("name") if role in ("user", "assistant") else ""
    speaker = name if isinstance(name, str) else ""
    told = Counter[str]()
    for block in blocks:
        part = _part_of(block, role, speaker)
        told.update([part.id] if isinstance(part, Called) and part.id else ())
        yield part
    for call in calls:
        told[call.id] -= 1
        if told[call.id] < 0:
            yield call
    if isinstance(message.get("function_call"), dict):
        yield msgspec.structs.replace(called_by(message["function_call"]), id="")


def _part_of(block: Any, role: str, speaker: str) -> Part:
    """Return what a block of a message's content is; itself if its kind is not known."""
    given: Json = block if isinstance(block, dict) else {}
    kind = given.get("type")
    if kind in _CALLS:
        return called_by(given)
    if kind in _RESULTS:
        found = (given[name] for name in ("response", "result", "content") if name in given)
        own = given.get("id") or given.get("tool_use_id")
        return ended_by(given, next(found, None), str(own))
    if isinstance(given.get("function_call"), dict):
        return called_by(given["function_call"])
    if isinstance(given.get("function_response"), dict):
        answer = given["function_response"]
        return Ended(str(answer.get("id")), answer.get("response"))
    if kind in ("thinking", "reasoning"):
        return Said("thinking", str(given.get("thinking") or text_of(given)))
    text = text_of(block)
    return Said(role, text, speaker) if text or kind is None else given


def _has_result(block: Any) -> bool:
    given: Json = block if isinstance(block, dict) else {}
    return given.get("type") in _RESULTS or "function_response" in given


def called_by(call: Json) -> Called:
    """Return a call, in any provider's form."""
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    names = ("arguments", "args", "input")
    given = next((inner[name] for name in names if inner.get(name) is not None), None)
    return Called(str(call.get("id") or ""), str(inner.get("name", "")), as_args(given))


def ended_by(message: Json, content: Any, call_id: str) -> Ended:
    """Return how a call ended, by the message with its result.

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
    if failed:
        return Ended(call_id, None, said or content or "failed", said or text_or_json(content))
    return Ended(call_id, value, None, text_of(content) or text_or_json(content))


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
