"""An agent's side of MCP: the SDK's own client, over both transports, in both of its protocols."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp.client.streamable_http import streamable_http_client
from tests.forks import SERVICE, command_line

from em import Memory
from em.runner.package import KeptRoutine, keep_routine
from mcp import Client, StdioServerParameters

T = TypeVar("T")
Connect = Callable[..., AbstractAsyncContextManager[Client]]

ASKING = """\
name: greet
description: Greet somebody.
input_schema: {type: object, properties: {who: {type: string}}, required: [who]}
steps:
  - id: style
    type: prompt.user
    prompt:
      message: "How to greet {{ who }}?"
      fields: [{name: word, type: select, options: [Hello, Bye]}, {name: loud, type: confirm}]
    save_as: said
  - {id: out, type: return, value: "{{ said.word }} {{ who }}{{ '!' if said.loud else '.' }}"}
"""


def over_stdio(*args: str, db: str = "em.db", env: dict[str, str] | None = None) -> Connect:
    """`em mcp` in a process of its own."""
    program, *rest = command_line("-m", "em", "mcp", "--db", db, *args, loaded=SERVICE)
    server = StdioServerParameters(
        command=program,
        args=rest,
        cwd=Path.cwd(),
        env={**os.environ, **(env or {})},
    )
    return lambda **how: Client(server, **how)


def over_http(url: str, token: str = "") -> Connect:
    """`/mcp` of a service that runs."""

    @asynccontextmanager
    async def connect(**how: Any) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http), **how) as client,
        ):
            yield client

    return connect


def keep(text: str, db: str = "em.db", **files: str) -> KeptRoutine:
    """Keep a routine in a memory that others serve."""
    with Memory(db) as memory:
        named = {name.replace("__", "."): content for name, content in files.items()}
        return keep_routine(memory.store, {"routine.yaml": text, **named})


def agent(connect: Connect, work: Callable[[Client], Awaitable[T]], **how: Any) -> T:
    """What an agent does while it is connected."""

    async def run() -> T:
        async with asyncio.timeout(120), connect(**how) as client:
            return await work(client)

    return asyncio.run(run())
