"""Secrets of a run: used while it goes on, a marker in their place wherever they are told.

Some are declared by the routine and taken from the caller or the environment; some are answers to
secret fields, or variables that a declared tool uses.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from em.errors import RoutineError, UsageError
from em.redaction.masker import MarkerMoved, Masker, put_back, refuse_markers
from em.redaction.redactor import marker
from em.runner.routine import PromptStep, Routine, Secret
from em.runner.run import Failure, PendingPrompt, RunResult, StepReport
from em.settings import AllowSettings
from em.values.call import Fix
from em.values.canonical import Json

Given = Mapping[str, str] | Callable[[str], str | None] | None
"""Where secrets come from, by name; the environment where this does not have one."""


PREFIX = "EM_SECRET_"
"""Variables that begin so are meant for routines; any other one must be allowed."""


class Secrets:
    """The secrets of one run.

    `folder` is the routine's: where nothing is said to be allowed, what em.yaml allows is.
    """

    def __init__(
        self,
        declared: Sequence[Secret] = (),
        given: Given = None,
        allow: AllowSettings | None = None,
        folder: Path | None = None,
    ) -> None:
        self._declared = declared
        self._allow, self._folder = allow, folder
        self._masker = Masker()
        self.values: dict[str, str] = {}
        ask = given if callable(given) else (given or {}).get
        for secret in declared:
            value = ask(secret.name) or self._variable(secret)
            if value and not isinstance(value, str):
                raise UsageError("a secret is a text", place=f"secret {secret.name}")
            if value:
                self.values[secret.name] = value
                self.add(secret.name, value)

    def __bool__(self) -> bool:
        return bool(self._masker)

    def _variable(self, secret: Secret) -> str | None:
        return os.environ.get(secret.variable) if self._may_read(secret) else None

    def _may_read(self, secret: Secret) -> bool:
        """A routine is data that anyone may have sent: it can't name just any variable."""
        if secret.variable.startswith(PREFIX):
            return True
        from em.runner.tools.permissions import settings_for

        allow = settings_for(self._folder or Path.cwd(), self._allow)
        return secret.variable in allow.env

    def add(self, name: str, value: Any) -> None:
        """Mask this value from now on, as the secret `name`."""
        if isinstance(value, str):
            self._masker.add(value, marker(name))

    def check(self) -> None:
        """None of those that the routine declares may be missing."""
        for secret in self._declared:
            if secret.name in self.values:
                continue
            if not self._may_read(secret):
                from em.runner.tools.permissions import refused

                error = refused("variable", secret.variable, "env")
                error.place = f"secret {secret.name}"
                raise error
            raise RoutineError(
                f"the secret {secret.name!r} is not set",
                place=f"secret {secret.name}",
                fix=f"set the environment variable {secret.variable}",
            )

    def masked(self, value: Any) -> Any:
        """Return a value with a marker in the place of every secret."""
        return self._masker.mask(value)

    def _values(self, value: Json, but: Sequence[str] = ()) -> Json:
        """A value of em's own: its names, and what stands under some, are no content."""
        return {name: item if name in but else self.masked(item) for name, item in value.items()}

    def telling(self, tell: Callable[[StepReport], None] | None) -> Any:
        """Tell what became of a step, masked."""
        if tell is None:
            return None
        return lambda report: tell(self._report(report))

    def asking(self, ask: Callable[[Json], Any] | None) -> Any:
        """Ask for a fix without showing secrets; each goes back to where it was, and only there."""
        if ask is None:
            return None

        def masked(context: Json) -> Fix:
            if not self._masker:
                fix: Fix = ask(context)
                return fix
            shown = self._values(context)
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
        if not self._masker:
            return result
        return msgspec.structs.replace(
            result,
            failure=result.failure and self._failure(result.failure),
            pending_prompt=result.pending_prompt and self._prompt(result.pending_prompt),
            steps=[self._report(report) for report in result.steps],
            context=self._values(result.context),
        )

    def _report(self, report: StepReport) -> StepReport:
        if not self._masker:
            return report
        fix = report.fix and self._values(report.fix, but=["strategy"])
        return msgspec.structs.replace(report, error=self.masked(report.error), fix=fix)

    def _failure(self, failure: Failure) -> Failure:
        context = self._values(msgspec.to_builtins(failure.context, enc_hook=repr))
        return msgspec.structs.replace(
            failure, message=self.masked(failure.message), context=context
        )

    def _prompt(self, prompt: PendingPrompt) -> PendingPrompt:
        fields = []
        for field in prompt.fields:
            shown = self._values(field, but=["name", "type", "required"])
            if shown.get("default") != field.get("default"):
                del shown["default"]  # a marker is no answer; the run itself knows the default
            fields.append(shown)
        return msgspec.structs.replace(prompt, message=self.masked(prompt.message), fields=fields)


def secret_fields(routine: Routine) -> dict[str, frozenset[str]]:
    """For each prompt that asks for a secret, the names of those fields."""
    found = {
        step.id: frozenset(field.name for field in step.prompt.fields if field.type == "secret")
        for step in routine.steps
        if isinstance(step, PromptStep)
    }
    return {step_id: names for step_id, names in found.items() if names}


def without_secrets(routine: Routine, answers: Mapping[str, Json]) -> dict[str, Json]:
    """Answers as they may be written: those to secret fields are left out.

    So is what such a prompt does not ask for: it may be a secret under a mistyped name.
    """
    secret = secret_fields(routine)
    asked = {
        step.id: {field.name for field in step.prompt.fields}
        for step in routine.steps
        if isinstance(step, PromptStep)
    }
    steps = {step.id for step in routine.steps}
    kept: dict[str, Json] = {}
    for step_id, answer in answers.items():
        if step_id in secret and isinstance(answer, Mapping):
            known = asked[step_id] - secret[step_id]
            kept[step_id] = {name: value for name, value in answer.items() if name in known}
        elif not secret or step_id in steps or step_id.endswith("?"):
            kept[step_id] = answer
    return kept
