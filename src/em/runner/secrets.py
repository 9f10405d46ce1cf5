"""Secrets of a routine: taken from the environment or a caller, masked in all that is written."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from em.errors import RoutineError, UsageError
from em.models.canonical import Json
from em.models.routine import Secret
from em.models.run import Failure, RunResult, StepReport
from em.runner.effects import Fix
from em.store.redact import marker

Given = Mapping[str, str] | Callable[[str], str | None] | None
"""Where secrets come from, by name; the environment where this does not have one."""

Write = Callable[[list[tuple[str, Json]]], None]


class Secrets:
    """The secrets of one run: their values in memory, a marker everywhere else."""

    def __init__(self, declared: Sequence[Secret], given: Given = None) -> None:
        self._declared = declared
        ask = given if callable(given) else (given or {}).get
        self.values: dict[str, str] = {}
        for secret in declared:
            value = ask(secret.name) or os.environ.get(secret.variable)
            if value and not isinstance(value, str):
                raise UsageError("a secret is a text", place=f"secret {secret.name}")
            if value:
                self.values[secret.name] = value
        # A secret that is part of another one comes second, or the rest of that would be left.
        self._hidden = sorted(
            ((value, marker(name)) for name, value in self.values.items()),
            key=lambda pair: -len(pair[0]),
        )

    def check(self) -> None:
        """None may be missing."""
        for secret in self._declared:
            if secret.name not in self.values:
                raise RoutineError(
                    f"the secret {secret.name!r} is not set",
                    place=f"secret {secret.name}",
                    fix=f"set the environment variable {secret.variable}",
                )

    def mask(self, value: Any) -> Any:
        """A value with a marker in place of each secret."""
        return _replaced(value, self._hidden)

    def unmask(self, value: Any) -> Any:
        """A value with its secrets back in place."""
        return _replaced(value, [(shown, secret) for secret, shown in self._hidden])

    def writing(self, write: Write) -> Write:
        """Write notes, masked."""
        if not self._hidden:
            return write
        return lambda notes: write([(kind, self.mask(body)) for kind, body in notes])

    def telling(self, tell: Callable[[StepReport], None] | None) -> Any:
        """Tell what became of a step, masked."""
        if tell is None or not self._hidden:
            return tell
        return lambda report: tell(self._masked(report, StepReport))

    def asking(self, ask: Callable[[Json], Any] | None) -> Any:
        """Ask for a fix without showing secrets; they are put back into what comes of it."""
        if ask is None or not self._hidden:
            return ask

        def masked(context: Json) -> Fix:
            fix: Fix = ask(self.mask(context))
            return msgspec.structs.replace(fix, args=self.unmask(fix.args))

        return masked

    def result(self, result: RunResult) -> RunResult:
        """A result that holds no secret but in its output, which is what the caller asked for."""
        if not self._hidden:
            return result
        failure = result.failure and self._masked(result.failure, Failure)
        steps = [self._masked(report, StepReport) for report in result.steps]
        context = self.mask(result.context)
        return msgspec.structs.replace(result, failure=failure, steps=steps, context=context)

    def _masked(self, value: Any, kind: type[Any]) -> Any:
        return msgspec.convert(self.mask(msgspec.to_builtins(value)), kind)


def _replaced(value: Any, pairs: Sequence[tuple[str, str]]) -> Any:
    """A JSON value with texts replaced in it, keys included."""
    if isinstance(value, str):
        for old, new in pairs:
            value = value.replace(old, new)
        return value
    if isinstance(value, list | tuple):
        return [_replaced(item, pairs) for item in value]
    if isinstance(value, dict):
        return {_replaced(key, pairs): _replaced(item, pairs) for key, item in value.items()}
    return value
