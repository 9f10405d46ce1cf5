"""How an exported script and its steps end."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from em.compiler.export.script.values import RoutineProblem


class CheckFailed(RoutineProblem):
    """A check or an assertion does not hold."""


class StepTimeout(Exception):
    """A call ran past its timeout. It may still be running: its effect is unknown."""


class Failed(Exception):
    """A step failed, and the run with it."""

    def __init__(self, step_id: str, error: Exception) -> None:
        self.step_id = step_id
        self.error_type = type(error).__name__
        self.message = str(error) or self.error_type
        place = f"step {step_id}: " if step_id else ""
        super().__init__(f"{place}{self.error_type}: {self.message}")


class NeedsInput(Exception):
    """A person must be asked, and nobody is there."""

    def __init__(
        self, step_id: str, message: str, fields: list[dict[str, Any]], problem: str = ""
    ) -> None:
        self.step_id, self.message, self.fields = step_id, message, fields
        why = f" ({problem})" if problem else ""
        super().__init__(f"step {step_id} waits for an answer: {message}{why}")


@contextmanager
def step(step_id: str) -> Iterator[None]:
    """What goes wrong inside is told with the step it went wrong in."""
    try:
        yield
    except (Failed, NeedsInput):
        raise
    except Exception as error:
        raise Failed(step_id, error) from error


def secret(name: str, variable: str) -> str:
    """A secret from the environment."""
    value = os.environ.get(variable)
    if not value:
        raise Failed("", RoutineProblem(f"the secret {name!r} is not set: set {variable}"))
    return value
