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
from typing import Any, Protocol

import msgspec

from em.traces.trace import Call, ToolCall, TraceEvent
from em.values.canonical import Json, identical


class AskedCall(msgspec.Struct, frozen=True):
    """A call that the model asked for, and the number of events that were recorded before it."""

    id: str
    name: str
    args: Json
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
        self._said: Counter[tuple[str, str]] = Counter()

    def new_texts(self, texts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the texts (role and text) that were not there before: chats repeat them all."""
        new: list[tuple[str, str]] = []
        with self._lock:
            now: Counter[tuple[str, str]] = Counter()
            for one in texts:
                now[one] += 1
                if now[one] > self._said[one]:
                    self._said[one] = now[one]
                    new.append(one)
        return new

    def answered(self, role: str, text: str) -> None:
        """Note a text of the model's answer; the next request repeats it."""
        with self._lock:
            self._said[role, text] += 1

    def ask(self, calls: Sequence[tuple[str, str, Json]]) -> None:
        """Note calls that the model asked for: their ids, names and arguments."""
        since, start = len(self._recorder.events), time.perf_counter()
        with self._lock:
            for call_id, name, args in calls:
                self._open.setdefault(call_id, AskedCall(call_id, name, args, since, start))

    def end(self, results: Sequence[tuple[str, Any, Any]]) -> None:
        """Record the calls whose results (id, result, error) are sent to the model.

        Results of calls that were asked for before the recording are left out.
        """
        with self._lock:
            ended = [
                (asked, result, error)
                for call_id, result, error in results
                if (asked := self._open.pop(call_id, None)) is not None
            ]
            missing, others = self._without_recorded([asked for asked, _, _ in ended])
        if missing and others:
            self._recorder.mark_incomplete(
                f"the model asked for `{missing[0].name}`, and `{others[0]}` was recorded"
                " meanwhile: it can't be told whether one is part of the other. Decorate"
                f" `{missing[0].name}` with em.tool"
            )
            return
        for asked, result, error in ended:
            if asked in missing:
                self._record(_event(asked, result, error))

    def never_ended(self) -> str:
        """Return the name of a tool that the model asked for without getting a result, or ""."""
        with self._lock:
            missing, _ = self._without_recorded(list(self._open.values()), keep=True)
        return missing[0].name if missing else ""

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
            same = [n for n, event in free.items() if n >= one.since and _name(event) == one.name]
            exact = [n for n in same if identical(free[n].args, one.args)]
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


def _event(asked: AskedCall, result: Any, error: Any) -> ToolCall:
    seconds = time.perf_counter() - asked.start
    return ToolCall(
        tool=asked.name,
        args=asked.args,
        result=result,
        error=error,
        id=asked.id,
        started_at=datetime.fromtimestamp(time.time() - seconds, UTC).isoformat(),
        duration_ms=seconds * 1e3,
    )
