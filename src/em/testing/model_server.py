"""A scripted model server on loopback. It speaks three protocols, streams, and fails on request."""

import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import msgspec

from em.testing.model_protocols import PROTOCOLS, ModelProtocol
from em.testing.turn import Turn, failing, turn_of


class SeenRequest(msgspec.Struct, frozen=True):
    """A request that the server received; header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: Any


class LoopbackModel:
    """A model server on 127.0.0.1, at a free port. A context manager.

    It speaks Anthropic Messages, OpenAI chat completions and OpenAI Responses, and streams its
    reply when the request asks for that.

    key: the only key that it accepts. It repeats a wrong key in its error, as bad servers do.
    rejects: fields of a request that it rejects with 400, as servers that don't know them do.
    aside: what to reply to a request before the script is asked, or None. A coding agent makes
        requests of its own (a title, a quota) that no script can foresee.
    """

    def __init__(
        self,
        *,
        key: str | None = None,
        rejects: Iterable[str] = (),
        aside: Callable[[SeenRequest], Any] | None = None,
    ) -> None:
        self.requests: list[SeenRequest] = []
        self.key = key
        self.rejects = frozenset(rejects)
        self.aside = aside
        self._turns: list[Turn] = []
        self._calls = self._replies = 0
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), type("Handler", (_Handler,), {"model": self})
        )
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    def __enter__(self) -> "LoopbackModel":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def base_url(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def replies_left(self) -> int:
        """How many scripted replies nobody has asked for yet."""
        return len(self._turns)

    def say(self, *replies: Any) -> None:
        """Script the next replies: texts, JSON values or turns."""
        self._turns += [turn_of(reply) for reply in replies]

    def _answer(self, seen: SeenRequest) -> Turn:
        """Record a request and return the reply to it."""
        with self._lock:
            self.requests.append(seen)
            given = seen.headers.get("x-api-key") or seen.headers.get("authorization", "")
            if self.key is not None and given.removeprefix("Bearer ") != self.key:
                return failing(401, f"the key {given} is not valid")
            unknown = sorted(self.rejects & set(seen.body))
            if unknown:
                return failing(400, f"Unsupported parameter: '{unknown[0]}'")
            reply = self.aside(seen) if self.aside is not None else None
            if reply is not None:
                turn = turn_of(reply)
            elif self._turns:
                turn = self._turns.pop(0)
            else:
                return failing(400, "the loopback model has no reply left")
            turn = self._numbered(turn)
        if turn.delay:
            self._wait(turn.delay)
        return turn

    def _numbered(self, turn: Turn) -> Turn:
        """Number the reply, and give an id to each call that has none."""
        self._replies += 1
        calls = []
        for call in turn.calls:
            self._calls += 1
            calls.append(msgspec.structs.replace(call, id=call.id or f"call_{self._calls}"))
        return msgspec.structs.replace(turn, calls=calls, number=self._replies)

    def _wait(self, seconds: float) -> None:
        """Wait, or until the server is closed."""
        self._closing.wait(seconds)


class _Handler(BaseHTTPRequestHandler):
    """One connection. `model` is set on a subclass for each server."""

    model: LoopbackModel
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = msgspec.json.decode(self.rfile.read(length) or b"{}")
        path = self.path.partition("?")[0]
        protocol = PROTOCOLS.get(path)
        if protocol is None:
            self._other(path)
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        turn = self.model._answer(SeenRequest(path, headers, body))
        try:
            if turn.status == 200 and turn.body is None and body.get("stream") is True:
                self._stream(turn, protocol, body)
            else:
                self._send(turn, _content(protocol, turn, body), turn.status)
        except OSError:
            self.close_connection = True  # the client has gone

    def do_GET(self) -> None:
        self._other(self.path.partition("?")[0])

    def do_HEAD(self) -> None:
        self._other("/")

    def _other(self, path: str) -> None:
        """Reply to what clients ask besides: the models, and how many tokens a text has."""
        known: dict[str, Any] = {
            "/": {},
            "/v1/models": {"object": "list", "data": [], "models": []},
            "/v1/messages/count_tokens": {"input_tokens": 11},
        }
        error = PROTOCOLS["/v1/messages"].error("no such path")
        content = msgspec.json.encode(known.get(path, error))
        self._send(Turn(), content, 200 if path in known else 404)

    def _send(self, turn: Turn, content: bytes, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if turn.retry_after is not None:
            self.send_header("Retry-After", turn.retry_after)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if turn.cut else content)
        if turn.cut:
            self.close_connection = True

    def _stream(self, turn: Turn, protocol: ModelProtocol, request: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in _events(turn, protocol, request):
            if turn.pace:
                self.model._wait(turn.pace)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.flush()
        if turn.cut:
            self.close_connection = True  # without the chunk that ends the body
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
        """Print nothing."""


def _content(protocol: ModelProtocol, turn: Turn, request: Any) -> bytes:
    if turn.body is not None:
        return turn.body
    if turn.status != 200:
        return msgspec.json.encode(protocol.error(turn.text))
    return msgspec.json.encode(protocol.body(turn, request))


def _events(turn: Turn, protocol: ModelProtocol, request: Any) -> Iterator[bytes]:
    """Yield the events of a stream as bytes: all, or those before it fails as scripted."""
    events = [event.encode() for event in protocol.stream(turn, request)]
    if not (turn.cut or turn.malformed):
        yield from events
        return
    half = len(events) // 2
    yield from events[:half]
    broken = events[half]
    if turn.malformed:
        name, _, data = broken.rpartition(b"data: ")
        yield name + b"data: " + data[: len(data) // 2].strip() + b"\n\n"
    else:
        yield broken[: len(broken) // 2]
