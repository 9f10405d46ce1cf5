"""Anthropic messages: `messages` whose content is blocks, `tool_use` and `tool_result`."""

from typing import Any

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import add_messages, is_message, outcome_of, text_of
from em.traces.formats.openai_chat import chat_of
from em.values.canonical import Json

NAME = "anthropic"
_BLOCKS = frozenset({"tool_use", "tool_result", "thinking", "server_tool_use"})


def _is_anthropic(value: Any) -> bool:
    if _is_answer(value):
        return True
    chat = chat_of(value)
    messages = chat["messages"] if chat else []
    if not messages or not all(is_message(message) for message in messages):
        return False
    return all(
        isinstance(message, dict) and message.get("role") in ("user", "assistant")
        for message in messages
    ) and any(_has_blocks(message) for message in messages)


def _is_answer(value: Any) -> bool:
    """Return whether a value is a single answer of the model."""
    return isinstance(value, dict) and value.get("type") == "message" and "stop_reason" in value


def _has_blocks(message: Json) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") in _BLOCKS for block in content
    )


class _Reader(Reader):
    def read(self, value: Any) -> None:
        chat = {"messages": [value]} if _is_answer(value) else chat_of(value)
        if chat is None:
            self.intake.unknown("an object without `messages`")
            return
        trace = self.intake.nameless(NAME)
        trace.say("system", text_of(chat.get("system")))
        add_messages(trace, chat["messages"])
        answer = chat.get("response")
        if isinstance(answer, dict) and is_message(answer):
            add_messages(trace, [answer])
        elif "stop_reason" in chat and isinstance(chat.get("content"), list):
            add_messages(trace, [{"role": "assistant", **_own(chat)}])
        trace.outcome = outcome_of(chat)
        trace.close()


def _own(chat: Json) -> Json:
    return {name: chat[name] for name in ("content", "usage") if name in chat}


IMPORTER = Importer(name=NAME, title="Anthropic messages", fits=_is_anthropic, reader=_Reader)
