"""MCP servers whose tools a run calls: one session with each, closed at the end of the run.

The client runs in an event loop in a thread of its own, so that the run needs none (extra `mcp`).
"""

import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from em.errors import MissingExtra
from em.runner.run import StepTimeout, UnknownOutcome
from em.runner.tools.command import MAX_OUTPUT, TAIL, plain_environment
from em.runner.tools.permissions import check_host, find_program
from em.settings import AllowSettings, McpServer
from em.values.canonical import Json

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal
    from mcp_types import CallToolResult
    from mcp_types import Tool as ServerTool

    from mcp import Client

T = TypeVar("T")

CLOSED = -32000
"""The error code of the client for a closed connection."""
INTERNAL = -32603
"""The error code of a server that failed, perhaps after its tool was done."""
CLOSING = 10.0
"""Seconds to wait for servers to end."""


class McpFailed(Exception):
    """A server could not be reached, ended, or sent an invalid answer; or its tool failed."""


class McpTimeout(McpFailed, StepTimeout):
    """A tool ran too long: its outcome is unknown."""


class McpBroken(McpFailed, UnknownOutcome):
    """A server ended during a call, or its answer can't be read: the call's outcome is unknown."""


class Servers:
    """The servers that a run uses. A context manager: it ends their sessions."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._sessions: dict[bytes, McpSession] = {}
        self._portal: BlockingPortal | None = None
        self._ending: Callable[..., Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        """End every session, and the loop they live in."""
        with self._lock:
            for session in self._sessions.values():
                session.close()
            if self._ending is not None:
                self._ending(None, None, None)
            self._sessions, self._portal, self._ending = {}, None, None

    def session(
        self,
        server: McpServer,
        allow: AllowSettings,
        env: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> "McpSession":
        """Return the session with a server; it begins with the first call. May raise NotAllowed."""
        _check_installed()
        definition = msgspec.structs.replace(server, tool="")
        key = msgspec.json.encode([definition, sorted(env.items()), sorted(headers.items())])
        program = ""
        if server.command is not None:
            program = find_program(server.command[0], allow)
        else:
            check_host(urlsplit(server.url), allow)
        with self._lock:
            if key not in self._sessions:
                where = _Where(definition, program, env, headers)
                self._sessions[key] = McpSession(self._loop, where)
            return self._sessions[key]

    def _loop(self) -> "BlockingPortal":
        from anyio.from_thread import start_blocking_portal

        with self._lock:
            if self._portal is None:
                starting = start_blocking_portal("asyncio")
                self._portal = starting.__enter__()
                self._ending = starting.__exit__
            return self._portal


def _check_installed() -> None:
    try:
        import mcp  # noqa: F401 - asked before the first step
    except ImportError:
        raise MissingExtra("mcp", "a tool of an MCP server") from None


class _Where(msgspec.Struct, frozen=True):
    """How to reach a server: its command or address, variables and headers."""

    server: McpServer
    program: str
    env: Mapping[str, str]
    headers: Mapping[str, str]

    @property
    def name(self) -> str:
        """The server as errors name it."""
        return self.server.command[0] if self.server.command else self.server.url

    @asynccontextmanager
    async def connected(self, complaints: TextIO) -> "AsyncIterator[Client]":
        """Make a client. The server's standard error goes to a file."""
        from importlib.metadata import version

        from mcp import Client, StdioServerParameters, stdio_client, types

        me = types.Implementation(name="em", version=version("em-core"))
        if self.server.command is None:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client

            patience = httpx2.Timeout(30, read=None)  # each call has its own timeout
            async with (
                httpx2.AsyncClient(headers=dict(self.headers), timeout=patience) as http,
                Client(
                    streamable_http_client(self.server.url, http_client=http), client_info=me
                ) as client,
            ):
                yield client
            return
        started = StdioServerParameters(
            command=self.program,
            args=list(self.server.command[1:]),
            env={**plain_environment(), **self.env},
        )
        async with Client(stdio_client(started, complaints), client_info=me) as client:
            yield client


class McpSession:
    """One session with one server. The first call begins it, a call after its end another."""

    def __init__(self, loop: Callable[[], "BlockingPortal"], where: _Where) -> None:
        self._loop = loop
        self._where = where
        self.name = where.name
        self._lock = threading.Lock()
        self._complaints: TextIO | None = None
        self._client: Client | None = None
        self._held: concurrent.futures.Future[None] | None = None
        self._listed: dict[str, ServerTool] | None = None
        self._stop: Callable[[], None] = lambda: None

    def call(self, tool: str, args: Json, seconds: float) -> "CallToolResult":
        """Call a tool and return its answer, which may be an error of the tool."""
        client = self._connected(seconds)

        async def call() -> "CallToolResult":
            return await client.call_tool(tool, args)

        return self._wait(client, call, seconds)

    def does_no_harm(self, tool: str, seconds: float) -> bool:
        """Return whether the server declares a tool as read-only or idempotent."""
        try:
            known = self.tools(seconds).get(tool)
        except McpFailed:
            return False  # the call itself will report why
        hints = None if known is None else known.annotations
        return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)

    def tools(self, seconds: float) -> "dict[str, ServerTool]":
        """Return the server's tools by name, as it lists them; asked for once a session."""
        if self._listed is None:
            self._listed = self._asked(seconds)
        return self._listed

    def _asked(self, seconds: float) -> "dict[str, ServerTool]":
        client = self._connected(seconds)

        async def ask() -> "dict[str, ServerTool]":
            found: dict[str, ServerTool] = {}
            cursor = None
            for _page in range(100):
                listed = await client.list_tools(cursor=cursor)
                found |= {tool.name: tool for tool in listed.tools}
                cursor = listed.next_cursor
                if not cursor:
                    break
            return found

        return self._wait(client, ask, seconds)

    def _wait(
        self, client: "Client", work: Callable[[], Coroutine[Any, Any, T]], seconds: float
    ) -> T:
        from mcp import MCPError

        asked: concurrent.futures.Future[T] = self._loop().start_task_soon(work)
        try:
            return asked.result(seconds)
        except concurrent.futures.TimeoutError:
            asked.cancel()
            raise McpTimeout(f"no answer from {self.name} within {seconds:g} s") from None
        except MCPError as error:
            if error.code == INTERNAL:
                raise McpBroken(f"{self.name} failed: {error.message}") from None
            if error.code != CLOSED:
                raise McpFailed(f"{self.name} refuses: {error.message}") from None
            told = self._told(f"ended in the middle ({error.message})")
            self.close(client)
            raise McpBroken(told) from None
        except Exception as error:  # noqa: BLE001 - the client raises what its transport does
            told = self._told(f"can't be used: {_reason(error)}")
            self.close(client)
            raise McpBroken(told) from None

    def _connected(self, seconds: float) -> "Client":
        with self._lock:
            if self._client is not None:
                return self._client
            ready: concurrent.futures.Future[Client] = concurrent.futures.Future()
            held = self._loop().start_task_soon(self._hold, ready)
            both: list[concurrent.futures.Future[Any]] = [ready, held]
            done, _ = concurrent.futures.wait(both, seconds, concurrent.futures.FIRST_COMPLETED)
            if ready in done:
                self._held, self._client = held, ready.result()
                return self._client
            if held in done:
                raise McpFailed(_reason(held.exception()))
            held.cancel()
            raise McpTimeout(f"no answer from {self.name} within {seconds:g} s")

    async def _hold(self, ready: "concurrent.futures.Future[Client]") -> None:
        """Stay connected until asked to stop. A client must be entered and left in one task."""
        import anyio

        stop = anyio.Event()
        with TemporaryFile("w+", errors="replace") as file:
            complaints = self._complaints = cast(TextIO, file)
            try:
                async with self._where.connected(complaints) as client:
                    self._stop = stop.set
                    ready.set_result(client)
                    await stop.wait()
            except Exception as error:
                if not ready.done():
                    raise McpFailed(self._told(f"can't be used: {_reason(error)}")) from None
                raise

    def _told(self, what: str) -> str:
        """Return an error about the server, with the tail of its standard error."""
        said = ""
        if self._complaints is not None and not self._complaints.closed:
            # Don't seek: the server shares the file's position.
            file = self._complaints.fileno()
            end = os.pread(file, TAIL, max(0, os.fstat(file).st_size - TAIL))
            said = end.decode(errors="replace").strip()
        return f"{self.name} {what}: {said}" if said else f"{self.name} {what}"

    def close(self, client: "Client | None" = None) -> None:
        """End the session; the next call begins another. With a client: only if it is in use."""
        with self._lock:
            if client is not None and client is not self._client:
                return  # another call ended it already
            held, self._held, self._client = self._held, None, None
            self._listed = None
            if held is None or held.done():
                return
            self._loop().start_task_soon(_called, self._stop)
            concurrent.futures.wait([held], CLOSING)


async def _called(work: Callable[[], None]) -> None:
    work()


def _reason(error: BaseException | None) -> str:
    """Return the innermost error of the exception groups that a client raises."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def value_of(answer: "CallToolResult", output: str | None) -> Any:
    """Return a tool's output: structured content if there is any, else its text; see `output`."""
    texts = [block.text for block in answer.content if block.type == "text"]
    text = "\n".join(texts)
    if answer.is_error:
        raise McpFailed(text[:TAIL] or "the tool failed without a message")
    if len(answer.model_dump_json()) > MAX_OUTPUT:
        raise McpBroken(f"the answer has more than {MAX_OUTPUT:,} characters")
    if output in ("text", "lines"):
        return text.splitlines() if output == "lines" else text
    if output == "json" and answer.structured_content is None:
        return msgspec.json.decode(text)
    from em.traces.adapters.mcp_client import given_by

    return given_by(answer)
