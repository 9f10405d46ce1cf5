"""OpenAI chat transcripts: one object with `messages`, or many as JSONL."""

from collections.abc import Iterator
from typing import Any

import msgspec

from em.errors import InputError
from em.models.canonical import Json
from em.models.trace import Message, Mission, Outcome, ToolCall, Trace, TraceEvent

_decode = msgspec.json.Decoder().decode


def read_chats(data: bytes, place: str) -> Iterator[Trace]:
    """The traces of a file: one JSON object, a list of them, or one a line."""
    try:
        whole = _decode(data)
    except msgspec.DecodeError:
        whole = None
    if whole is not None:
        for number, chat in enumerate(whole if isinstance(whole, list) else [whole]):
            yield read_chat(chat, f"{place}, item {number}")
        return
    for number, line in enumerate(data.splitlines(), 1):
        if line.strip():
            try:
                chat = _decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise InputError(f"this is no JSON: {error}", place=f"{place}:{number}") from None
            yield read_chat(chat, f"{place}:{number}")


def read_chat(chat: Any, place: str) -> Trace:
    """One conversation. What users said becomes messages; an answer that begins with Error is one.

    The final output is the result of the last call that is not a failure, else the last answer.
    """
    if not isinstance(chat, dict) or not isinstance(chat.get("messages"), list):
        raise InputError("a chat is an object with `messages`", place=place)
    results = {
        str(message.get("tool_call_id")): message.get("content")
        for message in chat["messages"]
        if message.get("role") == "tool"
    }
    events: list[TraceEvent] = []
    for message in chat["messages"]:
        role, text = message.get("role"), message.get("content")
        if role in ("user", "assistant") and isinstance(text, str) and text:
            events.append(Message(role=role, text=text))
        for call in message.get("tool_calls") or ():
            events.append(_call(call, results, place))
    first = next((event.text for event in events if isinstance(event, Message)), "")
    return Trace(
        app={"name": "openai-chat"},
        mission=Mission(goal=str(chat.get("instruction") or first)),
        events=events,
        outcome=_outcome(chat.get("reward")),
    )


def _call(call: Json, results: Json, place: str) -> ToolCall:
    function = call.get("function") or {}
    try:
        args = _decode(function.get("arguments") or "{}")
    except msgspec.DecodeError as error:
        raise InputError(
            f"the arguments of {function.get('name')} are no JSON: {error}", place=place
        ) from None
    content = results.get(str(call.get("id")))
    failed = isinstance(content, str) and content.startswith("Error")
    return ToolCall(
        tool=str(function.get("name")),
        args=args if isinstance(args, dict) else {"value": args},
        result=None if failed else _value(content),
        error=content if failed else None,
        id=call.get("id"),
    )


def _value(content: Any) -> Any:
    """A result is JSON written as text, as a rule."""
    if not isinstance(content, str) or not content.lstrip().startswith(("{", "[", '"')):
        return content
    try:
        return _decode(content)
    except msgspec.DecodeError:
        return content


def _outcome(reward: Any) -> Outcome:
    if not isinstance(reward, int | float):
        return "unknown"
    return "success" if reward > 0 else "failure"
