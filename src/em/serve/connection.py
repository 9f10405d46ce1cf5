"""A connection to the service: how long a client may take, and how many it may open.

uvicorn limits only the time between two requests. A client that sends a part of a request and then
nothing, or doesn't read the answer, would hold its connection for ever.
"""

import asyncio
import resource
import time
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from em.serve.guard import envelope
from em.settings import ApiSettings

_FILES_KEPT = 64
"""Open files that are left for the store, the log and tools."""


def connection_class(settings: ApiSettings) -> type[H11Protocol]:
    """Return the protocol with the limits of these settings."""
    most = min(settings.max_connections, _files() - _FILES_KEPT)
    return type("LimitedConnection", (Connection,), {"settings": settings, "most": max(most, 16)})


def _files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1_000_000


class Connection(H11Protocol):
    """One connection. A new one that is too many takes the place of the one that waited longest."""

    settings: ClassVar[ApiSettings]
    most: ClassVar[int]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.since = time.monotonic()
        """Since when the connection is there, or its last response was complete."""
        self._late: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether no request is under way: none has come, or a part of its headers."""
        cycle: Any = self.cycle  # None before the first request, whatever its annotation says
        return cycle is None or bool(cycle.response_complete)

    @property
    def host(self) -> str:
        """The address of the client."""
        return self.client[0] if self.client else ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, if need be in the place of one that waits; else refuse it."""
        super().connection_made(transport)
        others = [other for other in self.connections if isinstance(other, Connection)]
        own = [other for other in others if other.host == self.host]
        if len(own) > self.settings.connections_per_client:
            self._take_place_of(own)
        elif len(others) > self.most:
            self._take_place_of(others)
        if not transport.is_closing():
            self._expect_headers()

    def _take_place_of(self, others: "list[Connection]") -> None:
        waiting = [other for other in others if other.is_waiting and other is not self]
        if waiting:
            min(waiting, key=lambda other: other.since).transport.abort()
        else:
            self._end(b"503 Service Unavailable", "busy", "too many connections; try again")

    def data_received(self, data: bytes) -> None:
        """Take bytes. From the first of a request on, its headers have so many seconds."""
        if self._late is None and self.is_waiting:
            self._expect_headers()
        super().data_received(data)
        if not self.is_waiting:
            self._headers_came()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self.since = time.monotonic()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._headers_came()
        self._reads_again()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Give a client that does not read so many seconds."""
        super().pause_writing()
        if self._stalled is None:
            seconds = self.settings.write_seconds
            self._stalled = self.loop.call_later(seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on with a client that reads again."""
        self._reads_again()
        super().resume_writing()

    def _expect_headers(self) -> None:
        self._late = self.loop.call_later(self.settings.header_seconds, self._end_late)

    def _headers_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _reads_again(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _end_late(self) -> None:
        seconds = self.settings.header_seconds
        message = f"the headers did not arrive within {seconds:g} seconds"
        self._end(b"408 Request Timeout", "too_slow", message)

    def _end(self, status: bytes, code: str, message: str) -> None:
        """Answer without a request, and close."""
        body = envelope(code, message)
        head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\nconnection: close\r\n" % status
        self.transport.write(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))
        self.transport.close()
