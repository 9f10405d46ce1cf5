"""WorkflowResult: what became of running a workflow."""

from collections.abc import Sequence
from typing import Any

import msgspec

from em.runner.run import Failure, PendingPrompt, Status, StepReport


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
