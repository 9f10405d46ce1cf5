"""What a tool answers: plain JSON without secrets, bounded, and errors that name the fix."""

from typing import Any

import msgspec
from mcp_types import CallToolResult, TextContent

from em.errors import EmError, StoreError
from em.redaction.redactor import Redactor
from em.serve.failures import body_of, status_of
from em.serve.guard import say
from em.values.canonical import Json

LARGEST = 1_000_000
"""Bytes of an answer: an agent's context holds less."""
BEGINS = 20_000
"""Characters that are shown of an answer that is larger."""


class Results:
    """Puts answers together. `local`: who reads them is who runs the server."""

    def __init__(self, redactor: Redactor, *, local: bool) -> None:
        self._redactor = redactor
        self._local = local

    def plain(self, value: Any) -> Any:
        """A value as JSON can hold it, without secrets."""
        try:
            text = msgspec.json.encode(value, enc_hook=repr)
        except (TypeError, ValueError, OverflowError, RecursionError):
            text = msgspec.json.encode(repr(value)[:BEGINS])
        return self._redactor.value(msgspec.json.decode(text))

    def answer(self, value: Json, *, words: str = "", is_error: bool = False) -> CallToolResult:
        """An answer: as structure for programs, and as text for who reads only that."""
        clean: Json = self.plain(value)
        text = msgspec.json.encode(clean).decode()
        if len(text) > LARGEST:
            clean = _cut(clean, text)
            text = msgspec.json.encode(clean).decode()
        return CallToolResult(
            content=[TextContent(text=self._redactor.text(words) if words else text)],
            structured_content=clean,
            is_error=is_error,
        )

    def refusal(self, error: EmError) -> CallToolResult:
        """An error as an answer, so that an agent can do better; ours to mend says no more."""
        if status_of(error) == 500 or isinstance(error, StoreError):
            say(level="error", event="failure", code=error.code, message=str(error))
        told: Json = {"error": error.as_dict()} if self._local else _decoded(body_of(error))
        hidden = not self._local and status_of(error) == 500
        words = told["error"]["message"] if hidden else str(error)
        return self.answer(told, words=words, is_error=True)


def _decoded(body: bytes) -> Json:
    told: Json = msgspec.json.decode(body)
    return told


def _cut(clean: Json, text: str) -> Json:
    """What is said in the place of an answer that is too large."""
    short = {
        name: value
        for name, value in clean.items()
        if isinstance(value, str | int | float | None) and len(str(value)) < 1_000
    }
    note = f"it has {len(text):,} characters; this is how it begins"
    return {**short, "too_large": note, "begins": text[:BEGINS]}
