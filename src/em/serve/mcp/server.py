"""The MCP server of the SDK, over standard input and output (`serve_rest`) and HTTP (`Mounted`)."""

import asyncio
import os
import signal
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, TextIO, cast

import anyio
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    ListToolsResult,
    PaginatedRequestParams,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

import em
from em.errors import EmError
from em.memory import Memory
from em.serve.auth import Caller
from em.serve.guard import CALLER, Receive, Scope, Send, log_line
from em.serve.mcp import consent
from em.serve.mcp.desk import Context, McpDesk
from em.serve.mcp.handshake import Rest, exit_at_once
from em.serve.mcp.listing import TITLE
from em.serve.mcp.routines import Answer, Routines, can_ask
from em.serve.mcp.tools import BUILT_IN, FIND_ROUTINE
from em.serve.threads import Threads
from em.settings import Settings

LOOK_EVERY = 2.0
"""Seconds between checks for stored or retired routines."""
WAIT_FOR_AN_ANSWER = 3600.0
"""Seconds within which a client may repeat a call with the answers to a form."""


class _Changes(InMemorySubscriptionBus):
    """Notify subscribers of changes, and know whether there are any."""

    def __init__(self) -> None:
        super().__init__()
        self._listening: set[object] = set()

    @property
    def has_listeners(self) -> bool:
        """Whether anybody listens for changes."""
        return bool(self._listening)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Subscribe; the returned callable unsubscribes."""
        unsubscribe = super().subscribe(listener)
        self._listening.add(unsubscribe)

        def leave() -> None:
            self._listening.discard(unsubscribe)
            unsubscribe()

        return leave


class MemoryServer:
    """A memory as an MCP server, for any transport.

    key: signs what a client sends back with its answers; all processes of a service must have it.
    """

    def __init__(self, desk: McpDesk, key: bytes | None = None) -> None:
        self._desk = desk
        self._routines = Routines(desk)
        self._changes = _Changes()
        self._listening = ListenHandler(self._changes)
        # The session to notify over standard input and output, where there is one client.
        self._session: ServerSession | None = None
        self.server: Server[Any] = Server(
            "em",
            version=em.__version__,
            title=TITLE,
            instructions=desk.listing.instructions,
            lifespan=self._life,
            # No argument of a call is sent as a header.
            get_tool_input_schema=lambda _name: None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=self._listening,
        )
        security = RequestStateSecurity(
            keys=[key or os.urandom(32)], ttl=WAIT_FOR_AN_ANSWER, bind_principal=self._name_of
        )
        self.server.middleware.append(RequestStateBoundary(security, default_audience="em"))

    def options(self) -> InitializationOptions:
        """Return the options of the handshake."""
        return self.server.create_initialization_options(NotificationOptions(tools_changed=True))

    def close_streams(self) -> None:
        """Close the streams that clients listen to, so that shutdown does not wait for them."""
        self._listening.close()

    def _name_of(self, ctx: Context) -> str:
        return self._desk.caller(ctx).name

    @asynccontextmanager
    async def _life(self, _server: Server[Any]) -> AsyncIterator[dict[str, Any]]:
        # What differs later from what was listed, or is there before the first request, changed.
        shown = self._desk.listing.shown
        known = await self._look({}) if shown is None else shown
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, known)
            yield {}
            tasks.cancel_scope.cancel()

    async def _watch(self, known: dict[str, int]) -> None:
        """Notify clients when a routine was stored or retired, by any process."""
        took = 0.0
        while True:
            # Check less often in a memory with many routines, where a check takes longer.
            await anyio.sleep(max(LOOK_EVERY, 20 * took))
            if self._session is None and not self._changes.has_listeners:
                continue
            began = time.monotonic()
            now = await self._look(known)
            took = time.monotonic() - began
            if now != known:
                await self._notify()
            known = now

    async def _look(self, known: dict[str, int]) -> dict[str, int]:
        try:
            return await self._desk.in_thread(self._routines_now)
        except EmError as error:
            # Go on: the store may be reachable again later.
            log_line(level="warning", event="mcp", message=f"can't read the routines: {error}")
            return known

    def _routines_now(self) -> dict[str, int]:
        now = self._desk.listing.routines()
        self._desk.listing.save()
        return now

    async def _notify(self) -> None:
        await self._changes.publish(ToolsListChanged())
        if self._session is not None:
            await self._session.send_tool_list_changed()

    async def _list_tools(
        self, ctx: Context, _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        caller = self._desk.caller(ctx)
        if ctx.request is None and ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
            self._session = ctx.session
        tools = await self._desk.in_thread(lambda: self._desk.listing.tools(caller))
        return ListToolsResult.model_validate({"tools": tools})

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> Answer:
        caller = self._desk.caller(ctx)
        built_in = {**BUILT_IN, FIND_ROUTINE.name: FIND_ROUTINE}.get(params.name)
        try:
            if params.name == consent.ACCEPT and self._desk.is_local:
                caller.must_see(None)
                caller.must("write")
                return await consent.accept(self._desk, ctx, params, can_ask=can_ask(ctx))
            if built_in is None:
                return await self._routines.call(ctx, caller, params)
            given = params.arguments or {}
            answer = await self._desk.in_thread(
                lambda: built_in.carry_out(self._desk, caller, given)
            )
            return self._desk.answer(answer)
        except EmError as error:
            return self._desk.refusal(error)
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - last resort: log it, respond without a stack
            return self._fault(error)

    def _fault(self, error: Exception) -> Answer:
        trace = "".join(traceback.format_exception(error))
        log_line(level="error", event="mcp", message=str(error), trace=trace)
        return self._desk.refusal(EmError("internal error; see the log of the server"))


MOST_SESSIONS = 1_000


class Mounted:
    """The MCP server mounted in the HTTP service, behind its guard.

    A session of a client is in the memory of one process. Where several may get its requests, there
    are none: a question of a routine is then returned, to be answered with `resume`.
    """

    def __init__(self, memory: Memory, settings: Settings, key: bytes) -> None:
        self._mcp = MemoryServer(McpDesk(memory, settings), sha256(b"mcp" + key).digest())
        wanted, workers = settings.api.mcp_sessions, settings.api.workers
        self._manager = StreamableHTTPSessionManager(
            self._mcp.server,
            max_request_body_size=settings.api.max_request_bytes,
            max_sessions=MOST_SESSIONS,
            stateless=wanted == "off" or (wanted == "auto" and workers > 1),
        )

    @asynccontextmanager
    async def running(self, _app: Any) -> AsyncIterator[None]:
        """Run the session manager for the lifetime of the application."""
        async with self._manager.run():
            yield

    def leave(self) -> None:
        """Close the streams that clients only listen to."""
        self._mcp.close_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. A session belongs to the token that started it."""
        caller: Caller = scope[CALLER]
        who = AccessToken(token="", client_id=caller.name, scopes=[])
        await self._manager.handle_request({**scope, "user": AuthenticatedUser(who)}, receive, send)


def serve_rest(desk: McpDesk, rest: Rest) -> None:
    """Serve the rest of a session that began over standard input and output."""
    anyio.run(_serve, MemoryServer(desk), rest)


async def _serve(mcp: MemoryServer, rest: Rest) -> None:
    asyncio.get_running_loop().set_default_executor(Threads())
    file = anyio.wrap_file(cast("TextIO", rest))  # only its lines are read and written
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_exit_on_signal)
        async with stdio_server(file, file) as (incoming, outgoing):
            await mcp.server.run(incoming, outgoing, mcp.options())
        tasks.cancel_scope.cancel()


async def _exit_on_signal() -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            exit_at_once(number)
