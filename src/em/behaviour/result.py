"""Result of an engine's call, and the progress that an agent is given when it takes over."""

import threading
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from em.errors import EmError
from em.values.canonical import Json

How = Literal["hit", "miss", "handed_over"]


class Done(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call that was made, by a replay or by the agent."""

    tool: str
    args: Json
    result: Any = None
    error: str | None = None
    replayed: bool = False


class Saved(msgspec.Struct, frozen=True):
    """What a hit saved: the agent's time minus the replay's; tokens and cost if reported."""

    seconds: float = 0.0
    tokens: int | None = None
    cost_usd: float | None = None


class Result(msgspec.Struct, eq=False):
    """The outcome of one call of an engine; true if it was a hit.

    value: the agent's answer; on a hit it is made from this run's results.
    steps: the calls that were made, in order.
    reason: why it was not a hit, in words.
    saved: what the hit saved.
    behaviour: the id of the behaviour that was replayed or stored.
    problem: why the run was not stored. The value is valid all the same.
    """

    how: How
    value: Any
    steps: Sequence[Done] = ()
    reason: str = ""
    saved: Saved = Saved()
    behaviour: str | None = None
    stored: bool = False
    problem: EmError | None = None

    @property
    def hit(self) -> bool:
        """Whether a behaviour did the whole task, without the agent."""
        return self.how == "hit"

    def __bool__(self) -> bool:
        return self.how == "hit"

    if TYPE_CHECKING:
        # An engine of an async agent returns a coroutine of this. Its call has one type for both,
        # so that `await engine(…)` is checked too; a result itself is nothing to wait for.
        def __await__(self) -> Generator[Any, Any, "Result"]: ...

    def __repr__(self) -> str:
        why = f", reason={self.reason!r}" if self.reason else ""
        return f"<Result {self.how}, {len(self.steps)} steps, value={self.value!r}{why}>"


class Progress(msgspec.Struct, eq=False):
    """What was done before the agent took over; false if nothing was.

    done: the calls that were made, with their results.
    reason: why the replay ended, or why there was none.
    failed: the call that raised, if one did.
    heuristics: lessons from memory for this task.
    is_unknown: the failed call may have had its effect; making it again raises `OutcomeUnknown`.
    """

    done: Sequence[Done] = ()
    reason: str = ""
    failed: Done | None = None
    heuristics: Sequence[Any] = ()
    is_unknown: bool = False

    def did_not_happen(self) -> None:
        """Say that the failed call had no effect, after a look: it may be made again."""
        self.is_unknown = False

    def __bool__(self) -> bool:
        return bool(self.done) or self.failed is not None

    def __str__(self) -> str:
        """Return the progress as text for a prompt."""
        lines = []
        if self.done:
            lines.append("Already done; do not repeat:")
            lines += [f"{n}. {_call(step)}" for n, step in enumerate(self.done, 1)]
        if self.failed is not None:
            known = "May have been made, look before you repeat it" if self.is_unknown else "Failed"
            lines.append(f"{known}: {_call(self.failed)}")
        if self.reason and lines:
            lines.append(f"Then you took over, because {self.reason}.")
        if self.heuristics:
            lines.append("Lessons:")
            lines += [f"- {lesson}" for lesson in self.heuristics]
        return "\n".join(lines)


def _call(step: Done) -> str:
    args = ", ".join(f"{name}={short(value)}" for name, value in step.args.items())
    if step.error is not None:
        return f"{step.tool}({args}) raised {step.error}"
    return f"{step.tool}({args}) returned {short(step.result)}"


def short(value: Any) -> str:
    """Return a value as short JSON text."""
    text = msgspec.json.encode(value, enc_hook=repr).decode()
    return text if len(text) <= 200 else text[:199] + "…"


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
