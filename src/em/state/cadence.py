"""Cadence: when a subject's checkpoint is due without being asked for."""

import threading
import time
from collections.abc import Callable

from em.errors import UsageError
from em.values.times import parse_duration


class Cadence:
    """Decides when a checkpoint is due: after a number of events, or a time."""

    def __init__(self, every: int | str | None) -> None:
        self._events, self._seconds = _every(every)
        self._last: dict[str, tuple[int, float]] = {}
        self._lock = threading.Lock()

    @property
    def is_set(self) -> bool:
        """Tell whether checkpoints are ever due."""
        return bool(self._events or self._seconds)

    def is_due(self, subject: str, pos: int, watermark: Callable[[str], int]) -> bool:
        """Tell whether a subject is due, whose stream now ends at `pos`."""
        with self._lock:
            if subject not in self._last:
                self._last[subject] = (watermark(subject), time.monotonic())
            last, at = self._last[subject]
        if self._events:
            return pos - last >= self._events
        return pos > last and time.monotonic() - at >= (self._seconds or 0)

    def done(self, subject: str, watermark: int) -> None:
        """Note that a subject was checkpointed."""
        with self._lock:
            self._last[subject] = (watermark, time.monotonic())


def _every(given: int | str | None) -> tuple[int | None, float | None]:
    if given is None:
        return None, None
    text = str(given).strip()
    if text.isdecimal() and len(text) < 10 and (events := int(text)):
        return events, None
    expected = "a number of events (500) or a duration (10m)"
    every = parse_duration(text, "checkpoint_every", expected=expected, error=UsageError)
    if not every:
        raise UsageError(f"checkpoint_every must be above zero, got {text!r}")
    return None, every.total_seconds()
