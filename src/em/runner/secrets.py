"""The secrets of a run: its tools use them, and a marker replaces them wherever they are shown.

A secret is declared by the routine and comes from the caller or the environment, or it is the
answer to a secret field, or a variable that a declared tool uses, or what the input or a call has
under the name of a secret.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from em.errors import RoutineError, UsageError
from em.redaction.masker import Echoes, MarkerMoved, Masker, put_back, refuse_markers
from em.redaction.redactor import Redactor, marker
from em.runner.routine import PromptStep, Routine, Secret
from em.runner.run import Failure, PendingPrompt, Planned, Prepared, Reason, RunResult, StepReport
from em.settings import AllowSettings
from em.values.call import Fix, fix_problem
from em.values.canonical import Json

R = TypeVar("R", bound=RunResult)

Given = Mapping[str, str] | Callable[[str], str | None] | None
"""Secrets by name, or a function that returns them; else the environment has them."""


PREFIX = "EM_SECRET_"
"""Routines may read variables with this prefix; others must be allowed."""


@lru_cache(maxsize=1)
def _redactor() -> Redactor:
    return Redactor()


class Secrets:
    """The secrets of one run.

    folder: the routine's; without `allow`, em.yaml there says what is allowed.
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
        self._echoes = Echoes()
        self.values: dict[str, str] = {}
        ask = given if callable(given) else (given or {}).get
        for secret in declared:
            value = ask(secret.name) or self._variable(secret)
            if value and not isinstance(value, str):
                raise UsageError("a secret must be a text", place=f"secret {secret.name}")
            if value:
                self.values[secret.name] = value
                self.add(secret.name, value)

    def __bool__(self) -> bool:
        return bool(self._masker) or bool(self._echoes)

    def _variable(self, secret: Secret) -> str | None:
        return os.environ.get(secret.variable) if self._may_read(secret) else None

    def _may_read(self, secret: Secret) -> bool:
        """Whether the routine may read the variable: routines come from anyone."""
        if secret.variable.startswith(PREFIX):
            return True
        from em.runner.tools.permissions import settings_for

        allow = settings_for(self._folder or Path.cwd(), self._allow)
        return secret.variable in allow.env

    def add(self, name: str, value: Any) -> None:
        """Mask this value from now on, as the secret `name`."""
        if isinstance(value, str):
            self._masker.add(value, marker(name))

    def learn(self, value: Any) -> None:
        """Mask from now on what stands under the name of a secret in this value."""
        text = msgspec.json.encode(value, enc_hook=repr)
        if _redactor().suspects([text]):
            plain = msgspec.json.decode(text)
            self._echoes.learn(plain, _redactor().value(plain))

    def check(self) -> None:
        """Raise an error if a declared secret is missing."""
        if lacking := self.unreadable:
            from em.runner.tools.permissions import all_refused

            raise all_refused(AllowSettings(env=lacking))
        for secret in self._declared:
            if secret.name not in self.values:
                raise RoutineError(
                    f"the secret {secret.name!r} is not set",
                    place=f"secret {secret.name}",
                    fix=f"set the environment variable {secret.variable}",
                )

    @property
    def unreadable(self) -> list[str]:
        """The variables of secrets without a value that the routine may not read."""
        left = [one for one in self._declared if one.name not in self.values]
        return [one.variable for one in left if not self._may_read(one)]

    def masked(self, value: Any) -> Any:
        """Return a value with a marker in the place of every secret."""
        return self._echoes.mask(self._masker.mask(value))

    def _values(self, value: Json, but: Sequence[str] = ()) -> Json:
        """Mask the values of an object, except under the names in `but`."""
        return {name: item if name in but else self.masked(item) for name, item in value.items()}

    def telling(self, tell: Callable[[StepReport], None] | None) -> Any:
        """Wrap a callback so that it gets masked step reports."""
        if tell is None:
            return None
        return lambda report: tell(self._report(report))

    def questioning(self, ask: Callable[[PendingPrompt], Json | None] | None) -> Any:
        """Wrap a callback so that it gets masked questions."""
        if ask is None:
            return None
        return lambda prompt: ask(self._prompt(prompt) if self else prompt)

    def asking(self, ask: Callable[[Json], Any] | None) -> Any:
        """Wrap a function that asks for fixes: it sees markers in the place of secrets."""
        if ask is None:
            return None

        def masked(context: Json) -> Fix:
            if not self:
                fix: Fix = ask(context)
                return fix
            shown = self._values(context)
            fix = ask(shown)
            if fix_problem(fix):
                return fix  # the run reports it
            try:
                if fix.strategy == "modify_args":
                    args = put_back(fix.args, shown["args"], context["args"])
                    return msgspec.structs.replace(fix, args=args)
                refuse_markers(fix.default)
            except MarkerMoved as moved:
                return Fix(strategy="fail", reason=f"the fix was refused: {moved}")
            return fix

        return masked

    def result(self, result: R) -> R:
        """Mask a result except its output, which the caller asked for."""
        if not self:
            return result
        planned: Json = {}
        if isinstance(result, Prepared):
            shown = self.masked(msgspec.to_builtins(result.planned, enc_hook=repr))
            planned["planned"] = msgspec.convert(shown, list[Planned])
        return msgspec.structs.replace(
            result,
            failure=result.failure and self._failure(result.failure),
            pending_prompt=result.pending_prompt and self._prompt(result.pending_prompt),
            reason=result.reason and self._reason(result.reason),
            steps=[self._report(report) for report in result.steps],
            context=self._values(result.context),
            **planned,
        )

    def _report(self, report: StepReport) -> StepReport:
        if not self:
            return report
        fix = report.fix and self._values(report.fix, but=["strategy"])
        return msgspec.structs.replace(report, error=self.masked(report.error), fix=fix)

    def _failure(self, failure: Failure) -> Failure:
        context = self._values(msgspec.to_builtins(failure.context, enc_hook=repr))
        return msgspec.structs.replace(
            failure, message=self.masked(failure.message), context=context
        )

    def _reason(self, reason: Reason) -> Reason:
        return msgspec.structs.replace(
            reason,
            check=self.masked(reason.check),
            message=self.masked(reason.message),
            recorded=self.masked(reason.recorded),
            now=self.masked(reason.now),
            also=tuple(map(self._reason, reason.also)),
        )

    def _prompt(self, prompt: PendingPrompt) -> PendingPrompt:
        fields = []
        for field in prompt.fields:
            shown = self._values(field, but=["name", "type", "required"])
            if shown.get("default") != field.get("default"):
                del shown["default"]  # a marker must not become the answer; the run has the default
            fields.append(shown)
        return msgspec.structs.replace(prompt, message=self.masked(prompt.message), fields=fields)


def secret_fields(routine: Routine) -> dict[str, frozenset[str]]:
    """Return the names of the secret fields of each prompt that has some."""
    found = {
        step.id: frozenset(field.name for field in step.prompt.fields if field.type == "secret")
        for step in routine.steps
        if isinstance(step, PromptStep)
    }
    return {step_id: names for step_id, names in found.items() if names}


def without_secrets(routine: Routine, answers: Mapping[str, Json]) -> dict[str, Json]:
    """Return answers without those to secret fields, to store them.

    For prompts with a secret field, unknown names are left out too: a mistyped name may have a
    secret.
    """
    secret = secret_fields(routine)
    asked = {
        step.id: {field.name for field in step.prompt.fields}
        for step in routine.steps
        if isinstance(step, PromptStep)
    }
    steps = {step.id for step in routine.all_steps}
    kept: dict[str, Json] = {}
    for step_id, answer in answers.items():
        if step_id in secret and isinstance(answer, Mapping):
            known = asked[step_id] - secret[step_id]
            kept[step_id] = {name: value for name, value in answer.items() if name in known}
        elif not secret or step_id in steps or step_id.endswith("?"):
            kept[step_id] = answer
    return kept
