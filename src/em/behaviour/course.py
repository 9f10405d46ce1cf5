"""Course: one run of a behaviour, which is told what its calls returned."""

from typing import Any

from em.behaviour.behaviour import Behaviour, Taught
from em.runner.drivers import CallTool
from em.runner.machine import Machine
from em.runner.request import Bound
from em.runner.run import RunResult
from em.values.canonical import Json


class Tape:
    """A recording that is followed while every call returns what it returned then.

    args: the arguments of the call that it wants next. answered: how many calls it was told of.
    """

    is_over, is_stopped = True, False

    def __init__(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        self.answered = 0
        self.output = behaviour.answer.value

    @property
    def args(self) -> Json:
        """The arguments of the next call."""
        return self._behaviour.steps[self.answered].args

    def answer(self, _result: Any) -> None:
        """Go on to the next call."""
        self.answered += 1

    def why_stopped(self) -> tuple[str, str, str]:
        """Return why it stopped: it never does by itself."""
        raise NotImplementedError


class Course:
    """A run of a routine on the runner's machine that stands at a call, as a `Tape` does.

    result: how the run ended; None while it goes on.
    """

    def __init__(self, taught: Taught, inputs: Json) -> None:
        given = Bound(inputs=inputs, how="given")
        machine = Machine(taught.program, run_id="", tools=taught.tools, udfs={}, bound=given)
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
    def is_stopped(self) -> bool:
        """Whether it wants no further call."""
        return self.result is not None

    @property
    def is_over(self) -> bool:
        """Whether the routine has returned."""
        return self.result is not None and self.result.status == "ok"

    @property
    def output(self) -> Any:
        """What the routine returned."""
        return None if self.result is None else self.result.output

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
