"""The guard in front of the application: request id, host, origin, token, size, time, log.

It also defines how errors look over HTTP: `{"error": {"code": …, "message": …}}`, never a stack.
"""

import asyncio
import re
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec

from em import telemetry
from em.deadline import Deadline, until
from em.errors import (
    BadQuestion,
    Conflict,
    EmError,
    Forbidden,
    HeadersTooLarge,
    InputError,
    KeyReused,
    LlmError,
    NotFound,
    QueueFull,
    ResponseGone,
    RoutineError,
    StateError,
    StateInvalid,
    StoreBusy,
    StoreReadOnly,
    StoreUnreachable,
    TookTooLong,
    TooLarge,
    TooSlow,
    Unauthorized,
    UsageError,
    WorkError,
    WorkflowError,
)
from em.redaction.redactor import Redactor
from em.serve.auth import LOGIN, PAGES, STATIC, BrowserSessions, Caller, Hosts, Tokens, cookie_in
from em.settings import ApiSettings
from em.values.files import shown_json
from em.values.times import new_id, now

_STATUS: tuple[tuple[type[EmError], int], ...] = (
    (NotFound, 404),
    (Unauthorized, 401),
    (Forbidden, 403),
    (TooLarge, 413),
    (HeadersTooLarge, 431),
    (TooSlow, 408),
    (TookTooLong, 503),
    (QueueFull, 429),
    (WorkError, 409),
    (KeyReused, 409),
    (ResponseGone, 410),
    (Conflict, 409),
    (InputError, 400),
    (UsageError, 400),
    (RoutineError, 400),
    (WorkflowError, 400),
    (StoreBusy, 503),
    (StoreUnreachable, 503),
    (StoreReadOnly, 503),
    (LlmError, 502),
    (BadQuestion, 502),
    (StateInvalid, 500),
    (StateError, 409),
)
_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}


class ErrorOut(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error: a stable code, a message, and where known the place and the fix."""

    code: str
    message: str
    place: str = ""
    fix: str = ""


class ErrorBody(msgspec.Struct, frozen=True):
    """The envelope of every error."""

    error: ErrorOut


def status_of(error: EmError) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def body_of(error: EmError) -> bytes:
    """Encode an error as a response body. Internal errors give no details."""
    if status_of(error) == 500:
        return internal_error()
    out = ErrorOut(error.code, error.message, error.place, error.fix)
    return shown_json(ErrorBody(out))


def internal_error() -> bytes:
    """Encode the response to an internal error, without details."""
    return envelope("internal", "internal error; see the log of the service")


def envelope(code: str, message: str, place: str = "") -> bytes:
    """Encode a code and a message as a response body."""
    return msgspec.json.encode(ErrorBody(ErrorOut(code, message, place)))


def code_of(status: int) -> str:
    """Return a stable error code for a status that the framework chose."""
    return _CODES.get(status, "bad_request" if status < 500 else "internal")


_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

CALLER = "em.caller"
MCP = "/mcp"
GRACE = 1.0
"""Seconds that work has to end by itself after its deadline, before it is left behind."""
LONGEST_PATH = 500
"""Characters of a path that are logged and shown."""
SHORTER = "send less at a time, queue it as a job, or set EM_API_REQUEST_SECONDS"
OPEN = ("/health", "/healthz/live", "/healthz/ready", "/docs", "/docs/openapi.json")
"""Paths that show no stored data and need no token."""
_ANYONE = Caller("anyone", frozenset(), "read")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


def named(scope: Scope) -> tuple[str, str]:
    """Return the method and the route of a request, as they may be shown."""
    method = scope["method"] if scope["method"] in _METHODS else "other"
    return method, scope.get("path_template", "(none)")


def is_page(path: str) -> bool:
    """Return whether a path is a page for browsers."""
    return path in ("/", PAGES) or path.startswith(f"{PAGES}/")


WORDY = ("message", "path", "trace")
"""Fields of the log whose words may come from a request."""


@lru_cache
def _redactor() -> Redactor:
    return Redactor()


def log_line(**fields: Any) -> None:
    """Write one JSON line of the log to standard error, without secrets in what went wrong."""
    clean = {name: _redactor().text(str(fields[name])) for name in WORDY if name in fields}
    line = {"at": now().isoformat(), **fields, **clean}
    sys.stderr.buffer.write(shown_json(line, enc_hook=str) + b"\n")
    sys.stderr.flush()


class Guard:
    """ASGI middleware in front of the application. Reads no body before a request is admitted."""

    def __init__(
        self,
        app: App,
        settings: ApiSettings,
        tokens: Tokens,
        sessions: BrowserSessions,
        is_origin_allowed: Callable[[str], bool] = lambda _origin: False,
        redactor: Redactor | None = None,
        stopping: threading.Event | None = None,
    ) -> None:
        self.stopping = stopping or threading.Event()
        self.app = app
        self.settings = settings
        self._tokens = tokens
        self._sessions = sessions
        self._hosts = Hosts(settings)
        self._is_origin_allowed = is_origin_allowed
        self.redactor = redactor or Redactor()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or pass on a lifespan event."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await _Passing(self, scope, receive, send).run()

    async def admit(self, scope: Scope, headers: dict[bytes, bytes]) -> Caller:
        """Return the caller of a request, or raise for one that must not reach the application."""
        self._check(scope, headers)
        path: str = scope["path"]
        if path in OPEN or (scope["method"] == "OPTIONS" and self.settings.cors_origins):
            return _ANYONE
        authorization = headers.get(b"authorization", b"").decode("latin-1")
        if not is_page(path):
            return self._tokens.caller(authorization)
        if path in ("/", LOGIN) or path.startswith(STATIC):
            return _ANYONE
        cookie = cookie_in(headers.get(b"cookie", b"").decode("latin-1"))
        return await asyncio.to_thread(self._sessions.caller, cookie, authorization)

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Refuse bad headers, hosts, origins and lengths, before the token is looked at."""
        self._check_headers(scope)
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            raise Forbidden("a request must have one Host header", place="Host")
        if _has_two_lengths(headers):
            raise InputError(
                "the length of the body is stated twice",
                place="Transfer-Encoding",
                fix="send either Content-Length or Transfer-Encoding",
            )
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin", b"").decode("latin-1")
        self._hosts.check(host)
        self._hosts.check_origin(origin, host, self._is_origin_allowed)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > self.settings.max_request_bytes:
            raise self.too_large()
        if b"\0" in scope["path"].encode() or b"%00" in scope["query_string"]:
            raise InputError("NUL characters are not allowed", place="path or query")

    def _check_headers(self, scope: Scope) -> None:
        """Raise for headers over the limit: the parser's own is for what has not come whole."""
        most = self.settings.max_header_bytes
        size = len(scope.get("raw_path", b"")) + len(scope["query_string"])
        if size + sum(len(name) + len(value) + 4 for name, value in scope["headers"]) > most:
            raise HeadersTooLarge(
                f"the headers are larger than {most:,} bytes",
                place="headers",
                fix="send less, or set EM_API_MAX_HEADER_BYTES",
            )

    def too_large(self) -> TooLarge:
        """Return the error for a body over the limit."""
        return TooLarge(
            f"the body is larger than {self.settings.max_request_bytes:,} bytes",
            place="body",
            fix="send less, or set EM_API_MAX_REQUEST_BYTES",
        )


def _has_two_lengths(headers: dict[bytes, bytes]) -> bool:
    return b"content-length" in headers and b"transfer-encoding" in headers


def _short(path: str) -> str:
    """Return a path as the log may have it: no text that it takes long to search for secrets."""
    return path if len(path) <= LONGEST_PATH else f"({len(path):,} characters)"


class _Passing:
    """One request on its way through the guard."""

    def __init__(self, guard: Guard, scope: Scope, receive: Receive, send: Send) -> None:
        self._guard, self._settings = guard, guard.settings
        self._scope = scope
        self._receive = receive
        self._send = send
        self._started = time.perf_counter()
        self._status = 0
        self._is_read = False
        self._taken = 0
        self._timer: asyncio.TimerHandle
        self._leaving: asyncio.Task[None] | None = None
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        given = self._headers.get(b"x-request-id", b"")
        self._id = given if _REQUEST_ID.fullmatch(given) else new_id().encode()

    @property
    def _has_body(self) -> bool:
        length = self._headers.get(b"content-length", b"0")
        return length != b"0" or b"transfer-encoding" in self._headers

    async def run(self) -> None:
        if not telemetry.is_on():
            await self._run()
            return
        sent = {"traceparent": self._headers.get(b"traceparent", b"").decode("latin-1")}
        with telemetry.span("HTTP", parent=sent) as span:
            await self._run()
            self._trace(span)

    def _trace(self, span: telemetry.Note) -> None:
        """Name the span by the route: paths have ids, and queries have words."""
        method, route = named(self._scope)
        attributes: dict[str, telemetry.Value] = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": self._status,
        }
        span.rename(f"{method} {route}")
        for name, value in attributes.items():
            span.set(name, value)
        if self._status >= 500:
            attributes["error.type"] = str(self._status)
            span.fail(str(self._status))
        seconds = time.perf_counter() - self._started
        telemetry.measure("http.server.request.duration", seconds, attributes)

    async def _run(self) -> None:
        fields: dict[str, Any] = {}
        try:
            caller = await self._guard.admit(self._scope, self._headers)
            self._scope[CALLER] = caller
            fields["caller"] = caller.name
            await self._pass_on()
        except EmError as error:
            fields["error"] = error.code
            await self._refuse(status_of(error), body_of(error))
        except Exception as error:  # noqa: BLE001 - last resort: log it, respond without a stack
            fields["error"] = "internal"
            fields["trace"] = "".join(traceback.format_exception(error))
            await self._refuse(500, internal_error())
        finally:
            self._log(fields)

    async def _pass_on(self) -> None:
        """Let the application answer, or answer for it once the work takes too long.

        The work itself ends at its deadline as soon as it looks. What it answers then is dropped.
        """
        scope, app, seconds = self._scope, self._guard.app, self._settings.request_seconds
        if scope["path"].startswith(MCP):  # each call over MCP has a deadline of its own
            await app(scope, self._receive_body, self._answer)
            return
        limit = Deadline(seconds, what=f"{scope['method']} {_short(scope['path'])}", fix=SHORTER)
        self._look(limit)

        async def answer(message: Message) -> None:
            # What is being answered may go on for long: a stream of changes.
            limit.extend()
            self._timer.cancel()
            if self._leaving is None:
                await self._answer(message)

        try:
            with until(limit):
                await app(scope, self._receive_body, answer)
        finally:
            self._timer.cancel()
            if self._leaving is not None:
                await self._leaving

    def _look(self, limit: Deadline) -> None:
        """Answer in the place of work that goes on beyond its deadline, or look again then."""
        loop, left = asyncio.get_running_loop(), limit.at + GRACE - time.monotonic()
        if left > 0:
            self._timer = loop.call_later(left, self._look, limit)
            return
        error = limit.error()
        refusal = self._refuse(status_of(error), body_of(error), drain=False)
        self._leaving = loop.create_task(refusal)

    async def _receive_body(self) -> Message:
        """Receive a part of the body, within the time limit: slow senders must not block others."""
        if self._is_read:
            return await self._receive()  # learn whether the client disconnected
        left = self._started + self._settings.body_seconds - time.perf_counter()
        try:
            message = await asyncio.wait_for(self._receive(), max(left, 0))
        except TimeoutError:
            raise TooSlow(
                f"the body did not arrive within {self._settings.body_seconds:g} seconds",
                place="body",
                fix="send it faster, or set EM_API_BODY_SECONDS",
            ) from None
        self._is_read = not message.get("more_body", False)
        self._taken += len(message.get("body", b""))
        if self._taken > self._settings.max_request_bytes:
            self._is_read = False  # don't read the rest either
            raise self._guard.too_large()
        return message

    async def _answer(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self._id)]
            headers.append((b"x-content-type-options", b"nosniff"))
            unread = _has_two_lengths(self._headers) or (self._has_body and not self._is_read)
            if unread or self._guard.stopping.is_set():
                # The unread rest of the body, and what comes behind a body that others may take
                # to be longer or shorter, must not be parsed as the next request.
                headers.append((b"connection", b"close"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def _refuse(self, status: int, body: bytes, *, drain: bool = True) -> None:
        if self._status:
            return  # the response has started: only closing the connection is left
        if drain and status != 413:
            await self._drain()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        if status == 401 and is_page(self._scope["path"]):
            status, body = 303, b""
            headers = [(b"location", self._login()), (b"content-length", b"0")]
        elif status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self._answer({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _login(self) -> bytes:
        """Return the address of the login page, with the page to return to."""
        asked = self._scope["path"] if self._scope["method"] == "GET" else PAGES
        query = self._scope.get("query_string", b"").decode("latin-1")
        next_ = f"{asked}?{query}" if query and asked != PAGES else asked
        return f"{LOGIN}?next={quote(next_, safe='')}".encode()

    async def _drain(self) -> None:
        """Read the rest of the body: closing with unread data could lose the response."""
        with suppress(TooSlow, TooLarge):
            while self._has_body and not self._is_read:
                await self._receive_body()

    def _log(self, fields: dict[str, Any]) -> None:
        seconds = time.perf_counter() - self._started
        log_line(
            level="error" if self._status >= 500 else "info",
            event="request",
            request_id=self._id.decode(),
            method=self._scope["method"],
            path=self._guard.redactor.text(_short(self._scope["path"])),
            status=self._status,
            ms=round(seconds * 1e3, 2),
            **fields,
        )
