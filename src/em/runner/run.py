"""RunResult: what became of running a routine."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

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
