"""Use: what a piece of code got from a memory. What the code makes is made of that.

Memory notes the events behind every answer that it gives to a tool or an agent while a step, a run
or a recording is under way. Whoever writes the result lists them in `from_events`.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar

uses_here: ContextVar["Uses | None"] = ContextVar("em_uses", default=None)
"""The uses of the code that runs here; None where nothing collects them."""


class Uses:
    """The events that were used, and not yet listed by what was made of them."""

    def __init__(self) -> None:
        self._events: dict[str, None] = {}
        self._around = uses_here.get()

    def note(self, event_ids: Iterable[str]) -> None:
        """Note the use of events, here and in whatever is around this."""
        events = dict.fromkeys(event_ids)
        self._events.update(events)
        if self._around is not None:
            self._around.note(events)

    def take(self) -> list[str]:
        """Return the events that were used since the last time."""
        taken, self._events = self._events, {}
        return list(taken)


class Collecting:
    """Collects what the code in a `with` block uses.

    A class is faster here than a generator, and every step makes one.
    """

    __slots__ = ("_token", "_uses")

    def __init__(self, uses: Uses) -> None:
        self._uses = uses

    def __enter__(self) -> Uses:
        self._token = uses_here.set(self._uses)
        return self._uses

    def __exit__(self, *_exc: object) -> None:
        with suppress(ValueError):  # it ended in another context than it began
            uses_here.reset(self._token)


def collecting(uses: Uses | None = None) -> Collecting:
    """Collect what the code inside uses, in its tasks and threads too."""
    return Collecting(Uses() if uses is None else uses)


def note_use(find_events: Callable[[], Iterable[str]]) -> None:
    """Note the use of the events that the function returns. It is called only if anyone cares."""
    here = uses_here.get()
    if here is not None:
        here.note(find_events())
