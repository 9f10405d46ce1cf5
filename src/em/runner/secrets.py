"""Secrets of a run: used while it goes on, never written."""

from collections.abc import Mapping
from typing import Any

from em.models.canonical import Json
from em.models.routine import PromptStep, Routine

SHORTEST_INSIDE = 4
"""From this length on a secret is also found inside other texts."""


class Secrets:
    """The values that must not be written, by what they are called."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._marks)

    def add(self, name: str, value: Any) -> None:
        """From now on this text is taken out of whatever is written."""
        if isinstance(value, str) and value:
            plain = "".join(char for char in name if char not in "[]")
            self._names[value] = name
            self._marks[value] = f"[redacted:{plain[:64] or 'secret'}]"

    @property
    def names(self) -> Mapping[str, str]:
        """What each secret is called."""
        return dict(self._names)

    def masked(self, value: Any) -> Any:
        """A value with a mark in the place of every secret."""
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
        # The longest first: one may stand in another.
        for secret in sorted(self._marks, key=len, reverse=True):
            if len(secret) >= SHORTEST_INSIDE and secret in text:
                text = text.replace(secret, self._marks[secret])
        return text


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
