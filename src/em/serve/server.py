"""The server: bind, log the address, serve until SIGINT or SIGTERM, in one process or several.

uvicorn serves, starts the processes, starts those again that die, and replaces them one by one on
SIGHUP. Slow, greedy and half-open clients are for the proxy in front: docs/deployment.md.
"""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from em import telemetry
from em.errors import EmError, MissingExtra, StoreError, UsageError
from em.memory import Memory
from em.serve.auth import Tokens, refuse_open_door
from em.settings import ApiSettings, Settings

START_SECONDS = 120
"""Seconds within which a process that replaces another must be ready."""


def serve(
    db: str | None, settings: Settings, on_listening: Callable[[str, int], None] | None = None
) -> int:
    """Serve a memory until SIGINT or SIGTERM, then finish the requests under way.

    on_listening: called with the host and port once they accept connections.
    """
    tokens = Tokens(settings.api)
    refuse_open_door(settings.api, tokens)
    try:
        import litestar  # noqa: F401 - check the extra before opening anything
        import uvicorn
    except ImportError:
        raise MissingExtra("server", "the HTTP service") from None
    from uvicorn.supervisors import Multiprocess

    from em.serve.app import make_app
    from em.serve.guard import log_line

    api = settings.api
    # With several processes too: the database is migrated once, and problems show before any start.
    with Memory(db, settings=settings) as memory, listen(api) as listener:
        host, port = listener.getsockname()[:2]
        store, workers = memory.store.location, api.workers
        log_line(
            level="info", event="listening", host=host, port=port, store=store, workers=workers
        )
        if on_listening is not None:
            on_listening(host, port)
        _log_warnings()
        if workers == 1:
            telemetry.start()
            for number in (signal.SIGINT, signal.SIGTERM):
                # uvicorn finishes the requests under way, then raises the signal again.
                signal.signal(number, lambda _number, _frame: None)
            server = uvicorn.Server(_config(make_app(memory, settings, tokens), api))
            try:
                server.run(sockets=[listener])
            except SystemExit as error:
                # uvicorn exits this way; it has logged the reason.
                raise StoreError("the service could not start; see its log") from error
            telemetry.stop()
        else:
            memory.close()
            _tell_processes(db, api, port)
            Multiprocess(_config("em.serve.server:application", api), [listener]).run()
        log_line(level="info", event="stopped")
    sys.stderr.flush()
    return 0


def _config(app: Any, api: ApiSettings) -> Any:
    import uvicorn

    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=api.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        http="h11",
        limit_concurrency=api.max_connections,
        timeout_keep_alive=api.keep_alive_seconds,  # type: ignore[arg-type]  # it takes fractions
        timeout_graceful_shutdown=api.stop_seconds,  # type: ignore[arg-type]  # as above
        timeout_worker_healthcheck=START_SECONDS,
        h11_max_incomplete_event_size=api.max_header_bytes,
    )


def _tell_processes(db: str | None, api: ApiSettings, port: int) -> None:
    """Leave what the command was given to the processes, which read all other settings anew."""
    given = {"EM_API_HOST": api.host, "EM_API_PORT": port, "EM_API_WORKERS": api.workers}
    os.environ |= {name: str(value) for name, value in given.items()}
    if db is not None:
        os.environ["EM_DB"] = db


def application() -> Any:
    """Return the application of one process of several; uvicorn calls this in each."""
    from em.serve.app import make_app
    from em.serve.guard import log_line

    _log_warnings()
    try:
        settings = Settings.load()
        memory = Memory(settings=settings)
        made = make_app(memory, settings, owns_memory=True)
    except EmError as error:
        log_line(level="error", event="failure", code=error.code, message=str(error))
        raise SystemExit(error.exit_code) from None
    telemetry.start()
    return made


def listen(api: ApiSettings) -> socket.socket:
    """Bind a socket that accepts connections and sends small responses without delay."""
    is_v6 = ":" in api.host
    bound = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((api.host.strip("[]"), api.port))
    except OSError:
        bound.close()
        raise UsageError(
            f"can't listen on {api.host}:{api.port}",
            place="EM_API_HOST, EM_API_PORT",
            fix="choose a free port",
        ) from None
    # uvicorn does not set this on a socket that is already bound. Without it, the body of a small
    # response waits 40 ms for its headers to be acknowledged.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.listen(2048)  # before the address is logged: clients may connect at once
    return bound


def _log_warnings() -> None:
    lines = LogLines()
    for library in ("em", "uvicorn", "mcp"):
        logging.getLogger(library).addHandler(lines)


class LogLines(logging.Handler):
    """Write warnings of em, uvicorn and the MCP SDK as lines of our log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        from em.serve.guard import log_line

        if record.levelno >= logging.WARNING:
            fields = {"level": record.levelname.lower(), "message": record.getMessage()}
            if record.exc_info:
                fields["trace"] = logging.Formatter().formatException(record.exc_info)
            log_line(event="server", **fields)
