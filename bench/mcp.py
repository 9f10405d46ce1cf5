"""A call over stdio to our MCP server, beside a bare tool of the same SDK's server."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.figure import Figure

CALLS = 200
BARE = """\
import anyio
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

async def tools(ctx, params):
    return ListToolsResult(tools=[Tool(name="echo", input_schema={"type": "object"})])

async def call(ctx, params):
    return CallToolResult(content=[TextContent(text="x")], structured_content=params.arguments)

async def main():
    server = Server("bare", on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())

anyio.run(main)
"""
ECHO = """\
name: echo
steps: [{id: out, type: return, value: "{{ said }}"}]
"""


def calls() -> Iterator[Figure]:
    from em import Memory
    from em.runner.package import keep_routine

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        db = str(folder / "em.db")
        with Memory(db) as memory:
            for number in range(100):
                memory.observe("ana", f"Ana said number {number} about figs and plums.")
            keep_routine(memory.store, {"routine.yaml": ECHO})
        (folder / "bare.py").write_text(BARE)
        ours = ["-m", "em", "mcp", "--db", db]
        for what, tool, given in (
            ("recall", "recall", {"query": "figs", "subject": "ana"}),
            ("observe", "observe", {"subject": "bo", "text": "Bo likes figs."}),
            ("a routine of one step, journalled", "echo", {"said": "x"}),
        ):
            pair = asyncio.run(_in_turns(ours, tool, given, [str(folder / "bare.py")]))
            mine, bare, more = pair
            # The bar is a difference: one millisecond more than a bare call counts as 1.
            yield Figure(
                f"MCP over stdio: {what}; the ratio is ms more than a bare tool",
                mine * 1e3,
                "a bare tool of the same SDK",
                bare * 1e3,
                "ms",
                more * 1e3,
                2.0,
                False,
            )


async def _in_turns(
    ours: list[str], tool: str, given: dict[str, str], theirs: list[str]
) -> tuple[float, float, float]:
    """Median seconds of a call on each side, and the median of their differences."""
    from mcp import Client, StdioServerParameters

    def start(args: list[str]) -> Client:
        return Client(StdioServerParameters(command=sys.executable, args=args))

    async def call(client: Client, name: str) -> float:
        began = time.perf_counter()
        result = await client.call_tool(name, given)
        assert not result.is_error, result.content
        return time.perf_counter() - began

    async with start(ours) as em, start(theirs) as bare:
        for _ in range(10):  # imports, caches
            await call(em, tool)
            await call(bare, "echo")
        pairs = [(await call(em, tool), await call(bare, "echo")) for _ in range(CALLS)]
    return (
        median(mine for mine, _ in pairs),
        median(other for _, other in pairs),
        median(mine - other for mine, other in pairs),
    )
