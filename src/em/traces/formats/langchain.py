"""LangChain and LangGraph: messages as either library writes them, alone or in a graph's state."""

from collections.abc import Sequence
from typing import Any

from em.traces.formats import Importer
from em.traces.formats._messages import is_message, plain, tell_messages
from em.traces.intake import Intake
from em.values.canonical import Json

NAME = "langchain"
_TYPES = frozenset({
    "human", "ai", "tool", "system", "function", "HumanMessage", "AIMessage", "ToolMessage",
    "AIMessageChunk",
})  # fmt: skip
_STATES = ("values", "channel_values", "state", "output", "kwargs")


def _fits(value: Any) -> bool:
    found = _messages_in(value)
    return bool(found) and all(_is_langchain(message) for message in found)


def _is_langchain(message: Any) -> bool:
    if not is_message(message):
        return False
    inner = plain(message)
    return "role" not in inner and inner.get("type") in _TYPES


def _messages_in(value: Any) -> Sequence[Any]:
    """The messages of a list, of a state, of a checkpoint, or of what a node wrote."""
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
    for inner in value.values():  # what nodes wrote, by their names
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
    """What one node wrote: a part of a conversation, with the next line to follow."""
    return (
        isinstance(value, dict)
        and "messages" not in value
        and not any(name in value for name in (*_STATES, "config", "thread_id"))
    )


class _Reader:
    """A thread is one trace, however many states of it are written; so are a graph's updates."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._updates: list[Json] = []
        self._told: dict[str, set[str]] = {}

    def read(self, value: Any) -> None:
        found = _messages_in(value)
        if not found:
            self._intake.unknown("no messages")
        elif _is_update(value):
            self._updates += found
        elif (thread := _thread_of(value)) is not None:
            self._tell_thread(thread, found)
        else:
            trace = self._intake.nameless(NAME)
            tell_messages(trace, found)
            trace.close()

    def end(self) -> None:
        if self._updates:
            trace = self._intake.nameless(NAME)
            tell_messages(trace, self._updates)
            trace.close()
            self._updates = []

    def _tell_thread(self, thread: str, messages: Sequence[Any]) -> None:
        trace = self._intake.trace(thread, NAME, thread=thread)
        told = self._told.setdefault(thread, set())
        for message in messages:
            own = str(plain(message).get("id") or plain(message))
            if own not in told:
                told.add(own)
                tell_messages(trace, [message])


IMPORTER = Importer(name=NAME, title="LangChain and LangGraph messages", fits=_fits, reader=_Reader)
