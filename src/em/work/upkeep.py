"""Upkeep: a worker compiles stored routines again when there are new traces, if configured."""

import time
from collections.abc import Callable

from em.errors import EmError
from em.memory import Memory
from em.runner.package import kept_routines
from em.settings import WorkSettings
from em.values.times import parse_duration


class Upkeep:
    """Grows the routines of a memory, one at a look, so that a worker can stop in between.

    Several workers may do so: the second finds nothing new.
    report: called with a line for people when a routine has learnt something.
    """

    def __init__(
        self, memory: Memory, settings: WorkSettings, report: Callable[[str], None]
    ) -> None:
        every = settings.compile_again
        self._every = (
            None if every is None else parse_duration(every, "work.compile_again").total_seconds()
        )
        self._memory = memory
        self._report = report
        self._due = 0.0
        self._seen = -1
        self._left: list[str] = []

    def look(self) -> bool:
        """Compile the next routine again if it is time. Return whether something is left to do."""
        if self._every is None:
            return False
        if not self._left and time.monotonic() >= self._due:
            self._due = time.monotonic() + self._every
            self._left = self._names()
        if self._left:
            self._grow(self._left.pop())
        return bool(self._left)

    def _names(self) -> list[str]:
        """Return the routines to look at; none while nothing was added to the log."""
        head = self._memory.log.head_seq()
        if head == self._seen:
            return []
        self._seen = head
        used = (one for one in kept_routines(self._memory.store) if one.retired_at is None)
        return sorted({one.name for one in used if one.body is not None})

    def _grow(self, name: str) -> None:
        try:
            grown = self._memory.compile_again(name, by_itself=True)
        except EmError as error:
            self._report(f"can't compile {name} again: {error}")
            return
        if grown.new:
            learnt = "; ".join(grown.changes)
            self._report(f"{grown.new} has learnt from {len(grown.added)} new traces: {learnt}")
        if grown.waits:
            self._report(
                f"{grown.new} is not in use: {grown.waits}; read it, then: em routine accept"
                f" {grown.new}"
            )
