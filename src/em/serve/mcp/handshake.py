"""The beginning of a session over standard input and output, answered without the SDK.

Importing the SDK takes longer than agents wait for tools before their first turn. So the handshake
and the lists are answered here, as the SDK would. It is imported once the client has its lists and
is quiet, beside a client that may leave meanwhile, or when it is asked for anything else. What was
answered is then said again to the SDK's server, whose answers to it are dropped, so it knows the
client as if it had been there from the beginning.
"""

import atexit
import fcntl
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import msgspec

from em.errors import EmError, UsageError
from em.runner.tools import ToolRegistry
from em.serve.auth import Caller
from em.serve.mcp.listing import ToolListing
from em.settings import Settings
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.memory import Memory

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions of the protocol that begin with a handshake."""
QUIET = 2.0
"""Seconds without a message after which the SDK is imported, before it is needed.

The import takes a processor for a second. So it waits until the client itself has started, and one
that only looked what is there has left; a model thinks longer than that before its first call.
"""
_BLOCK = 1 << 16


def serve_stdio(
    memory: "Memory",
    settings: Settings,
    caller: Caller,
    tools: ToolRegistry | None = None,
    *,
    beside_hooks: bool = False,
) -> None:
    """Serve a memory until the client closes our standard input.

    beside_hooks: em answers the hooks of the client, so that it needs less. Meanwhile, what tools
    print goes to standard error: standard output belongs to the protocol.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, exit_at_once)
    registry = ToolRegistry() if tools is None else tools
    is_local = caller.subjects is None and caller.access == "write"
    listing = ToolListing(
        memory,
        settings.allow,
        registry,
        settings.mcp,
        is_local=is_local,
        beside_hooks=beside_hooks,
    )
    wire = StdioWire()
    handshake = Handshake(wire, listing, caller)
    if handshake.run(_load):
        from em.serve.mcp.desk import McpDesk
        from em.serve.mcp.server import serve_rest

        desk = McpDesk(memory, settings, tools=registry, local=caller, listing=listing)
        serve_rest(desk, Rest(wire, handshake))
    # The client waits for us: neither the SDK, if it is still being imported, nor Python's end.
    memory.close()
    _exit_now(0)


def _load() -> None:
    import_module("em.serve.mcp.server")


def exit_at_once(number: int, _frame: object = None) -> NoReturn:
    """Exit on a signal at once, since the thread that reads standard input can't be interrupted.

    Nothing is lost: events are committed, and an interrupted run can be resumed.
    """
    if number == signal.SIGINT:
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()
    _exit_now(128 + number)


def _exit_now(code: int) -> NoReturn:
    atexit._run_exitfuncs()  # removes the folders that routines were unpacked to
    os._exit(code)


class StdioWire:
    """The lines of the protocol.

    It takes the descriptors 0 and 1 for itself: tools, and programs that they start, read nothing
    there, and what they print goes to standard error.
    """

    def __init__(self) -> None:
        try:
            self._in = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
            self._out = fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 3)
        except OSError:
            raise UsageError(
                "standard input and output are closed", fix="let an agent start `em mcp`"
            ) from None
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # standard error is closed
            os.dup2(nothing, 1)
        os.close(nothing)
        self._buffer = bytearray()

    def line(self, wait: float | None = None) -> bytes | None:
        """Return the next line; b"" at the end, None if nothing comes within `wait` seconds."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if wait is not None and not select.select([self._in], [], [], wait)[0]:
                return None
            block = os.read(self._in, _BLOCK)
            if not block:
                end = len(self._buffer) - 1
                break
            self._buffer += block
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        return line

    def send(self, line: bytes) -> None:
        """Write one line."""
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._out, rest) :]


class _McpMessage(msgspec.Struct, frozen=True):
    """A request or a notification."""

    jsonrpc: Literal["2.0"]
    method: str
    id: int | str | msgspec.UnsetType = msgspec.UNSET
    params: Json | msgspec.UnsetType = msgspec.UNSET


class _Client(msgspec.Struct, frozen=True):
    name: str
    version: str


class _Initialize(msgspec.Struct, frozen=True, rename="camel"):
    protocol_version: str
    capabilities: dict[str, Json]
    client_info: _Client


class Handshake:
    """Answers a client while it only asks what is there.

    said: the messages that were answered and that the SDK's server must know too.
    rest: the message that could not be answered here.
    """

    def __init__(self, wire: StdioWire, listing: ToolListing, caller: Caller) -> None:
        self._wire = wire
        self._listing = listing
        self._caller = caller
        self.said: list[bytes] = []
        self.rest = b""
        self.answered: list[int | str] = []
        """The ids of what was said and answered."""

    def run(self, load: Callable[[], None]) -> bool:
        """Answer until the SDK is needed. Return whether it is: the client may leave before.

        load: imports the SDK.
        """
        loading: threading.Thread | None = None
        try:
            while True:
                has_lists = self._listing.shown is not None
                line = self._wire.line(QUIET if has_lists else None)
                if line == b"":
                    return False
                if line is None:
                    if loading is None:
                        loading = threading.Thread(target=load, daemon=True)
                        loading.start()
                    elif not loading.is_alive():
                        return True
                elif not self._answer(line):
                    self.rest = line
                    return True
        finally:
            self._listing.save()

    def _answer(self, line: bytes) -> bool:
        """Answer a message. Return False if that is the SDK's, for example to refuse it."""
        try:
            message = msgspec.json.decode(line, type=_McpMessage)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        if message.method == "notifications/initialized" and message.id is msgspec.UNSET:
            self.said.append(line)
            return bool(self.answered)
        if message.id is msgspec.UNSET:
            return False
        try:
            result = self._result(message)
        except EmError:
            return False
        if result is None:
            return False
        answer = {"jsonrpc": "2.0", "id": message.id, "result": result}
        self._wire.send(msgspec.json.encode(answer) + b"\n")
        if message.method in ("initialize", "tools/list"):
            self.said.append(line)
            self.answered.append(message.id)
        return True

    def _result(self, message: _McpMessage) -> Json | None:
        """Return the result of a request, or None."""
        if message.method == "initialize" and not self.answered:
            with suppress(msgspec.ValidationError):
                asked = msgspec.convert(message.params, _Initialize)
                version = asked.protocol_version
                return self._listing.initialized(version if version in VERSIONS else VERSIONS[-1])
        results: dict[str, Callable[[], Json]] = {
            "ping": dict,
            "tools/list": lambda: {"tools": self._listing.tools(self._caller)},
        }
        if not self.answered or message.method not in results or not _is_plain(message.params):
            return None
        return results[message.method]()


def _is_plain(params: Json | msgspec.UnsetType) -> bool:
    """Return whether a request has no parameters but a token for progress."""
    if params is msgspec.UNSET or not params:
        return True
    meta: Any = params.get("_meta")
    if not isinstance(meta, dict):
        return False
    return params.keys() == {"_meta"} and meta.keys() <= {"progressToken"}


class Rest(io.TextIOBase):
    """The rest of a session, as the file that the SDK's server reads and writes.

    It first reads again what was answered already, and its answers to that are dropped.
    """

    def __init__(self, wire: StdioWire, handshake: Handshake) -> None:
        self._wire = wire
        self._lines = [*handshake.said, *([handshake.rest] if handshake.rest else [])]
        self._lines.reverse()
        self._answered = list(handshake.answered)
        self._is_first = True
        self._initialized = threading.Event()
        if not self._answered:
            self._initialized.set()

    def readline(self, _size: int | None = -1, /) -> str:  # type: ignore[override]  # never a part
        """Return the next line. After `initialize`, that is said when it is answered again."""
        if not self._is_first:
            self._initialized.wait()
        self._is_first = False
        line = self._lines.pop() if self._lines else self._wire.line() or b""
        return line.decode(errors="replace")

    def write(self, text: str, /) -> int:
        """Send a line to the client, unless it has that answer already."""
        if not self._answered or not self._is_repeated(text):
            self._wire.send(text.encode())
        return len(text)

    def _is_repeated(self, text: str) -> bool:
        found = msgspec.json.decode(text)
        if "method" in found or found.get("id") not in self._answered:
            return False
        self._answered.remove(found["id"])
        self._initialized.set()
        return True
