"""What is told of a run while it goes on: one report for each step."""

import time
from collections.abc import Callable

from em.runner.run import StepReport, StepStatus
from em.values.canonical import Json


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
