"""A scripted model server on loopback that speaks both protocols and fails on request."""

import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import msgspec

ANTHROPIC, OPENAI = "/v1/messages", "/v1/chat/completions"
_STOPS = {
    ANTHROPIC: {"end": "end_turn"},
    OPENAI: {"end": "stop", "max_tokens": "length", "refusal": "content_filter"},
}


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of the server.

    status: if it is not 200, `text` is the message of the error.
    delay: seconds to wait before replying.
    cut: close the connection in the middle of the body.
    body: send these bytes as the body.
    counts: whether to report tokens.
    """

    text: str = ""
    stop: str = "end"
    status: int = 200
    retry_after: str | None = None
    delay: float = 0.0
    cut: bool = False
    body: bytes | None = None
    input_tokens: int = 11
    output_tokens: int = 7
    cached_tokens: int = 0
    counts: bool = True


def rate_limited(retry_after: str | None = "0") -> Turn:
    """Reply with 429 and the header Retry-After."""
    return Turn(status=429, text="too many requests", retry_after=retry_after)


def failing(status: int = 500, text: str = "it broke") -> Turn:
    """Reply with an HTTP error."""
    return Turn(status=status, text=text)


def slow(seconds: float, text: str = "late") -> Turn:
    """Reply after some seconds."""
    return Turn(text=text, delay=seconds)


def cut_off(text: str = "never read to its end") -> Turn:
    """Close the connection in the middle of the body."""
    return Turn(text=text, cut=True)


def broken_body() -> Turn:
    """Reply with a body that is not JSON."""
    return Turn(body=b'{"id": "broken", "content": [{')


def refusal(text: str = "I won't.") -> Turn:
    """Reply with a refusal."""
    return Turn(text=text, stop="refusal")


def truncated(text: str) -> Turn:
    """Reply with a text that was cut at max_tokens."""
    return Turn(text=text, stop="max_tokens")


class Seen(msgspec.Struct, frozen=True):
    """A request that the server received; header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: Any


class LoopbackModel:
    """A model server on 127.0.0.1, at a free port. A context manager.

    key: the only key that it accepts. It repeats a wrong key in its error, as bad servers do.
    rejects: fields of a request that it rejects with 400, as servers that don't know them do.
    """

    def __init__(self, *, key: str | None = None, rejects: Iterable[str] = ()) -> None:
        self.requests: list[Seen] = []
        self.key = key
        self.rejects = frozenset(rejects)
        self._turns: list[Turn] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
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

    def say(self, *replies: Any) -> None:
        """Script the next replies: texts, JSON values or turns."""
        for reply in replies:
            if isinstance(reply, Turn):
                turn = reply
            elif isinstance(reply, str):
                turn = Turn(text=reply)
            else:
                turn = Turn(text=msgspec.json.encode(reply).decode())
            self._turns.append(turn)

    def _answer(self, seen: Seen) -> Turn:
        """Record a request and return the reply to it."""
        with self._lock:
            self.requests.append(seen)
            given = seen.headers.get("x-api-key") or seen.headers.get("authorization", "")
            if self.key is not None and given.removeprefix("Bearer ") != self.key:
                return failing(401, f"the key {given} is not valid")
            unknown = sorted(self.rejects & set(seen.body))
            if unknown:
                return failing(400, f"Unsupported parameter: '{unknown[0]}'")
            if not self._turns:
                return failing(400, "the loopback model has no reply left")
            turn = self._turns.pop(0)
        if turn.delay:
            self._closing.wait(turn.delay)
        return turn


def _handler(model: LoopbackModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            body = msgspec.json.decode(self.rfile.read(length))
            path = self.path.partition("?")[0]
            headers = {name.lower(): value for name, value in self.headers.items()}
            turn = model._answer(Seen(path, headers, body))
            known = path in _STOPS
            content = _content(path, turn, body) if known else _error(path, "no such path")
            try:
                self._send(turn, content, 404 if not known else turn.status)
            except OSError:
                self.close_connection = True  # the client has gone

        def _send(self, turn: Turn, content: bytes, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            if turn.retry_after is not None:
                self.send_header("Retry-After", turn.retry_after)
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if turn.cut else content)
            if turn.cut:
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
            """Print nothing."""

    return Handler


def _content(path: str, turn: Turn, request: Any) -> bytes:
    if turn.body is not None:
        return turn.body
    if turn.status != 200:
        return _error(path, turn.text)
    stop = _STOPS[path].get(turn.stop, turn.stop)
    make = _anthropic if path == ANTHROPIC else _openai
    return msgspec.json.encode(make(turn, stop, str(request.get("model"))))


def _error(path: str, message: str) -> bytes:
    error = {"type": "invalid_request_error", "message": message}
    whole = {"type": "error", "error": error} if path == ANTHROPIC else {"error": error}
    return msgspec.json.encode(whole)


def _anthropic(turn: Turn, stop: str, model: str) -> dict[str, Any]:
    usage = {
        "input_tokens": turn.input_tokens - turn.cached_tokens,
        "cache_read_input_tokens": turn.cached_tokens,
        "output_tokens": turn.output_tokens,
    }
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": turn.text}] if turn.text else [],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": usage if turn.counts else None,
    }


def _openai(turn: Turn, stop: str, model: str) -> dict[str, Any]:
    usage = {
        "prompt_tokens": turn.input_tokens,
        "completion_tokens": turn.output_tokens,
        "total_tokens": turn.input_tokens + turn.output_tokens,
        "prompt_tokens_details": {"cached_tokens": turn.cached_tokens},
    }
    message = {"role": "assistant", "content": turn.text, "refusal": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": stop}],
        "usage": usage if turn.counts else None,
    }
