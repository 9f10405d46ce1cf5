"""Metrics of an engine: what its calls in this process came to, counted as they end."""

import threading

import msgspec

from em.behaviour.result import Result


class Counted(msgspec.Struct, frozen=True):
    """A copy of the counts at one moment."""

    calls: int = 0
    hits: int = 0
    misses: int = 0
    hand_overs: int = 0
    hit_seconds: float = 0.0
    agent_seconds: float = 0.0
    saved_seconds: float = 0.0
    saved_tokens: int = 0
    saved_cost_usd: float = 0.0


class Metrics:
    """Counts of the calls of one `Engine` object; `engine.stats()` has those of the whole store.

    hit_seconds: how long the hits took. agent_seconds: how long the other calls took.

    `engine.metrics.hits`, `engine.metrics.hit_rate` and the like read them, `reset()` begins anew.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = Counted()

    def count(self, result: Result, seconds: float) -> None:
        """Add one call."""
        with self._lock:
            was, saved = self._now, result.saved
            self._now = Counted(
                calls=was.calls + 1,
                hits=was.hits + (result.how == "hit"),
                misses=was.misses + (result.how == "miss"),
                hand_overs=was.hand_overs + (result.how == "handed_over"),
                hit_seconds=was.hit_seconds + (seconds if result.hit else 0.0),
                agent_seconds=was.agent_seconds + (0.0 if result.hit else seconds),
                saved_seconds=was.saved_seconds + saved.seconds,
                saved_tokens=was.saved_tokens + (saved.tokens or 0),
                saved_cost_usd=was.saved_cost_usd + (saved.cost_usd or 0.0),
            )

    def read(self) -> Counted:
        """Return all counts, of one moment."""
        return self._now

    def reset(self) -> None:
        """Begin to count from zero."""
        with self._lock:
            self._now = Counted()

    @property
    def hit_rate(self) -> float:
        """The share of the calls that were hits; 0 before the first call."""
        now = self._now
        return now.hits / now.calls if now.calls else 0.0

    @property
    def calls(self) -> int:
        """How many calls have ended."""
        return self._now.calls

    @property
    def hits(self) -> int:
        """Calls that a behaviour did alone."""
        return self._now.hits

    @property
    def misses(self) -> int:
        """Calls that the agent did alone."""
        return self._now.misses

    @property
    def hand_overs(self) -> int:
        """Calls that a behaviour began and the agent ended."""
        return self._now.hand_overs

    def __repr__(self) -> str:
        now = self._now
        return f"<Metrics {now.hits} hits, {now.misses} misses, {now.hand_overs} hand-overs>"
