"""Loop: an agent that is run again and again toward a goal, as the log keeps it."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from em.traces.trace import Outcome

LoopStatus = Literal["success", "limit", "interrupted"]


class LoopStarted(msgspec.Struct, frozen=True):
    """Body of an event: a loop begins."""

    goal: str
    agent: str
    until: str = ""
    max_iterations: int = 5


class IterationStarted(msgspec.Struct, frozen=True):
    """Body of an event: the agent is started, with these lessons."""

    number: int
    briefing: str = ""
    heuristics: Sequence[str] = ()


class IterationDone(msgspec.Struct, frozen=True, kw_only=True):
    """Body of an event: an iteration is over. `learned` are ids of heuristics."""

    number: int
    outcome: Outcome
    exit_code: int | None = None
    seconds: float = 0.0
    trace: str = ""
    learned: Sequence[str] = ()
    problem: str = ""


class LoopEnded(msgspec.Struct, frozen=True):
    """Body of an event: a loop is over."""

    status: LoopStatus


class LoopResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a loop. One that was interrupted goes on when it is started again."""

    id: str
    status: LoopStatus
    iterations: Sequence[IterationDone]
    resumed: bool = False
