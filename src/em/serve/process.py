"""One process of the service: serve an open memory, and lose no request when it stops.

A supervisor runs this module as a program. It says over a socket what to serve; the process answers
once it is ready, and stops when the supervisor says so, or has died.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from typing import Any

import msgspec
import uvicorn

from em import telemetry
from em.errors import EmError, StoreError
from em.memory import Memory
from em.serve.app import make_app
from em.serve.auth import Tokens
from em.serve.connection import connection_class
from em.serve.guard import Guard, log_line
from em.serve.server import Listener
from em.settings import ApiSettings, Settings

READY, REPLACED = b"ready\n", b"replaced\n"


class Order(msgspec.Struct, frozen=True):
    """What a supervisor tells a process to serve. `counts` is the folder of all their metrics."""

    db: str | None
    host: str
    port: int
    workers: int
    counts: str


def serve_memory(
    memory: Memory,
    settings: Settings,
    tokens: Tokens,
    listener: socket.socket,
    supervisor: socket.socket | None = None,
    counts: str = "",
) -> int:
    """Serve an open memory in this process, until a signal or its supervisor ends it.

    counts: the folder in which the processes of a supervisor share their metrics.
    """
    api = settings.api
    telemetry.start()
    app = make_app(memory, settings, tokens, counts)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        http=connection_class(api),
        backlog=1,
        timeout_keep_alive=api.keep_alive_seconds,  # type: ignore[arg-type]  # it takes fractions
        timeout_graceful_shutdown=api.stop_seconds,  # type: ignore[arg-type]  # as above
        h11_max_incomplete_event_size=api.max_header_bytes,
    )
    lines = Lines()
    for library in ("em", "uvicorn", "mcp"):
        logging.getLogger(library).addHandler(lines)
    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn finishes the requests under way, then raises the signal again.
        signal.signal(number, lambda _number, _frame: None)
    try:
        Server(config, app, api, supervisor).run(sockets=[listener])
    except SystemExit as error:
        # uvicorn exits this way; it has logged the reason.
        raise StoreError("the service could not start; see its log") from error
    telemetry.stop()
    log_line(level="info", event="stopped")
    sys.stderr.flush()
    return 0


class Server(uvicorn.Server):
    """A server that loses no request when it stops.

    While it stops, it is not ready, and every response closes its connection and says so, since a
    client may send the next request just when the connection is closed. On SIGTERM it accepts
    connections for `linger_seconds` more, until load balancers have noticed. If its supervisor
    replaces it, it accepts none, since others do, and waits for clients that keep theirs open.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        app: Guard,
        api: ApiSettings,
        supervisor: socket.socket | None,
    ) -> None:
        super().__init__(config)
        self._guard = app
        self._api = api
        self._supervisor = supervisor
        self._is_replaced = False

    async def startup(self, sockets: Any = None) -> None:
        """Begin to serve, and tell the supervisor."""
        await super().startup(sockets)
        if self.started and self._supervisor is not None:
            self._supervisor.setblocking(False)
            asyncio.get_running_loop().add_reader(self._supervisor, self._obey)
            self._supervisor.send(READY)

    def _obey(self) -> None:
        """Stop because another process takes over, or the supervisor has died."""
        assert self._supervisor is not None
        try:
            word = self._supervisor.recv(64)
        except OSError:
            word = b""
        self._is_replaced = word == REPLACED
        self.should_exit = True
        asyncio.get_running_loop().remove_reader(self._supervisor)

    async def on_tick(self, counter: int) -> bool:
        """Show the other processes what was counted, every second."""
        if counter % 10 == 0:
            self._guard.share_counts()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: Any = None) -> None:
        """Finish the requests under way, and lose none that come meanwhile."""
        self._guard.stop()
        if self._is_replaced:
            for server in self.servers:
                server.close()
            self._guard.leave()
        await self._linger()
        self._guard.leave()
        until = time.monotonic() + self._api.stop_seconds
        await super().shutdown(sockets)
        await asyncio.to_thread(self._guard.finish, max(until - time.monotonic(), 0.0))
        self._guard.share_counts()

    async def _linger(self) -> None:
        replaced, api = self._is_replaced, self._api
        until = time.monotonic() + (api.keep_alive_seconds if replaced else api.linger_seconds)
        while time.monotonic() < until and not self.force_exit:
            if replaced and not self.server_state.connections:
                return
            await asyncio.sleep(0.05)


class Lines(logging.Handler):
    """Write warnings of em, uvicorn and the MCP SDK as lines of our log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        if record.levelno >= logging.WARNING:
            fields = {"level": record.levelname.lower(), "message": record.getMessage()}
            if record.exc_info:
                fields["trace"] = logging.Formatter().formatException(record.exc_info)
            log_line(event="server", **fields)


def main(listener: int, supervisor: int) -> int:
    """Serve what the supervisor orders, on the socket that it has bound."""
    control = socket.socket(fileno=supervisor)  # never closed: its end is the end of the process
    control.set_inheritable(False)
    order = msgspec.json.decode(control.makefile("rb").readline(), type=Order)
    try:
        return _carry_out(order, listener, control)
    except EmError as error:
        log_line(level="error", event="failure", code=error.code, message=str(error))
        return error.exit_code


def _carry_out(order: Order, listener: int, control: socket.socket) -> int:
    # Read anew: a process that replaces another has the settings of now.
    settings = Settings.load()
    changed = {"host": order.host, "port": order.port, "workers": order.workers}
    api = msgspec.structs.replace(settings.api, **changed)
    settings = msgspec.structs.replace(settings, api=api)
    with Memory(order.db, settings=settings) as memory:
        bound = Listener(fileno=listener)
        bound.set_inheritable(False)
        return serve_memory(memory, settings, Tokens(api), bound, control, order.counts)


if __name__ == "__main__":
    code = main(int(sys.argv[1]), int(sys.argv[2]))
    sys.stderr.flush()
    os._exit(code)  # everything is closed: don't take the modules apart, which takes a second
