"""LangChain and LangGraph: messages as the libraries write them, alone or in a graph's state."""

from collections.abc import Sequence
from typing import Any

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import add_messages, is_message, plain
from em.traces.intake import Intake
from em.values.canonical import Json

NAME = "langchain"
_TYPES = frozenset({
    "human", "ai", "tool", "system", "function", "HumanMessage", "AIMessage", "ToolMessage",
    "AIMessageChunk",
})  # fmt: skip
_STATES = ("values", "channel_values", "state", "output", "kwargs")


def _is_of_langchain(value: Any) -> bool:
    found = _messages_in(value)
    return bool(found) and all(_is_langchain(message) for message in found)


def _is_langchain(message: Any) -> bool:
    if not is_message(message):
        return False
    inner = plain(message)
    return "role" not in inner and inner.get("type") in _TYPES


def _messages_in(value: Any) -> Sequence[Any]:
    """Return the messages of a list, a state, a checkpoint, or a node's update."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return ()
    if isinstance(value.get("messages"), list):
        return list(value["messages"])
    for name in _STATES:
        inner = value.get(name)
        if isinstance(inner, dict) and isinstance(inner.get("messages"), list):
            return list(inner["messages"])
    found: list[Any] = []
    for inner in value.values():  # updates by the names of their nodes
        if isinstance(inner, dict) and isinstance(inner.get("messages"), list):
            found += inner["messages"]
    return found


def _thread_of(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    config = value.get("config")
    inner = config.get("configurable") if isinstance(config, dict) else None
    found = value.get("thread_id") or (inner.get("thread_id") if isinstance(inner, dict) else None)
    return found if isinstance(found, str) else None


def _is_update(value: Any) -> bool:
    """Return whether a value is a node's update, a part of a conversation."""
    return (
        isinstance(value, dict)
        and "messages" not in value
        and not any(name in value for name in (*_STATES, "config", "thread_id"))
    )


class _Reader(Reader):
    """All states of a thread are one trace; so are all updates of a graph."""

    def __init__(self, intake: Intake) -> None:
        super().__init__(intake)
        self._updates: list[Json] = []
        self._added: dict[str, set[str]] = {}

    def read(self, value: Any) -> None:
        found = _messages_in(value)
        if not found:
            self.intake.unknown("no messages")
        elif _is_update(value):
            self._updates += found
        elif (thread := _thread_of(value)) is not None:
            self._add_thread(thread, found)
        else:
            trace = self.intake.nameless(NAME)
            add_messages(trace, found)
            trace.close()

    def end(self) -> None:
        if self._updates:
            trace = self.intake.nameless(NAME)
            add_messages(trace, self._updates)
            trace.close()
            self._updates = []

    def _add_thread(self, thread: str, messages: Sequence[Any]) -> None:
        trace = self.intake.trace(thread, NAME, thread=thread)
        added = self._added.setdefault(thread, set())
        for message in messages:
            own = str(plain(message).get("id") or plain(message))
            if own not in added:
                added.add(own)
                add_messages(trace, [message])


IMPORTER = Importer(
    name=NAME, title="LangChain and LangGraph messages", fits=_is_of_langchain, reader=_Reader
)
