"""The service in this process: asked without sockets, as its web server would ask it."""

import asyncio
import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.serve.sample import keep_refund

from em import Memory
from em.heuristics.heuristic import Lesson
from em.serve.app import make_app
from em.settings import Settings

ACCEPTED, INITIALIZED = b"application/json, text/event-stream", "notifications/initialized"
STEP = {"action": "look", "args": {"a": "b"}, "observation": {"c": [1, 2]}}
ATTEMPT = {"task": "look at b", "steps": [STEP, {**STEP, "observation": "x", "error": "no"}],
           "outcome": "success", "input": {"a": "b"}, "final_output": "c"}  # fmt: skip
CALL = {"type": "tool_call", "tool": "look", "args": {"a": "b"}, "result": 2, "id": "c1"}
ORDER = {"order": "A-17", "amount": 40, "reason": "late"}
GOOD: tuple[tuple[str, Any], ...] = (
    ("/observations", {"subject": "ana", "text": "I moved to Faro in May.", "at": "2026-05-02"}),
    ("/observations", {"subject": "ana", "record": {"name": "Ana", "n": 2}, "type": "Person"}),
    ("/trajectories", ATTEMPT),
    ("/trajectories", {"mission": {"goal": "look"}, "events": [CALL], "outcome": "failure"}),
    ("/reflect", {"trajectory": ATTEMPT}),
    ("/heuristics", {"trigger": "a join is slow", "action": "add an index", "tools": ["sql"]}),
    ("/heuristics/{heuristic_id}/feedback", {"outcome": "success", "task": "insert"}),
    ("/trajectories/{trajectory_id}/label", {"outcome": "failure", "reason": "late"}),
    ("/checkpoint", {"subject": "ana"}),
    ("/ask", {"subject": "ana", "question": "Which city?"}),
    ("/check", {"subject": "ana", "action": "visit", "details": {"city": "Porto"}}),
    ("/forget", {"subject": "zoe", "dry_run": True}),
    ("/runs", {"routine": "refund", "input": ORDER}),
    ("/runs", {"routine": "refund", "input": ORDER, "answers": {"agree": {"ok": True}}}),
    ("/runs/{run_id}/answers", {"answers": {"agree": {"ok": True, "note": "x"}}}),
)
"""Requests that the service carries out."""
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
        self._memory.checkpoint("ana")
        lesson = Lesson(trigger="an insert fails", action="insert the parent row first")
        (kept,) = self._memory.heuristics.keep([lesson])
        given = {"order": "A-17", "amount": 40, "reason": "late"}
        run = self._memory.run(keep_refund(self._memory), given)
        self._ids = {"heuristic_id": kept.id, "run_id": run.run_id, "ref": "refund"}
        self._app = make_app(self._memory, Settings())
        self._loop = asyncio.new_event_loop()
        self._begun, self._ending = asyncio.Event(), asyncio.Event()
        self._life = self._loop.create_task(self._live())
        self._loop.run_until_complete(asyncio.wait_for(self._begun.wait(), PATIENCE))
        self._session = self._mcp_session()

    async def _live(self) -> None:
        started = False

        async def receive() -> dict[str, Any]:
            nonlocal started
            if not started:
                started = True
                return {"type": "lifespan.startup"}
            await self._ending.wait()
            return {"type": "lifespan.shutdown"}

        async def send(message: Any) -> None:
            if message["type"].startswith("lifespan.startup"):
                self._begun.set()

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
        is_failure = b'"code":-32603' in answer  # an internal error of JSON-RPC
        if (status >= 500 and status not in (501, 502, 503)) or is_failure or _trace_in(said):
            raise ServerError(_trace_in(said) or answer.decode(errors="replace"))
        return status

    async def _asked(
        self, method: str, target: bytes, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> tuple[int, bytes]:
        raw, _, query = bytes(byte for byte in target if 32 < byte < 127).partition(b"?")
        sent: list[Any] = []
        parts = iter([{"type": "http.request", "body": body, "more_body": False}])

        answered = asyncio.Event()

        async def receive() -> Any:
            for part in parts:
                return part
            with suppress(TimeoutError):  # a stream of MCP waits for its client to go
                await asyncio.wait_for(answered.wait(), 2)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                answered.set()

        names = {name for name, _ in headers}
        if raw == b"/mcp" and self._session and b"mcp-session-id" not in names:
            headers = [*headers, (b"mcp-session-id", self._session)]
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
        start = next((one for one in sent if one["type"].endswith("start")), {})
        self._headers = dict(start.get("headers", ()))
        return int(start.get("status", 0)), b"".join(one.get("body", b"") for one in sent)

    def _mcp_session(self) -> bytes:
        """Open a session, as a client does, and return its id."""
        self._session, kept = b"", sys.stderr
        sys.stderr = io.TextIOWrapper(io.BytesIO())
        try:
            for one in (next(_mcp()), {"body": {"jsonrpc": "2.0", "method": INITIALIZED}}):
                body = json.dumps(one["body"]).encode()
                headers = [(b"content-type", b"application/json"), (b"accept", ACCEPTED)]
                self._loop.run_until_complete(self._asked("POST", b"/mcp", headers, body))
                self._session = self._headers.get(b"mcp-session-id", self._session)
        finally:
            sys.stderr = kept
        return self._session

    def known(self) -> Iterator[dict[str, Any]]:
        """Yield a good request for every path that the service describes, every page and MCP."""
        work = self._asked("GET", b"/docs/openapi.json", [], b"")
        kept, sys.stderr = sys.stderr, io.TextIOWrapper(io.BytesIO())
        described = json.loads(self._loop.run_until_complete(work)[1])
        sys.stderr = kept
        for path, methods in described["paths"].items():
            for method, one in methods.items():
                yield self._request(described, path, method, one)
        for path, body in GOOD:
            target = self._filled(path)
            yield {"method": "POST", "target": target, "headers": {}, "body": body}
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
        headers = {p["name"]: "k1" for p in named if p["in"] == "header" and p.get("required")}
        return {
            "method": method.upper(),
            "target": self._filled(path) + (f"?{query}" if query else ""),
            "headers": headers,
            "body": "" if schema is None else _example(described, schema, ""),
        }

    def _filled(self, path: str) -> str:
        def value(found: re.Match[str]) -> str:
            name = found[1].partition(":")[0]
            if "run" in path and name == "id":
                name = "run_id"
            return self._ids.get(name, self._trace)

        return re.sub(r"\{([^}]*)\}", value, path)

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
    headers = {"Accept": ACCEPTED.decode()}
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    for method, params in (
        ("initialize", hello), ("tools/list", {}), ("ping", {}),
        ("tools/call", {"name": "ask", "arguments": {"question": "bees", "subject": "ana"}}),
        ("tools/call", {"name": "remember", "arguments": {"subject": "ana", "text": "x"}}),
        ("tools/call", {"name": "ask", "arguments": {"subject": "ana", "code": "state.profile"}}),
        ("tools/call", {"name": "brief", "arguments": {"task": "insert", "tools": ["sql"]}}),
        ("tools/call", {"name": "lesson", "arguments": {
            "task": "x", "outcome": "success", "steps": [{"action": "look", "observation": "y"}]}}),
        ("tools/call", {"name": "propose", "arguments": {}}),
        ("tools/call", {"name": "refund", "arguments": {
            "order": "A-17", "amount": 40, "reason": "late"}}),
        ("prompts/get", {"name": "brief", "arguments": {"task": "insert"}}),
        ("resources/read", {"uri": "em://routines/x"}),
    ):  # fmt: skip
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        yield {"method": "POST", "target": "/mcp", "headers": headers, "body": body}


def _trace_in(log: str) -> str:
    """Return the last traceback in the lines of the service's log; not that of bad JSON."""
    lines = [json.loads(line) for line in log.splitlines() if '"trace"' in line]
    found = [line["trace"] for line in lines if line.get("event") != "bad_input"]
    return str(found[-1]) if found else ""
