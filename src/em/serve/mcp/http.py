"""Serving over HTTP, behind the guard of the service: its tokens, hosts and limits hold."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from em.memory import Memory
from em.serve.auth import Caller
from em.serve.guard import CALLER, Receive, Scope, Send
from em.serve.mcp.desk import Desk
from em.serve.mcp.server import McpServer
from em.settings import Settings

MOST_SESSIONS = 1_000


class Mounted:
    """The MCP server as a part of the service."""

    def __init__(self, memory: Memory, settings: Settings) -> None:
        self._mcp = McpServer(Desk(memory, settings))
        self._manager = StreamableHTTPSessionManager(
            self._mcp.server,
            max_request_body_size=settings.api.max_request_bytes,
            max_sessions=MOST_SESSIONS,
        )

    @asynccontextmanager
    async def running(self, _app: Any) -> AsyncIterator[None]:
        """For as long as the service runs."""
        async with self._manager.run():
            yield

    def leave(self) -> None:
        """End what clients only listen to."""
        self._mcp.close_streams()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request of a client; a session is of the token that began it."""
        caller: Caller = scope[CALLER]
        who = AccessToken(token="", client_id=caller.name, scopes=[])
        await self._manager.handle_request({**scope, "user": AuthenticatedUser(who)}, receive, send)
