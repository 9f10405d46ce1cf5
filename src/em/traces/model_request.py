"""Calls that an agent's model asked for: recorded when their results are sent back to the model.

A tool that is decorated with `em.tool` records its calls itself, and knows more of them. So a call
that the model asked for is added only if no decorated tool was called for it. Where that can't be
told, the recording is marked incomplete: the same effect must not be in a trace twice.
"""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import msgspec

from em.traces.trace import Call, ToolCall, TraceEvent
from em.values.canonical import Json, identical


class Said(msgspec.Struct, frozen=True):
    """A text of a conversation, and who said it. speaker: their name, where they are several."""

    role: str
    text: str
    speaker: str = ""


class Called(msgspec.Struct, frozen=True):
    """A call that a model asked for."""

    id: str
    name: str
    args: Json


class Ended(msgspec.Struct, frozen=True):
    """How a call ended, as a conversation says it: by its result or its error.

    id: the call's; "" for the first one that waits for its result.
    text: what the conversation has, for where no call of this id is known.
    """

    id: str
    result: Any
    error: Any = None
    text: str = ""


class AskedCall(NamedTuple):
    """A call that the model asked for, and the number of events that were recorded before it."""

    call: Called
    since: int
    start: float


class _Recorder(Protocol):
    """What is needed of a `Recorder`."""

    @property
    def events(self) -> list[TraceEvent]:
        """What was recorded so far."""

    def add(self, event: TraceEvent) -> None:
        """Add an event."""

    def mark_incomplete(self, why: str) -> None:
        """Note that calls may be missing."""


class AskedCalls:
    """The calls that the model of one recording asked for, and what it was sent and said."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder
        self._lock = threading.Lock()
        self._open: dict[str, AskedCall] = {}
        # The places of recorded calls that were found to be calls which the model asked for.
        self._claimed: set[int] = set()
        self._said: Counter[Said] = Counter()

    def new_texts(self, texts: Sequence[Said]) -> list[Said]:
        """Return the texts that were not there before: chats repeat them all."""
        new: list[Said] = []
        with self._lock:
            now: Counter[Said] = Counter()
            for one in texts:
                now[one] += 1
                if now[one] > self._said[one]:
                    self._said[one] = now[one]
                    new.append(one)
        return new

    def answered(self, role: str, text: str) -> None:
        """Note a text of the model's answer; the next request repeats it."""
        with self._lock:
            self._said[Said(role, text)] += 1

    def ask(self, calls: Sequence[Called]) -> None:
        """Note calls that the model asked for."""
        since, start = len(self._recorder.events), time.perf_counter()
        with self._lock:
            for call in calls:
                self._open.setdefault(call.id, AskedCall(call, since, start))

    def end(self, results: Sequence[Ended]) -> None:
        """Record the calls whose results are sent to the model.

        Results of calls that were asked for before the recording are left out.
        """
        with self._lock:
            ended = [
                (asked, result)
                for result in results
                if (asked := self._open.pop(result.id, None)) is not None
            ]
            missing, others = self._without_recorded([asked for asked, _ in ended])
        if missing and others:
            self._recorder.mark_incomplete(
                f"the model asked for `{missing[0].call.name}`, and `{others[0]}` was recorded"
                " meanwhile: it can't be told whether one is part of the other. Decorate"
                f" `{missing[0].call.name}` with em.tool"
            )
            return
        for asked, result in ended:
            if asked in missing:
                self._record(_event(asked, result))

    def never_ended(self) -> str:
        """Return the name of a tool that the model asked for without getting a result, or ""."""
        with self._lock:
            missing, _ = self._without_recorded(list(self._open.values()), keep=True)
        return missing[0].call.name if missing else ""

    def _without_recorded(
        self, asked: Sequence[AskedCall], *, keep: bool = False
    ) -> tuple[list[AskedCall], list[str]]:
        """Return the calls that no decorated tool recorded, and names of recorded calls left over.

        keep: claim nothing.
        """
        if not asked:
            return [], []
        since = min(one.since for one in asked)
        free = {
            number: event
            for number, event in enumerate(self._recorder.events)
            if number >= since and number not in self._claimed and isinstance(event, Call)
        }
        missing: list[AskedCall] = []
        for one in asked:
            same = [
                n for n, event in free.items() if n >= one.since and _name(event) == one.call.name
            ]
            exact = [n for n in same if identical(free[n].args, one.call.args)]
            if not same:
                missing.append(one)
                continue
            taken = (exact or same)[0]
            del free[taken]
            if not keep:
                self._claimed.add(taken)
        return missing, [_name(event) for event in free.values()]

    def _record(self, event: ToolCall) -> None:
        """Add a call; it is one that the model asked for."""
        self._recorder.add(event)
        events = self._recorder.events
        places = range(len(events) - 1, -1, -1)
        with self._lock:
            self._claimed.add(next(place for place in places if events[place] is event))


def _name(event: Call) -> str:
    return event.tool if isinstance(event, ToolCall) else event.function


def _event(asked: AskedCall, ended: Ended) -> ToolCall:
    seconds = time.perf_counter() - asked.start
    return ToolCall(
        tool=asked.call.name,
        args=asked.call.args,
        result=ended.result,
        error=ended.error,
        id=asked.call.id,
        started_at=datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(),
        duration_ms=seconds * 1e3,
    )
