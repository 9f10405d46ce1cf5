"""The server process: bind, log the address, serve until SIGINT or SIGTERM."""

import logging
import signal
import sys
from collections.abc import Callable
from socket import IPPROTO_TCP, TCP_NODELAY, socket
from typing import TYPE_CHECKING, Any

from em.errors import MissingExtra, StoreError, UsageError
from em.memory import Memory
from em.serve.auth import Tokens, refuse_open_door
from em.settings import Settings

if TYPE_CHECKING:
    from uvicorn import Config


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
    from em.serve.app import make_app
    from em.serve.connection import connection_class
    from em.serve.guard import log_line

    with Memory(db, settings=settings) as memory:
        app = make_app(memory, settings, tokens)
        config = uvicorn.Config(
            app,
            host=settings.api.host,
            port=settings.api.port,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            http=connection_class(settings.api),
            timeout_graceful_shutdown=10,
            h11_max_incomplete_event_size=settings.api.max_header_bytes,
        )
        bound = listen(config)
        for library in ("uvicorn", "mcp"):
            logging.getLogger(library).addHandler(_Lines())
        host, port = bound.getsockname()[:2]
        log_line(level="info", event="listening", host=host, port=port, store=memory.store.location)
        if on_listening is not None:
            on_listening(host, port)
        for number in (signal.SIGINT, signal.SIGTERM):
            # uvicorn finishes the requests under way, then raises the signal again.
            signal.signal(number, lambda _number, _frame: None)

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: Any = None) -> None:
                app.leave()
                await super().shutdown(sockets)

        try:
            Server(config).run(sockets=[bound])
        except SystemExit as error:
            # uvicorn exits this way; it has logged the reason.
            raise StoreError("the service could not start; see its log") from error
        log_line(level="info", event="stopped")
    sys.stderr.flush()
    return 0


def listen(config: "Config") -> socket:
    """Bind a socket that accepts connections and sends small responses without delay."""
    try:
        bound = config.bind_socket()
    except (OSError, SystemExit):
        raise UsageError(
            f"can't listen on {config.host}:{config.port}",
            place="EM_API_HOST, EM_API_PORT",
            fix="choose a free port",
        ) from None
    # uvicorn does not set this on a socket that is already bound. Without it, the body of a small
    # response waits 40 ms for its headers to be acknowledged.
    bound.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    bound.listen(config.backlog)  # before the address is logged: clients may connect at once
    return bound


class _Lines(logging.Handler):
    """Write warnings of uvicorn and the MCP SDK as lines of our log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        from em.serve.guard import log_line

        if record.levelno >= logging.WARNING:
            fields = {"level": record.levelname.lower(), "message": record.getMessage()}
            if record.exc_info:
                fields["trace"] = logging.Formatter().formatException(record.exc_info)
            log_line(event="server", **fields)
