"""The application: all handlers, behind the guard."""

import asyncio
import os
import signal
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from html import escape
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec
from litestar import Litestar, MediaType, Response, asgi, get
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

import em
from em import telemetry
from em.errors import EmError, StoreError
from em.memory import Memory
from em.serve.api import heuristics, jobs, log, routines, runs, states, traces
from em.serve.api.shapes import errors
from em.serve.auth import BrowserSessions, Tokens, refuse_open_door, shared_key
from em.serve.guard import (
    Guard,
    body_of,
    code_of,
    envelope,
    internal_error,
    is_page,
    log_line,
    status_of,
)
from em.serve.pages import HANDLERS as PAGES
from em.serve.pages.drafts import Drafts
from em.serve.pages.groups import Groups
from em.serve.pages.runs import Background
from em.serve.pages.view import error_page
from em.serve.service import AnyRequest, JsonRequest, Service, no_body, service_of
from em.settings import Settings
from em.store import redactor_of
from em.values.canonical import prepare_structs
from em.values.mismatch import options_at


def make_app(
    memory: Memory,
    settings: Settings,
    tokens: Tokens | None = None,
    *,
    owns_memory: bool = False,
) -> Guard:
    """Build the service as an ASGI application.

    owns_memory: close the memory at the end.

    Raises UsageError if other machines could reach it without a token.
    """
    prepare_structs()
    tokens = Tokens(settings.api) if tokens is None else tokens
    refuse_open_door(settings.api, tokens)
    key, tickets = shared_key(memory.store), memory.store.tickets
    sessions, stopping = BrowserSessions(tokens, tickets, key), threading.Event()
    background = Background(memory)
    cors = CORSConfig(allow_origins=list(settings.api.cors_origins))
    mcp = _mcp(memory, settings, key)
    service = Service(memory, settings, stopping)
    app = Litestar(
        route_handlers=[*mcp.handlers, *_handlers()],
        state=State(
            {
                "service": service,
                "sessions": sessions,
                "background": background,
                "drafts": Drafts(memory.store),
                "groups": Groups(memory, stopping),
            }
        ),
        exception_handlers={
            EmError: _em_error,
            HTTPException: _http_error,
            Exception: _unexpected,
        },
        request_class=JsonRequest,
        openapi_config=_openapi(asked_for_tokens=bool(tokens)),
        request_max_body_size=settings.api.max_request_bytes,
        cors_config=cors if cors.allow_origins else None,
        lifespan=[
            service.at_work,
            *mcp.lifespan,
            _life(service, background, mcp.leave, memory if owns_memory else None),
        ],
        logging_config=None,
        debug=False,
    )
    return Guard(
        app,
        settings.api,
        tokens,
        sessions,
        cors.is_origin_allowed,
        redactor_of(settings),
        stopping,
    )


LINGER = 1.0
"""Seconds for which one of several processes goes on after SIGTERM.

Clients that use a connection again then learn from the response that it is closed.
"""


def _life(
    service: Service, background: Background, leave: Callable[[], None], memory: Memory | None
) -> Callable[[Litestar], AbstractAsyncContextManager[None]]:
    """Return what the service does from its start to its end, beside answering requests.

    leave: closes the streams of MCP clients. memory: the memory to close at the end, of one of
    several processes.
    """

    @asynccontextmanager
    async def life(_app: Litestar) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                stop_at(number, loop)
        watching = loop.create_task(_watch()) if memory is not None else None
        log_line(level="info", event="ready", pid=os.getpid())
        yield
        if watching is not None:
            watching.cancel()
        # Runs that pages have started are finished.
        await asyncio.to_thread(background.finish, service.settings.api.stop_seconds)
        if memory is not None:
            memory.close()
            telemetry.stop()
        log_line(level="info", event="ended", pid=os.getpid())

    def stop_at(number: int, loop: asyncio.AbstractEventLoop) -> None:
        """Close the streams that clients only listen to, before uvicorn waits for them."""
        before: Any = signal.getsignal(number)

        def stop(signal_number: int, _frame: Any) -> None:
            service.stopping.set()
            loop.call_soon_threadsafe(leave)
            if callable(before):
                wait = LINGER if memory is not None else 0.0
                go_on = partial(loop.call_later, wait, before, signal_number, None)
                loop.call_soon_threadsafe(go_on)

        signal.signal(number, stop)

    return life


async def _watch() -> None:
    """Stop if the first process has died."""
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


def _handlers() -> list[Any]:
    return [
        get_health,
        get_live,
        get_ready,
        *heuristics.HANDLERS,
        *traces.HANDLERS,
        *log.HANDLERS,
        *routines.HANDLERS,
        *jobs.HANDLERS,
        *runs.HANDLERS,
        *states.HANDLERS,
        *PAGES,
    ]


class _Mcp(NamedTuple):
    """The MCP server's part of the application; empty if the extra is not installed."""

    handlers: Sequence[Any] = ()
    lifespan: Sequence[Any] = ()
    leave: Callable[[], None] = lambda: None


def _mcp(memory: Memory, settings: Settings, key: bytes) -> _Mcp:
    if find_spec("mcp") is None:
        return _Mcp()
    from em.serve.mcp.server import Mounted

    mounted = Mounted(memory, settings, key)

    @asgi("/mcp", copy_scope=False)
    async def serve_mcp(scope: Any, receive: Any, send: Any) -> None:
        """Serve the memory over MCP (streamable HTTP)."""
        await mounted(scope, receive, send)

    return _Mcp([serve_mcp], [mounted.running], mounted.leave)


class HealthOut(msgspec.Struct, frozen=True):
    """Whether the service is ready: ok, degraded, unreachable or stopping."""

    status: str
    store: str
    version: str


class LiveOut(msgspec.Struct, frozen=True):
    """Whether the process responds."""

    status: str


_UNREADY = ResponseSpec(HealthOut, generate_examples=False, description="The store is not ready.")


@get("/health", responses={403: errors()[403], 503: _UNREADY}, tags=["service"])
async def get_health(request: AnyRequest) -> Response[HealthOut]:
    """Report whether the store can be reached and has no problems."""
    return await _checked(service_of(request))


async def _checked(service: Service) -> Response[HealthOut]:
    """Look at the store in a thread of its own: those for requests may all have work."""
    return await asyncio.get_running_loop().run_in_executor(service.looks, _health, service)


def _health(service: Service) -> Response[HealthOut]:
    try:
        problems = [*service.store.health().problems]
        if service.store.times_lost:
            problems.append("the memory's file was gone or replaced; restart after a look at it")
        status = "degraded" if problems else "ok"
    except StoreError as error:
        problems, status = [str(error)], "unreachable"
    if problems:
        log_line(level="error", event="unready", message="; ".join(problems))
    out = HealthOut(status, service.backend, em.__version__)
    return Response(out, status_code=503 if problems else 200)


_STUCK = ResponseSpec(LiveOut, generate_examples=False, description="Restart the process.")


@get(
    "/healthz/live",
    responses={403: errors()[403], 503: _STUCK},
    sync_to_thread=False,
    tags=["service"],
)
def get_live(request: AnyRequest) -> Response[LiveOut]:
    """Report that the process responds and can handle requests, whatever its store does."""
    stuck = service_of(request).threads.are_stuck
    return Response(LiveOut("stuck" if stuck else "ok"), status_code=503 if stuck else 200)


@get(
    "/healthz/ready",
    responses={403: errors()[403], 503: _UNREADY},
    tags=["service"],
)
async def get_ready(request: AnyRequest) -> Response[HealthOut]:
    """Report whether to send requests here: the store is well, and the service is not stopping."""
    service = service_of(request)
    if service.stopping.is_set():
        return Response(HealthOut("stopping", service.backend, em.__version__), status_code=503)
    return await _checked(service)


def _em_error(request: AnyRequest, error: EmError) -> Response[Any]:
    status = status_of(error)
    if status == 500 or isinstance(error, StoreError):
        log_line(level="error", event="failure", code=error.code, message=str(error))
    if is_page(request.url.path):
        return error_page(request, status, body_of(error))
    wait = error.data.get("retry_after")
    headers = None if wait is None else {"Retry-After": str(wait)}
    return Response(body_of(error), status_code=status, media_type=MediaType.JSON, headers=headers)


def _http_error(request: AnyRequest, error: HTTPException) -> Response[Any]:
    """Respond to what the framework rejects: a path, method, parameter or body."""
    status = error.status_code
    if status >= 500:
        body = envelope(code_of(status), "internal error")
    else:
        error = no_body() if _problems(error) == [_NO_BODY] else error
        found = [_problem(request, one) for one in _problems(error)]
        told = "; ".join(f"{place}: {message}".strip(": ") for place, message in found if message)
        message = f"{error.detail}: {told}" if told else error.detail
        body = envelope(code_of(status), message, ", ".join(place for place, _ in found if place))
    if is_page(request.url.path):
        return error_page(request, status, body)
    return Response(body, status_code=status, media_type=MediaType.JSON, headers=error.headers)


def _unexpected(request: AnyRequest, error: Exception) -> Response[Any]:
    """Respond to an unexpected error; its stack goes to the log only."""
    trace = "".join(traceback.format_exception(error))
    log_line(level="error", event="failure", code="internal", path=request.url.path, trace=trace)
    body = internal_error()
    if is_page(request.url.path):
        return error_page(request, 500, body)
    return Response(body, status_code=500, media_type=MediaType.JSON)


def _problems(error: HTTPException) -> Sequence[Any]:
    return error.extra if isinstance(error.extra, list) else []


_NO_BODY = {"key": "data", "message": "'data'", "source": "body"}
"""What the framework says of a body that is missing."""


def _problem(request: AnyRequest, problem: Any) -> tuple[str, str]:
    """Return where a problem is, by the name that the caller gave, and what it is."""
    if not isinstance(problem, dict):
        return "", str(problem)
    key, message = problem.get("key", ""), problem.get("message", "")
    is_body = problem.get("source") == "body"
    field, inside = ("data", "" if key == "data" else key) if is_body else (key, "")
    handler = request.route_handler
    if message.startswith("Invalid enum value"):
        options = options_at(handler.signature_model.__annotations__[field], inside)
        message += f", expected one of: {', '.join(options)}" if options else ""
    if is_body:
        return inside or "body", message
    parameter = handler.parsed_fn_signature.parameters.get(field)
    given = None if parameter is None else getattr(parameter.kwarg_definition, "name", None)
    return given or key, message


def _openapi(*, asked_for_tokens: bool) -> OpenAPIConfig:
    scheme = SecurityScheme(type="http", scheme="bearer")
    return OpenAPIConfig(
        title="em",
        version=em.__version__,
        description="Executable memory for AI agents. Every response has an X-Request-ID.",
        path="/docs",
        use_handler_docstrings=True,
        render_plugins=[_Page(path="/"), JsonRenderPlugin()],
        components=Components(security_schemes={"bearer": scheme}),
        security=[{"bearer": []}] if asked_for_tokens else None,
    )


class _Page(OpenAPIRenderPlugin):
    """The API reference as a plain page, without scripts or external files."""

    def render(self, request: AnyRequest, openapi_schema: dict[str, Any]) -> bytes:
        """Render every operation with its parameters and statuses."""
        parts = []
        for path, operations in openapi_schema["paths"].items():
            for method, operation in operations.items():
                named = [parameter["name"] for parameter in operation.get("parameters", [])]
                parts.append(
                    f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
                    f"<p>{escape(operation.get('description', ''))}</p>"
                    f"<p>Parameters: {escape(', '.join(named) or 'none')}."
                    f" Statuses: {escape(', '.join(operation['responses']))}.</p>"
                )
        return (
            "<!doctype html><meta charset=utf-8><title>em</title>"
            "<body style='font-family:sans-serif;max-width:50em;margin:2em auto'>"
            f"<h1>em {escape(em.__version__)}</h1>"
            "<p>As OpenAPI: <a href='/docs/openapi.json'>/docs/openapi.json</a></p>"
            + "".join(parts)
        ).encode()
