"""Result of an engine's call, and the progress that an agent is given when it takes over."""

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
