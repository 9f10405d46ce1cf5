"""One memory, as it is offered to agents: who calls, and where the work is done."""

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import msgspec
from mcp.server import ServerRequestContext
from mcp_types import CallToolResult, TextContent

from em.errors import EmError, StoreError
from em.memory import Memory
from em.redaction.redactor import Redactor
from em.runner.tools import ToolRegistry
from em.serve.auth import Caller
from em.serve.guard import CALLER, body_of, say, status_of
from em.settings import Settings
from em.store import redactor_of
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


T = TypeVar("T")
Context = ServerRequestContext[Any, Any]

AT_ONCE = 32
"""Calls that are carried out at the same time; more wait."""


class Desk:
    """What the tools, the resources and the prompts share.

    tools: those that routines may call beside what they declare. local: who calls where no request
    says so, which is over standard input; without one, every request says who sends it.
    """

    def __init__(
        self,
        memory: Memory,
        settings: Settings,
        *,
        tools: ToolRegistry | None = None,
        local: Caller | None = None,
    ) -> None:
        self.memory = memory
        self.store = memory.store
        self.tools = ToolRegistry() if tools is None else tools
        self.results = Results(redactor_of(settings), local=local is not None)
        self.allow = settings.allow
        self._local = local
        self._at_once = anyio.CapacityLimiter(AT_ONCE)

    def caller(self, ctx: Context) -> Caller:
        """Who sends a request."""
        if self._local is not None:
            return self._local
        assert ctx.request is not None
        caller: Caller = ctx.request.scope[CALLER]
        return caller

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do work that waits. A caller who leaves does not end it: a run comes to its end."""
        return await anyio.to_thread.run_sync(work, limiter=self._at_once)
