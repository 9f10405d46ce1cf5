"""The server: bind, log the address, serve until SIGINT or SIGTERM, in one process or several."""

import socket
from collections.abc import Callable

from em.errors import MissingExtra, UsageError
from em.memory import Memory
from em.serve.auth import Tokens, refuse_open_door
from em.settings import ApiSettings, Settings

BACKLOG = 2048
"""Connections that the system keeps until a process takes them."""


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
        import uvicorn  # noqa: F401 - as above
    except ImportError:
        raise MissingExtra("server", "the HTTP service") from None
    from em.serve.guard import log_line
    from em.serve.process import serve_memory
    from em.serve.supervisor import Supervisor

    workers = settings.api.workers
    # With several processes too: the database is migrated once, and problems show before any start.
    with Memory(db, settings=settings) as memory:
        listener = listen(settings.api)
        host, port = listener.getsockname()[:2]
        store = memory.store.location
        log_line(
            level="info", event="listening", host=host, port=port, store=store, workers=workers
        )
        if on_listening is not None:
            on_listening(host, port)
        if workers == 1:
            return serve_memory(memory, settings, tokens, listener)
    return Supervisor(listener, db, settings.api).run()


def listen(api: ApiSettings) -> socket.socket:
    """Bind a socket that accepts connections and sends small responses without delay."""
    is_v6 = ":" in api.host
    bound = Listener(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_STREAM)
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
    bound.listen()  # before the address is logged: clients may connect at once
    return bound


class Listener(socket.socket):
    """The socket on which all processes accept connections.

    asyncio takes as many connections at once as `listen` is told to queue. One process would take
    them all while the others have nothing to do, so uvicorn is given 1, and the queue stays long.
    """

    def listen(self, _backlog: int = 0, /) -> None:
        """Accept connections, with a long queue."""
        super().listen(BACKLOG)
