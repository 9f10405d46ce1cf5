"""The application: all handlers, behind the guard."""

import traceback
from collections.abc import Callable, Sequence
from html import escape
from importlib.util import find_spec
from typing import Any, NamedTuple

from litestar import Litestar, MediaType, Response, asgi, get
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.exceptions import HTTPException
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

import em
from em.errors import EmError, StoreError
from em.memory import Memory
from em.serve.api import heuristics, log, routines, shadow, states, traces, workflows
from em.serve.api.shapes import HealthOut
from em.serve.auth import Sessions, Tokens, refuse_open_door
from em.serve.guard import (
    Guard,
    Metrics,
    body_of,
    code_of,
    envelope,
    internal_error,
    is_page,
    log_line,
    status_of,
)
from em.serve.pages import HANDLERS as PAGES
from em.serve.pages.overview import Activity
from em.serve.pages.runs import Background
from em.serve.pages.view import error_page
from em.serve.service import AnyRequest, JsonRequest, Service, errors, service_of
from em.settings import Settings
from em.store import redactor_of


def make_app(memory: Memory, settings: Settings, tokens: Tokens | None = None) -> Guard:
    """Build the service as an ASGI application.

    Raises UsageError if other machines could reach it without a token.
    """
    tokens = Tokens(settings.api) if tokens is None else tokens
    refuse_open_door(settings.api, tokens)
    metrics, sessions = Metrics(), Sessions(tokens)
    cors = CORSConfig(allow_origins=list(settings.api.cors_origins))
    mcp = _mcp(memory, settings)
    app = Litestar(
        route_handlers=[
            *mcp.handlers,
            get_health,
            get_metrics,
            *heuristics.HANDLERS,
            *traces.HANDLERS,
            *log.HANDLERS,
            *routines.HANDLERS,
            *shadow.HANDLERS,
            *states.HANDLERS,
            *workflows.HANDLERS,
            *PAGES,
        ],
        state=State(
            {
                "service": Service(memory, settings, metrics),
                "sessions": sessions,
                "activity": Activity(memory.store),
                "background": Background(memory),
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
        lifespan=mcp.lifespan,
        logging_config=None,
        debug=False,
    )
    return Guard(
        app,
        settings.api,
        tokens,
        metrics,
        sessions,
        mcp.leave,
        cors.is_origin_allowed,
        redactor_of(settings),
    )


class _Mcp(NamedTuple):
    """The MCP server's part of the application; empty if the extra is not installed."""

    handlers: Sequence[Any] = ()
    lifespan: Sequence[Any] = ()
    leave: Callable[[], None] = lambda: None


def _mcp(memory: Memory, settings: Settings) -> _Mcp:
    if find_spec("mcp") is None:
        return _Mcp()
    from em.serve.mcp.server import Mounted

    mounted = Mounted(memory, settings)

    @asgi("/mcp", copy_scope=False)
    async def serve_mcp(scope: Any, receive: Any, send: Any) -> None:
        """Serve the memory over MCP (streamable HTTP)."""
        await mounted(scope, receive, send)

    return _Mcp([serve_mcp], [mounted.running], mounted.leave)


_UNREADY = ResponseSpec(HealthOut, generate_examples=False, description="The store is not ready.")


@get(
    "/health", responses={403: errors()[403], 503: _UNREADY}, sync_to_thread=True, tags=["service"]
)
def get_health(request: AnyRequest) -> Response[HealthOut]:
    """Report whether the service is ready: its store can be reached and has no problems."""
    service = service_of(request)
    try:
        problems = service.store.health().problems
        status = "degraded" if problems else "ok"
    except StoreError as error:
        problems, status = [str(error)], "unreachable"
    if problems:
        log_line(level="error", event="unready", message="; ".join(problems))
    out = HealthOut(status, service.backend, em.__version__)
    return Response(out, status_code=503 if problems else 200)


@get(
    "/metrics",
    responses=errors(),
    sync_to_thread=True,
    media_type=MediaType.TEXT,
    tags=["service"],
)
def get_metrics(request: AnyRequest) -> Response[str]:
    """Return metrics in the text format of Prometheus."""
    service = service_of(request)
    service.caller(request)
    text = service.metrics.text(service.store.health())
    return Response(text, media_type="text/plain; version=0.0.4")


def _em_error(request: AnyRequest, error: EmError) -> Response[Any]:
    status = status_of(error)
    if status == 500 or isinstance(error, StoreError):
        log_line(level="error", event="failure", code=error.code, message=str(error))
    if is_page(request.url.path):
        return error_page(request, status, body_of(error))
    return Response(body_of(error), status_code=status, media_type=MediaType.JSON)


def _http_error(request: AnyRequest, error: HTTPException) -> Response[Any]:
    """Respond to what the framework rejects: a path, method, parameter or body."""
    status = error.status_code
    message = error.detail if status < 500 else "internal error"
    details = "; ".join(_problem(problem) for problem in _problems(error))
    if details and status < 500:
        message = f"{message}: {details}"
    body = envelope(code_of(status), message)
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


def _problem(problem: Any) -> str:
    if not isinstance(problem, dict):
        return str(problem)
    return f"{problem.get('key', '')}: {problem.get('message', '')}".strip(": ")


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
