"""Course: one run of a behaviour's routine, which is told what its calls returned."""

from collections.abc import Mapping
from typing import Any

from em.runner.drivers import CallTool
from em.runner.machine import Machine
from em.runner.request import Bound
from em.runner.routine import Program
from em.runner.run import RunResult
from em.runner.tools import Tool
from em.values.canonical import Json


class Course:
    """A run of the runner's machine that stands at a call.

    args: the arguments of the call that it wants next. answered: how many calls it was told of.
    result: how the run ended; None while it goes on.
    """

    def __init__(self, program: Program, inputs: Json, tools: Mapping[str, Tool]) -> None:
        given = Bound(inputs=inputs, how="given")
        machine = Machine(program, run_id="", tools=tools, udfs={}, bound=given)
        self._running = machine.run(inputs)
        self.answered = -1
        self.args: Json = {}
        self.result: RunResult | None = None
        self.answer(None)

    def answer(self, result: Any) -> None:
        """Go on to the next call, now that this one returned a result."""
        self.answered += 1
        try:
            effect = self._running.send(result)
        except StopIteration as end:
            self.result = end.value
        else:
            assert isinstance(effect, CallTool)
            self.args = effect.args

    @property
    def is_over(self) -> bool:
        """Whether the routine has returned."""
        return self.result is not None and self.result.status == "ok"

    def why_stopped(self) -> tuple[str, str, str]:
        """Return the step at which the routine stopped, why, and what was looked at."""
        assert self.result is not None
        found = self.result.reason
        if found is not None:
            return found.step_id, found.message, found.check
        failed = self.result.failure
        assert failed is not None
        why = failed.message.removeprefix(f"step {failed.step_id}: ")
        return failed.step_id, why, str(failed.context.get("check", ""))
