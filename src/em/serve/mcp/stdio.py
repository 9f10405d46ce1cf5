"""Serving over standard input and output, for an agent that starts us."""

import atexit
import os
import signal
import sys
from typing import NoReturn

import anyio
from mcp.server.stdio import stdio_server

from em.memory import Memory
from em.runner.tools import ToolRegistry
from em.serve.auth import Caller
from em.serve.mcp.desk import Desk
from em.serve.mcp.server import McpServer
from em.settings import Settings


def serve_stdio(
    memory: Memory, settings: Settings, caller: Caller, tools: ToolRegistry | None = None
) -> None:
    """Serve a memory until the client closes our input.

    While it is served, what tools print goes to standard error: the output is the protocol's.
    """
    anyio.run(_serve, McpServer(Desk(memory, settings, tools=tools, local=caller)))


async def _serve(mcp: McpServer) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_leave_when_told)
        async with stdio_server() as (incoming, outgoing):
            await mcp.server.run(incoming, outgoing, mcp.options())
        tasks.cancel_scope.cancel()


async def _leave_when_told() -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as told:
        async for number in told:
            _leave(number)


def _leave(number: int) -> NoReturn:
    """End at once: a thread waits for input that may never come, and can't be told.

    Nothing is lost by it: what was committed is there, and a run goes on with `resume`.
    """
    if number == signal.SIGINT:
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()
    atexit._run_exitfuncs()  # folders that routines were unpacked to go with us
    os._exit(128 + number)
