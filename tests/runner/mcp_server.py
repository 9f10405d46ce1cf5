"""A real MCP server, made with the SDK, for routines to call. It prints, it fails, it is slow."""

import os
import sys
import time
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, ImageContent, TextContent, ToolAnnotations

server = MCPServer("shop")
READS = ToolAnnotations(read_only_hint=True)


def _note(what: str) -> None:
    with Path("server.log").open("a") as log:
        log.write(f"{os.getpid()} {what}\n")


_note("started")


@server.tool(annotations=READS)
def find_order(order_id: str) -> dict[str, object]:
    """An order by its id."""
    _note(f"find {order_id}")
    print("a server that prints", file=sys.stderr)
    return {"order_id": order_id, "total": 12.5, "items": ["lamp"]}


@server.tool()
def cancel(order_id: str) -> str:
    """Cancel an order."""
    _note(f"cancel {order_id}")
    return f"cancelled {order_id}"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def label(order_id: str) -> str:
    """Label an order, as often as you like."""
    return order_id


@server.tool()
def refuse() -> str:
    """Fail."""
    raise ToolError("the shop is closed")


@server.tool()
def slow(seconds: float) -> str:
    """Take a while."""
    _note("slow")
    time.sleep(seconds)
    return "at last"


@server.tool()
def die() -> str:
    """End the server in the middle of a call."""
    print("it hurts", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def die_once() -> str:
    """End the server the first time."""
    marker = Path("died")
    if not marker.exists():
        marker.touch()
        os._exit(3)
    return "alive"


@server.tool()
def much() -> str:
    """More than anybody wants."""
    return "x" * 11_000_000


@server.tool()
def environment() -> list[str]:
    """The names of the variables that are set."""
    return sorted(os.environ)


@server.tool(structured_output=False)
def plain() -> str:
    """Text only, and it is JSON."""
    return '{"a": 1}'


@server.tool()
def picture() -> CallToolResult:
    """Not only text."""
    image = ImageContent(data="AAAA", mime_type="image/png")
    return CallToolResult(content=[TextContent(text="look"), image])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
