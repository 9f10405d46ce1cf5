"""RunResult: what became of running a routine."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from em.log.kinds import event_body
from em.values.canonical import Json

Status = Literal["ok", "failed", "needs_input"]
StepStatus = Literal["done", "skipped", "failed", "defaulted"]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run failed: the step, the error, and what it was called with."""

    step_id: str
    error_type: str
    message: str
    context: Json = {}


class PendingPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a run waits for. `problem`: what is wrong with the answer that was given."""

    step_id: str
    message: str
    fields: Sequence[Json] = ()
    problem: str = ""


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one step. `error` and `fix` of a step that is done: what mended it."""

    id: str
    status: StepStatus
    attempts: int = 0
    duration_ms: float = 0.0
    error: str = ""
    fix: Json | None = None


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """`output` belongs to ok, `failure` to failed, `pending_prompt` to needs_input."""

    run_id: str
    status: Status
    output: Any = None
    failure: Failure | None = None
    pending_prompt: PendingPrompt | None = None
    context: Json = {}
    steps: Sequence[StepReport] = ()


@event_body("run_started")
class RunStarted(msgspec.Struct, frozen=True):
    """A routine begins to run: the one in a folder, or one that is stored as `name@version`."""

    routine: str
    hash: str
    input: Json
    folder: str = ""
    stored: str = ""
    resume_with: str = ""


@event_body("step_started")
class StepStarted(msgspec.Struct, frozen=True):
    """A step with an effect is about to run."""

    step: str
    tool: str = ""
    item: int | None = None
    item_hash: str = ""
    args: Any = None
    key: Any = None


@event_body("step_done")
class StepDone(msgspec.Struct, frozen=True):
    """A step is over: done, or gone on from with a default; `next` is about to run."""

    step: str
    item: int | None = None
    item_hash: str = ""
    result: Any = None
    status: str = "done"
    attempts: int = 1
    duration_ms: float = 0.0
    error: str = ""
    fix: Json | None = None
    next: StepStarted | None = None
    from_events: list[str] = []


@event_body("run_paused")
class RunPaused(msgspec.Struct, frozen=True):
    """A run waits for a person."""

    prompt: Json


@event_body("run_answered")
class RunAnswered(msgspec.Struct, frozen=True):
    """A person answered."""

    answers: dict[str, Json]


@event_body("run_ended")
class RunEnded(msgspec.Struct, frozen=True):
    """A run is over."""

    status: str
    output: Any = None
    failure: Json | None = None


class Reports:
    """The reports of a run; each is passed on as it is made."""

    __slots__ = ("_on_step", "made")

    def __init__(self, on_step: Callable[[StepReport], None] | None) -> None:
        self._on_step = on_step
        self.made: list[StepReport] = []

    def add(
        self,
        step_id: str,
        status: StepStatus,
        attempts: int,
        start: float,
        error: str = "",
        fix: Json | None = None,
    ) -> None:
        """Tell what became of a step that began at `start`."""
        duration = (time.perf_counter() - start) * 1e3
        report = StepReport(
            id=step_id,
            status=status,
            attempts=attempts,
            duration_ms=duration,
            error=error,
            fix=fix,
        )
        self.made.append(report)
        if self._on_step is not None:
            self._on_step(report)
