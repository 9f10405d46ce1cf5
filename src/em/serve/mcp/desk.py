"""What the parts of the MCP server share: the memory, the caller, threads, and results."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from mcp.server import ServerRequestContext
from mcp_types import CallToolResult, TextContent

from em.deadline import Deadline, until
from em.errors import EmError, StoreError
from em.memory import Memory
from em.redaction.masker import without_secrets
from em.runner.agent_reply import bounded
from em.runner.tools import ToolRegistry
from em.serve.auth import Caller
from em.serve.guard import CALLER, GRACE, SHORTER, body_of, log_line, status_of
from em.serve.mcp.listing import ToolListing
from em.settings import Settings
from em.store import redactor_of
from em.values.canonical import Json

LARGEST = 1_000_000
"""The most characters of an answer, for example of the recordings that `propose` returns."""


T = TypeVar("T")
A = TypeVar("A", bound=msgspec.Struct)
Context = ServerRequestContext[Any, Any]


class McpDesk:
    """What tools share.

    tools: what routines may call besides the tools that they declare. local: the caller over
    standard input; over HTTP each request has its own caller. listing: the lists that the session
    began with.

    Results are without secrets. Whoever runs the server sees the details of errors.
    """

    def __init__(
        self,
        memory: Memory,
        settings: Settings,
        *,
        tools: ToolRegistry | None = None,
        local: Caller | None = None,
        listing: ToolListing | None = None,
    ) -> None:
        self.memory = memory
        self.store = memory.store
        self.tools = ToolRegistry() if tools is None else tools
        self._redactor = redactor_of(settings)
        self.listing = listing or ToolListing(memory, settings.allow, self.tools, settings.mcp)
        self._local = local
        self._limits = settings.api

    @property
    def is_local(self) -> bool:
        """Whether the person of this account is at the other end."""
        return self._local is not None

    def caller(self, ctx: Context) -> Caller:
        """Return the caller of a request."""
        if self._local is not None:
            return self._local
        assert ctx.request is not None
        caller: Caller = ctx.request.scope[CALLER]
        return caller

    def without_secrets(self, asked: A) -> A:
        """Return the arguments of a call without secrets, and without what echoes them."""
        return without_secrets(asked, self._redactor)

    async def in_thread(self, work: Callable[[], T], *, is_run: bool = False) -> T:
        """Do blocking work in a thread. A run is completed even if its caller disconnects.

        Raises TookTooLong at the deadline: for a run, which waits for others, a later one.
        """
        seconds = self._limits.run_seconds if is_run else self._limits.request_seconds
        limit = Deadline(seconds, what="this call", fix=SHORTER)
        with until(limit):
            working = asyncio.create_task(asyncio.to_thread(work))
        # Nobody may wait for it any more when it fails.
        working.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait([working], timeout=seconds + GRACE)
        if not working.done():
            raise limit.error()
        return working.result()

    def plain(self, value: Any) -> Any:
        """Return a value as plain JSON, without secrets."""
        try:
            text = msgspec.json.encode(value, enc_hook=repr)
        except (TypeError, ValueError, OverflowError, RecursionError):
            text = msgspec.json.encode(repr(value)[:LARGEST])
        return self._redactor.value(msgspec.json.decode(text))

    def answer(
        self, value: Json, *, words: str = "", is_error: bool = False, most: int = LARGEST
    ) -> CallToolResult:
        """Return a result as structured content, and as text for clients that read only text."""
        clean, text = bounded(self.plain(value), most)
        return CallToolResult(
            content=[TextContent(text=self._redactor.text(words) if words else text)],
            structured_content=clean,
            is_error=is_error,
        )

    def refusal(self, error: EmError) -> CallToolResult:
        """Return an error as a result, so that the agent can correct its call.

        Internal errors give no details to remote callers.
        """
        if status_of(error) == 500 or isinstance(error, StoreError):
            log_line(level="error", event="failure", code=error.code, message=str(error))
        shown: Json = {"error": error.as_dict()}
        if self._local is None:
            shown = msgspec.json.decode(body_of(error))
        hidden = self._local is None and status_of(error) == 500
        words = shown["error"]["message"] if hidden else str(error)
        return self.answer(shown, words=words, is_error=True)
