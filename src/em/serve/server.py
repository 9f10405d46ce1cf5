"""Starting the service: bind, say where, serve until it is told to stop."""

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
    """Serve a memory until SIGINT or SIGTERM; requests under way are finished first.

    on_listening: told the host and the port once they can be reached.
    """
    tokens = Tokens(settings.api)
    refuse_open_door(settings.api, tokens)
    try:
        import litestar  # noqa: F401 - asked before anything is opened
        import uvicorn
    except ImportError:
        raise MissingExtra("server", "the HTTP service") from None
    from em.serve.app import make_app
    from em.serve.guard import say

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
            http="h11",  # another one would not keep to the size of headers below
            timeout_graceful_shutdown=10,
            h11_max_incomplete_event_size=64 * 1024,
        )
        bound = listen(config)
        for library in ("uvicorn", "mcp"):
            logging.getLogger(library).addHandler(_Lines())
        host, port = bound.getsockname()[:2]
        say(level="info", event="listening", host=host, port=port, store=memory.store.location)
        if on_listening is not None:
            on_listening(host, port)
        for number in (signal.SIGINT, signal.SIGTERM):
            # The server finishes what is under way, and then raises the signal again.
            signal.signal(number, lambda _number, _frame: None)

        class Server(uvicorn.Server):
            async def shutdown(self, sockets: Any = None) -> None:
                app.leave()
                await super().shutdown(sockets)

        try:
            Server(config).run(sockets=[bound])
        except SystemExit as error:
            # The server's own way of saying so; why stands in the line before.
            raise StoreError("the service could not start: its log says why") from error
        say(level="info", event="stopped")
    sys.stderr.flush()
    return 0


def listen(config: "Config") -> socket:
    """A socket that takes calls at once, and sends answers at once."""
    try:
        bound = config.bind_socket()
    except (OSError, SystemExit):
        raise UsageError(
            f"{config.host}:{config.port} can't be bound",
            place="EM_API_HOST, EM_API_PORT",
            fix="choose a free port",
        ) from None
    # Nobody else sets it for a socket that was bound beforehand. Without it the body of a small
    # answer waits 40 ms for its header to be acknowledged.
    bound.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    bound.listen(config.backlog)  # who reads that it listens may call at once
    return bound


class _Lines(logging.Handler):
    """What the server itself has to say, as lines of the same log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        from em.serve.guard import say

        if record.levelno >= logging.WARNING:
            fields = {"level": record.levelname.lower(), "message": record.getMessage()}
            if record.exc_info:
                fields["trace"] = logging.Formatter().formatException(record.exc_info)
            say(event="server", **fields)
