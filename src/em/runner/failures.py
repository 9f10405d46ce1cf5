"""How a run ends before its last step: it failed, or it waits for a person."""

from collections.abc import Callable
from typing import Any

import msgspec

from em.errors import EmError, RoutineError
from em.runner.run import Failure, PendingPrompt
from em.values.canonical import Json


class CheckFailed(RoutineError):
    """A check or an assertion of a routine does not hold."""

    code = "check_failed"


class StepTimeout(Exception):
    """A call ran past its timeout. It may still be running: its effect is unknown."""


class Mismatch(RoutineError):
    """What a resumed run finds is not what it began with: it is raised, and nothing written."""

    code = "resumed_differently"


class Pause(Exception):
    """The run waits for a person; `in_flight` if all it wants is what became of a call."""

    def __init__(self, prompt: PendingPrompt, *, in_flight: bool = False) -> None:
        self.prompt = prompt
        self.in_flight = in_flight


class Failed(Exception):
    """The run ends here."""

    def __init__(self, failure: Failure) -> None:
        self.failure = failure


def failure_of(step_id: str, error: Exception, context: Json) -> Failure:
    """An error as the result of a run tells it."""
    message = str(error) or type(error).__name__
    return Failure(
        step_id=step_id, error_type=type(error).__name__, message=message, context=context
    )


def quietly(evaluate: Callable[[Json], Any], scope: Json) -> Any:
    """The arguments of a call that failed; where they are what failed, nothing."""
    try:
        return evaluate(scope)
    except EmError:
        return {}


def plain(value: Any) -> Any:
    """A value as JSON can hold it, for a report."""
    try:
        return msgspec.to_builtins(value)
    except TypeError:
        return repr(value)
