"""OpenAI chats: an object with `messages`, or the messages themselves."""

from typing import Any

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import (
    add_messages,
    is_message,
    outcome_of,
    plain,
    tokens_of,
    when,
)
from em.values.canonical import Json

NAME = "openai"
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def chat_of(value: Any) -> Json | None:
    """Return the object with the messages of a chat: itself, its request, or a list of them."""
    if isinstance(value, list):
        return {"messages": value} if value else None
    if not isinstance(value, dict):
        return None
    for inner in (value, value.get("request"), value.get("body"), value.get("input")):
        if isinstance(inner, dict) and isinstance(inner.get("messages"), list):
            return {**value, **inner}
    return None


def _is_openai_chat(value: Any) -> bool:
    chat = chat_of(value)
    messages = chat["messages"] if chat else []
    if not messages or not all(is_message(message) for message in messages):
        return False
    return all(_is_openai(plain(message)) for message in messages) and "trajectory_format" not in (
        chat or {}
    )


def _is_openai(message: Json) -> bool:
    if message.get("role") not in _ROLES:
        return False
    content = message.get("content")
    if isinstance(content, str) and "```mswea_bash_command" in content:
        return False
    blocks = content if isinstance(content, list) else []
    return not any(
        isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result", "thinking")
        for block in blocks
    ) and all("function" in call for call in message.get("tool_calls") or ())


class _Reader(Reader):
    def read(self, value: Any) -> None:
        chat = chat_of(value)
        if chat is None:
            self.intake.unknown("an object without `messages`")
            return
        trace = self.intake.nameless(NAME)
        trace.goal = str(chat.get("instruction") or "")
        add_messages(trace, chat["messages"])
        answer = chat.get("response") if isinstance(chat.get("response"), dict) else chat
        for choice in (answer or {}).get("choices") or ():
            if isinstance(choice, dict) and isinstance(choice.get("message"), dict):
                add_messages(trace, [choice["message"]])
        tokens = tokens_of((answer or {}).get("usage"))
        if tokens is not None and not trace.usage:
            trace.spent(tokens, turn=str(when(chat.get("created"))))
        trace.outcome = outcome_of(chat)
        trace.close()


IMPORTER = Importer(name=NAME, title="OpenAI chats", fits=_is_openai_chat, reader=_Reader)
