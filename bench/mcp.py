"""Our MCP server over stdio beside a bare server of the same SDK: until it is ready, and calls."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import IO, Any

from bench.figure import Figure

CALLS = 200
ROUTINES = 100
STARTS = 15
READY = 1.3
MOST_TO_START, MOST_TO_END = 500, 200
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
BARE_WITH_TOOLS = f"""\
from mcp.server.mcpserver import MCPServer

server = MCPServer("bare")
for number in range({ROUTINES}):
    def tool(request: str, note: str = "") -> str:
        return request
    server.add_tool(tool, name=f"routine_{{number}}", description="Handle a request of a customer.")
server.run()
"""
ECHO = """\
name: echo
steps: [{id: out, type: return, value: "{{ said }}"}]
"""


def figures() -> Iterator[Figure]:
    """All figures of this module."""
    yield from context()
    yield from start()
    yield from calls()


OWN_TOKENS, ROUTINE_TOKENS = 1_000, 60
SHOP = """\
name: cancel_order_{number}
description: Cancel a pending order of the customer who asks.
checks: hand_over
input_schema:
  type: object
  required: [email, order_id, reason]
  properties:
    email: {{type: string, format: email, description: "e-mail of the customer"}}
    order_id: {{type: string, pattern: "^#W[0-9]+$", examples: ["#W1001"]}}
    reason: {{enum: [no longer needed, ordered by mistake]}}
steps: [{{id: out, type: return, value: "{{{{ order_id }}}}"}}]
"""


def context() -> Iterator[Figure]:
    """The tokens (bytes / 4) that em adds: its own tools as sent, and what a model gets."""
    from em import Memory
    from em.runner.package import keep_routine
    from em.runner.tools import ToolRegistry
    from em.serve.auth import Caller
    from em.serve.mcp.listing import ToolListing, tokens
    from em.settings import AllowSettings, McpSettings

    with tempfile.TemporaryDirectory() as name, Memory(Path(name) / "em.db") as memory:

        def listed() -> list[Any]:
            return ToolListing(memory, AllowSettings(), ToolRegistry()).tools(Caller())

        own = listed()
        sent = len(json.dumps({"tools": own}, separators=(",", ":"))) / 4
        yield Figure(
            "MCP: all tools without a routine, as sent", sent, "the bar", OWN_TOKENS, "tokens",
            sent / OWN_TOKENS, 1.0, False,
        )  # fmt: skip
        taken = []
        for number in range(McpSettings().routines):
            keep_routine(memory.store, {"routine.yaml": SHOP.format(number=number)})
            taken.append(sum(map(tokens, listed())))
        each = (taken[-1] - taken[0]) / (len(taken) - 1)
        for what, took, most in (
            ("all tools but those of routines, as a model gets them", taken[0] - each, OWN_TOKENS),
            ("each routine, as a model gets it", each, ROUTINE_TOKENS),
        ):
            yield Figure(f"MCP: {what}", took, "the bar", most, "tokens", took / most, 1.0, False)


def start() -> Iterator[Figure]:
    """The time from starting a process until it has answered, with 100 routines or tools.

    Both protocols: the one with a handshake, which agents speak, and that of 2026.
    """
    from em import Memory
    from em.runner.package import keep_routine

    text = (Path(__file__).parent.parent / "examples/csv_report/routine/routine.yaml").read_text()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        db = str(folder / "em.db")
        with Memory(db) as memory:
            for number in range(ROUTINES):
                files = {
                    "routine.yaml": text.replace("name: csv_report", f"name: routine_{number}")
                }
                keep_routine(memory.store, files)
        (folder / "bare.py").write_text(BARE_WITH_TOOLS)
        # The same number of tools on both sides.
        (folder / "em.yaml").write_text(f"mcp: {{routines: {ROUTINES}}}\n")
        ours = [sys.executable, "-m", "em", "mcp", "--db", db]
        bare = [sys.executable, str(folder / "bare.py")]
        for what, messages in (("handshake", HANDSHAKE), ("protocol of 2026", MODERN)):
            for command in (ours, bare):
                _until_answered(command, messages, folder)  # compiles modules, makes the cards
            pairs = [
                (_until_answered(ours, messages, folder), _until_answered(bare, messages, folder))
                for _ in range(STARTS)
            ]
            nothing = [_bare_python() for _ in range(STARTS)]
            print(
                f"    a bare Python start: best {min(nothing):.0f}, median {median(nothing):.0f} ms"
            )
            ended = median(one[-1] for one, _ in pairs)
            yield Figure(
                f"em mcp, {what}: ended after the end of its input",
                ended, "the bar", MOST_TO_END, "ms", ended / MOST_TO_END, 1.0, False,
            )  # fmt: skip
            for at, answer in enumerate(messages):
                mine = [one[at] for one, _ in pairs]
                other = [one[at] for _, one in pairs]
                best = min(mine) / min(other)
                print(f"    best: {min(mine):.0f} ms beside {min(other):.0f} ms, ratio {best:.3f}")
                if answer == "tools/list" and messages is HANDSHAKE:
                    yield Figure(
                        f"em mcp with {ROUTINES} routines, {what}: ready",
                        median(mine), "the bar", MOST_TO_START, "ms",
                        median(mine) / MOST_TO_START, 1.0, False,
                    )  # fmt: skip
                yield Figure(
                    f"em mcp with {ROUTINES} routines, {what}: `{answer}` answered",
                    median(mine),
                    f"a bare MCPServer with {ROUTINES} tools",
                    median(other),
                    "ms",
                    median(mine) / median(other),
                    READY,
                    False,
                )


_CLIENT: dict[str, Any] = {"name": "bench", "version": "1"}
_META = "io.modelcontextprotocol/"
_ENVELOPE = {
    "_meta": {
        f"{_META}protocolVersion": "2026-07-28",
        f"{_META}clientCapabilities": {},
        f"{_META}clientInfo": _CLIENT,
    }
}
HANDSHAKE: dict[str, Any] = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": _CLIENT},
    "tools/list": {},
}
MODERN: dict[str, Any] = {"server/discover": _ENVELOPE, "tools/list": _ENVELOPE}


def _until_answered(command: list[str], messages: dict[str, Any], folder: Path) -> list[float]:
    """Return for each message the milliseconds from starting a process until its answer.

    Behind them, those from the end of its input until the process has ended.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=folder
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = []
        for number, (method, params) in enumerate(messages.items()):
            _say(process.stdin, id=number, method=method, params=params)
            answer = json.loads(process.stdout.readline())
            found.append((time.perf_counter() - began) * 1e3)
            assert "result" in answer, answer
            if method == "initialize":
                _say(process.stdin, method="notifications/initialized")
        assert len(answer["result"]["tools"]) >= ROUTINES
        began = time.perf_counter()
        process.stdin.close()
        process.wait()
        return [*found, (time.perf_counter() - began) * 1e3]


def _say(to: IO[bytes], **message: Any) -> None:
    to.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    to.flush()


def _bare_python() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return (time.perf_counter() - began) * 1e3


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
            ("ask, everybody's passages", "ask", {"question": "figs"}),
            ("remember", "remember", {"subject": "bo", "text": "Bo likes figs."}),
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
