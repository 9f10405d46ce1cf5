"""The service in this process: asked without sockets, as its web server would ask it."""

import asyncio
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from em import Memory
from em.serve.app import make_app
from em.settings import Settings

PATIENCE = 50
"""Seconds after which a request that waits is given up."""


class ServerError(Exception):
    """The service answered with 500 or more."""


class InProcess:
    """One memory with something in it, served."""

    def __init__(self, folder: Path) -> None:
        self._memory = Memory(":memory:")
        self._memory.observe("ana", "I keep bees in the garden.")
        self._memory.observe("ana", {"name": "Ana", "city": "Porto"}, type="Person")
        self._trace = self._memory.add_trace(
            {"mission": {"goal": "look"}, "outcome": "success", "events": [
                {"type": "tool_call", "tool": "look", "args": {"a": 1}, "result": 2}]}
        )  # fmt: skip
        self._app = make_app(self._memory, Settings())
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        self._life = self._loop.create_task(self._live())
        self._loop.run_until_complete(asyncio.sleep(0.01))

    async def _live(self) -> None:
        started = False

        async def receive() -> dict[str, Any]:
            nonlocal started
            if not started:
                started = True
                return {"type": "lifespan.startup"}
            await self._ending.wait()
            return {"type": "lifespan.shutdown"}

        async def send(_message: Any) -> None:
            """Nobody waits for the answers."""

        await self._app({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, send)

    def ask(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> int:
        """Send a request; raise ServerError with the traceback for an answer of 500 or more."""
        kept, sys.stderr = sys.stderr, io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        try:
            work = asyncio.wait_for(self._asked(method, target, headers, body), PATIENCE)
            status, answer = self._loop.run_until_complete(work)
            sys.stderr.flush()
            said = sys.stderr.buffer.getvalue().decode()  # type: ignore[attr-defined]
        finally:
            sys.stderr = kept
        if status >= 500 and status not in (501, 502, 503):
            raise ServerError(_trace_in(said) or answer.decode(errors="replace"))
        return status

    async def _asked(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, bytes]:
        raw, _, query = bytes(byte for byte in target if 32 < byte < 127).partition(b"?")
        sent: list[Any] = []
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            return next(parts, {"type": "http.disconnect"})

        async def send(message: Any) -> None:
            sent.append(message)

        names = {name for name, _ in headers}
        more = [(b"host", b"localhost")] if b"host" not in names else []
        length = (b"content-length", str(len(body)).encode())
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1",
            "method": method, "scheme": "http", "path": unquote(raw.decode()),
            "raw_path": raw, "query_string": query,
            "headers": [*more, *(one for one in headers if one[0] != b"content-length"), length],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "root_path": "",
        }  # fmt: skip
        await self._app(scope, receive, send)
        status = next((one["status"] for one in sent if one["type"].endswith("start")), 0)
        return status, b"".join(one.get("body", b"") for one in sent)

    def known(self) -> Iterator[dict[str, Any]]:
        """Yield a good request for every path that the service describes, every page and MCP."""
        work = self._asked("GET", b"/docs/openapi.json", [], b"")
        kept, sys.stderr = sys.stderr, io.TextIOWrapper(io.BytesIO())
        described = json.loads(self._loop.run_until_complete(work)[1])
        sys.stderr = kept
        for path, methods in described["paths"].items():
            for method, one in methods.items():
                yield self._request(described, path, method, one)
        for page in _pages():
            yield {"method": "GET", "target": self._filled(page), "headers": {}, "body": ""}
        yield from _mcp()

    def _request(self, described: Any, path: str, method: str, one: Any) -> dict[str, Any]:
        named = one.get("parameters", [])
        query = "&".join(
            f"{p['name']}={_example(described, p['schema'], p['name'])}"
            for p in named
            if p["in"] == "query"
        )
        content = one.get("requestBody", {}).get("content", {})
        schema = next(iter(content.values()), {}).get("schema")
        headers = {p["name"]: "k1" for p in named if p["in"] == "header"}
        return {
            "method": method.upper(),
            "target": self._filled(path) + (f"?{query}" if query else ""),
            "headers": headers,
            "body": "" if schema is None else _example(described, schema, ""),
        }

    def _filled(self, path: str) -> str:
        return re.sub(r"\{[^}]*\}", self._trace, path)

    def close(self) -> None:
        """End the service."""
        self._ending.set()
        self._loop.run_until_complete(asyncio.wait([self._life], timeout=5))
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
        self._memory.close()


def _example(described: Any, schema: Any, name: str) -> Any:
    """Return a value that fits a schema of the description."""
    if "$ref" in schema:
        inner = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return _example(described, inner, name)
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            kinds = [one for one in schema[several] if one.get("type") != "null"]
            return _example(described, kinds[0], name)
    return schema["enum"][0] if "enum" in schema else _of_kind(described, schema, name)


def _of_kind(described: Any, schema: Any, name: str) -> Any:
    kind = schema.get("type")
    if kind == "object":
        return {
            key: _example(described, one, key) for key, one in schema.get("properties", {}).items()
        }
    if kind == "array":
        return [_example(described, schema.get("items", {}), name)]
    if kind in ("integer", "number", "boolean"):
        return schema.get("minimum", 1) if kind != "boolean" else False
    known = {
        "subject": "ana",
        "since": "2026-01-01",
        "question": "Where does Ana live?",
        "type": "Person",
    }
    return known.get(name, "look")


def _pages() -> list[str]:
    from em.serve.pages import HANDLERS

    return sorted({path for handler in HANDLERS for path in handler.paths})


def _mcp() -> Iterator[dict[str, Any]]:
    headers = {"Accept": "application/json, text/event-stream"}
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    for method, params in (
        ("initialize", hello), ("tools/list", {}), ("resources/list", {}), ("prompts/list", {}),
        ("ping", {}),
        ("tools/call", {"name": "recall", "arguments": {"query": "bees", "subject": "ana"}}),
        ("tools/call", {"name": "observe", "arguments": {"subject": "ana", "text": "x"}}),
        ("resources/read", {"uri": "em://routines/x"}),
    ):  # fmt: skip
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        yield {"method": "POST", "target": "/mcp", "headers": headers, "body": body}


def _trace_in(log: str) -> str:
    """Return the last traceback in the lines of the service's log."""
    found = [json.loads(line) for line in log.splitlines() if '"trace"' in line]
    return str(found[-1]["trace"]) if found else ""
