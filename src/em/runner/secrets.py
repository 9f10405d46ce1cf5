"""Secrets of a run: used while it goes on, a marker in their place wherever they are told.

Some are declared by the routine and taken from the caller or the environment; some are answers to
secret fields, or variables that a declared tool uses.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from em.errors import RoutineError, UsageError
from em.models.canonical import Json
from em.models.fix import Fix
from em.models.routine import PromptStep, Routine, Secret
from em.models.run import Failure, RunResult, StepReport
from em.redaction.put_back import MarkerMoved, put_back, refuse_markers
from em.redaction.redactor import marker

SHORTEST_INSIDE = 3
"""From this length on a secret is also found inside other texts."""

Given = Mapping[str, str] | Callable[[str], str | None] | None
"""Where secrets come from, by name; the environment where this does not have one."""


class Secrets:
    """The secrets of one run."""

    def __init__(self, declared: Sequence[Secret] = (), given: Given = None) -> None:
        self._declared = declared
        self._marks: dict[str, str] = {}
        self._inside: list[tuple[str, str]] = []
        self.values: dict[str, str] = {}
        ask = given if callable(given) else (given or {}).get
        for secret in declared:
            value = ask(secret.name) or os.environ.get(secret.variable)
            if value and not isinstance(value, str):
                raise UsageError("a secret is a text", place=f"secret {secret.name}")
            if value:
                self.values[secret.name] = value
                self.add(secret.name, value)

    def __bool__(self) -> bool:
        return bool(self._marks)

    def add(self, name: str, value: Any) -> None:
        """From now on this text is taken out of whatever is told."""
        if isinstance(value, str) and value:
            self._marks[value] = marker(name)
            # The longest first: one may stand in another.
            self._inside = sorted(
                (pair for pair in self._marks.items() if len(pair[0]) >= SHORTEST_INSIDE),
                key=lambda pair: -len(pair[0]),
            )

    def check(self) -> None:
        """None of those that the routine declares may be missing."""
        for secret in self._declared:
            if secret.name not in self.values:
                raise RoutineError(
                    f"the secret {secret.name!r} is not set",
                    place=f"secret {secret.name}",
                    fix=f"set the environment variable {secret.variable}",
                )

    def masked(self, value: Any) -> Any:
        """A value with a marker in the place of every secret."""
        if not self._marks:
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, dict):
            return {self.masked(key): self.masked(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.masked(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        if text in self._marks:
            return self._marks[text]
        for secret, mark in self._inside:
            if secret in text:
                text = text.replace(secret, mark)
        return text

    def telling(self, tell: Callable[[StepReport], None] | None) -> Any:
        """Tell what became of a step, masked."""
        if tell is None:
            return None
        return lambda report: tell(self._masked_as(report, StepReport))

    def asking(self, ask: Callable[[Json], Any] | None) -> Any:
        """Ask for a fix without showing secrets; each goes back to where it was, and only there."""
        if ask is None:
            return None

        def masked(context: Json) -> Fix:
            if not self._marks:
                fix: Fix = ask(context)
                return fix
            shown = self.masked(context)
            fix = ask(shown)
            try:
                if fix.strategy == "modify_args":
                    args = put_back(fix.args, shown["args"], context["args"])
                    return msgspec.structs.replace(fix, args=args)
                refuse_markers(fix.default)
            except MarkerMoved as moved:
                return Fix(strategy="fail", reason=f"the fix was refused: {moved}")
            return fix

        return masked

    def result(self, result: RunResult) -> RunResult:
        """A result that holds no secret but in its output, which is what the caller asked for."""
        if not self._marks:
            return result
        failure = result.failure and self._masked_as(result.failure, Failure)
        steps = [self._masked_as(report, StepReport) for report in result.steps]
        context = self.masked(result.context)
        return msgspec.structs.replace(result, failure=failure, steps=steps, context=context)

    def _masked_as(self, value: Any, kind: type[Any]) -> Any:
        if not self._marks:
            return value
        return msgspec.convert(self.masked(msgspec.to_builtins(value)), kind)


def secret_fields(routine: Routine) -> dict[str, frozenset[str]]:
    """For each prompt that asks for a secret, the names of those fields."""
    found = {
        step.id: frozenset(field.name for field in step.prompt.fields if field.type == "secret")
        for step in routine.steps
        if isinstance(step, PromptStep)
    }
    return {step_id: names for step_id, names in found.items() if names}


def without_secrets(routine: Routine, answers: Mapping[str, Json]) -> dict[str, Json]:
    """Answers as they may be written: those to secret fields are left out."""
    secret = secret_fields(routine)
    return {
        step_id: {
            name: value
            for name, value in answer.items()
            if name not in secret.get(step_id, frozenset())
        }
        if step_id in secret
        else answer
        for step_id, answer in answers.items()
    }
