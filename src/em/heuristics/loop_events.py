"""Loop: an agent that is run again and again toward a goal, as the log keeps it."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from em.log.kinds import event_body
from em.traces.trace import Outcome

LoopStatus = Literal["success", "limit", "interrupted"]


@event_body("loop_started")
class LoopStarted(msgspec.Struct, frozen=True):
    """Body of an event: a loop begins."""

    goal: str
    agent: str
    until: str = ""
    max_iterations: int = 5


@event_body("loop_iteration_started")
class IterationStarted(msgspec.Struct, frozen=True):
    """Body of an event: the agent is started, with these lessons."""

    number: int
    briefing: str = ""
    heuristics: Sequence[str] = ()


@event_body("loop_iteration")
class IterationDone(msgspec.Struct, frozen=True, kw_only=True):
    """Body of an event: an iteration is over. `learned` are ids of heuristics."""

    number: int
    outcome: Outcome
    exit_code: int | None = None
    seconds: float = 0.0
    trace: str = ""
    learned: Sequence[str] = ()
    problem: str = ""


@event_body("loop_ended")
class LoopEnded(msgspec.Struct, frozen=True):
    """Body of an event: a loop is over."""

    status: LoopStatus


class LoopResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a loop. One that was interrupted goes on when it is started again."""

    id: str
    status: LoopStatus
    iterations: Sequence[IterationDone]
    resumed: bool = False
