"""WorkflowResult: what became of running a workflow."""

from collections.abc import Sequence
from typing import Any

import msgspec

from em.log.kinds import event_body
from em.runner.run import Failure, PendingPrompt, Status, StepReport
from em.values.canonical import Json


class WorkflowResult(msgspec.Struct, frozen=True, kw_only=True):
    """`output` (the last step's) belongs to ok, `failure` to failed, `pending_prompt` to waiting.

    `status` is `running` where the journal of a run was looked at that did not end.
    """

    run_id: str
    workflow: str
    status: Status | str
    output: Any = None
    failure: Failure | None = None
    pending_prompt: PendingPrompt | None = None
    steps: Sequence[StepReport] = ()
    outputs: dict[str, Any] = {}
    warnings: Sequence[str] = ()


@event_body("workflow_started")
class WorkflowStarted(msgspec.Struct, frozen=True):
    """A workflow begins to run: all of it, so that the run goes on whatever becomes of its file.

    `definition` is its JSON as one text: it is written with every run, and looked into by few.
    """

    workflow: str
    hash: str
    definition: str
    input: Json
    prompt: str | None = None
    resume_with: str = ""
    from_events: list[str] = []


@event_body("workflow_cleaned")
class WorkflowCleaned(msgspec.Struct, frozen=True):
    """Old workflow runs were erased: which, and why."""

    runs: list[str]
    events: int
    bytes: int = 0
    reason: str = ""
