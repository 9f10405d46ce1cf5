"""A scripted model server on loopback. It speaks three protocols, streams, and fails on request.

A `Turn` is a scripted reply: its text, its tool calls, and how it fails.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import msgspec

from em.values.canonical import Json


class ModelCall(msgspec.Struct, frozen=True):
    """A tool call of the model. `args` as a text is the input of a free-form tool (Responses).

    id: by default the server numbers its calls. namespace: the group of tools that it belongs to
    (Responses).
    """

    name: str
    args: Mapping[str, Any] | str
    id: str = ""
    namespace: str = ""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One reply of the server. It is streamed if the request asks for that.

    calls: tool calls that follow the text.
    status: if it is not 200, `text` is the message of the error.
    delay: seconds to wait before replying.
    pace: seconds to wait before each event of a stream.
    cut: close the connection in the middle of the body or the stream.
    malformed: end the stream with an event whose data is not JSON.
    body: send these bytes as the body.
    counts: whether to report tokens.
    number: which reply of the server this is; the server sets it.
    """

    text: str = ""
    calls: Sequence[ModelCall] = ()
    stop: str = "end"
    status: int = 200
    retry_after: str | None = None
    delay: float = 0.0
    pace: float = 0.0
    cut: bool = False
    malformed: bool = False
    body: bytes | None = None
    input_tokens: int = 11
    output_tokens: int = 7
    cached_tokens: int = 0
    counts: bool = True
    number: int = 1


def turn_of(reply: Any) -> Turn:
    """Return the turn of a reply: a text, a JSON value or a turn."""
    if isinstance(reply, Turn):
        return reply
    return Turn(text=reply if isinstance(reply, str) else msgspec.json.encode(reply).decode())


def calling(name: str, args: Mapping[str, Any] | str, text: str = "") -> Turn:
    """Reply with one tool call, after a text."""
    return Turn(text=text, calls=[ModelCall(name, args)])


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
    """Close the connection in the middle of the body or the stream."""
    return Turn(text=text, cut=True)


def broken_body() -> Turn:
    """Reply with a body that is not JSON."""
    return Turn(body=b'{"id": "broken", "content": [{')


def broken_stream(text: str = "begun well") -> Turn:
    """Reply with a stream that begins well and goes on with data that is not JSON."""
    return Turn(text=text, malformed=True)


def refusal(text: str = "I won't.") -> Turn:
    """Reply with a refusal."""
    return Turn(text=text, stop="refusal")


def truncated(text: str) -> Turn:
    """Reply with a text that was cut at max_tokens."""
    return Turn(text=text, stop="max_tokens")


PIECE = 12
"""How many characters one event of a stream carries."""


class StreamEvent(NamedTuple):
    """An event of a stream. Without a name only its data is sent."""

    name: str
    data: Any

    def encode(self) -> bytes:
        """Return the event as it is sent."""
        head = f"event: {self.name}\n".encode() if self.name else b""
        data = self.data.encode() if isinstance(self.data, str) else msgspec.json.encode(self.data)
        return head + b"data: " + data + b"\n\n"


class ModelProtocol(Protocol):
    """How one provider writes replies."""

    def body(self, turn: Turn, request: Json) -> Json:
        """Return a reply as one body."""

    def stream(self, turn: Turn, request: Json) -> Iterator[StreamEvent]:
        """Yield the events of a reply."""

    def error(self, message: str) -> Json:
        """Return the body of an error."""


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), PIECE):
        yield text[start : start + PIECE]


def _written(call: ModelCall) -> str:
    return call.args if isinstance(call.args, str) else msgspec.json.encode(call.args).decode()


def _error(message: str) -> Json:
    return {"type": "invalid_request_error", "message": message}


class AnthropicMessages:
    """Anthropic Messages: a message is a list of blocks, and each block is streamed in turn."""

    def body(self, turn: Turn, request: Json) -> Json:
        """Return a reply as one body."""
        blocks: list[Json] = [{"type": "text", "text": turn.text}] if turn.text else []
        for call in turn.calls:
            blocks.append(_tool_use(call, call.args))
        return self._message(turn, request) | {"content": blocks, "stop_reason": _ended(turn)}

    def stream(self, turn: Turn, request: Json) -> Iterator[StreamEvent]:
        """Yield the events of a reply."""
        message = self._message(turn, request)
        yield _typed("message_start", message=message)
        yield _typed("ping")
        blocks: list[tuple[Json, str, str]] = []
        if turn.text:
            blocks.append(({"type": "text", "text": ""}, "text", turn.text))
        for call in turn.calls:
            blocks.append((_tool_use(call, {}), "partial_json", _written(call)))
        kinds = {"text": "text_delta", "partial_json": "input_json_delta"}
        for index, (block, field, content) in enumerate(blocks):
            yield _typed("content_block_start", index=index, content_block=block)
            for piece in _pieces(content):
                delta = {"type": kinds[field], field: piece}
                yield _typed("content_block_delta", index=index, delta=delta)
            yield _typed("content_block_stop", index=index)
        end = {"stop_reason": _ended(turn), "stop_sequence": None}
        yield _typed("message_delta", delta=end, usage={"output_tokens": turn.output_tokens})
        yield _typed("message_stop")

    def error(self, message: str) -> Json:
        """Return the body of an error."""
        return {"type": "error", "error": _error(message)}

    def _message(self, turn: Turn, request: Json) -> Json:
        usage = {
            "input_tokens": turn.input_tokens - turn.cached_tokens,
            "cache_read_input_tokens": turn.cached_tokens,
            "output_tokens": turn.output_tokens,
        }
        return {
            "id": f"msg_{turn.number}",
            "type": "message",
            "role": "assistant",
            "model": str(request.get("model")),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage if turn.counts else None,
        }


def _tool_use(call: ModelCall, args: Mapping[str, Any] | str) -> Json:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": args}


def _ended(turn: Turn) -> str:
    if turn.calls:
        return "tool_use"
    return "end_turn" if turn.stop == "end" else turn.stop


def _typed(kind: str, **data: Any) -> StreamEvent:
    return StreamEvent(kind, {"type": kind, **data})


class OpenAIChat:
    """OpenAI chat completions: one message, streamed as differences to it."""

    _stops: Mapping[str, str] = {"end": "stop", "max_tokens": "length", "refusal": "content_filter"}

    def body(self, turn: Turn, request: Json) -> Json:
        """Return a reply as one body."""
        message: Json = {"role": "assistant", "content": turn.text, "refusal": None}
        if turn.calls:
            message["tool_calls"] = [_chat_call(call, _written(call)) for call in turn.calls]
        choice = {"index": 0, "message": message, "finish_reason": self._stop(turn)}
        whole = self._whole("chat.completion", turn, request)
        return whole | {"choices": [choice], "usage": self._usage(turn)}

    def stream(self, turn: Turn, request: Json) -> Iterator[StreamEvent]:
        """Yield the events of a reply."""
        whole = self._whole("chat.completion.chunk", turn, request)

        def chunk(delta: Json, stop: str | None = None) -> StreamEvent:
            choice = {"index": 0, "delta": delta, "finish_reason": stop}
            return StreamEvent("", whole | {"choices": [choice]})

        yield chunk({"role": "assistant", "content": ""})
        for piece in _pieces(turn.text):
            yield chunk({"content": piece})
        for index, call in enumerate(turn.calls):
            yield chunk({"tool_calls": [{"index": index, **_chat_call(call, "")}]})
            for piece in _pieces(_written(call)):
                more = {"index": index, "function": {"arguments": piece}}
                yield chunk({"tool_calls": [more]})
        yield chunk({}, self._stop(turn))
        if (request.get("stream_options") or {}).get("include_usage"):
            yield StreamEvent("", whole | {"choices": [], "usage": self._usage(turn)})
        yield StreamEvent("", "[DONE]")

    def error(self, message: str) -> Json:
        """Return the body of an error."""
        return {"error": _error(message)}

    def _stop(self, turn: Turn) -> str:
        return "tool_calls" if turn.calls else self._stops.get(turn.stop, turn.stop)

    def _whole(self, kind: str, turn: Turn, request: Json) -> Json:
        return {
            "id": f"chatcmpl-{turn.number}",
            "object": kind,
            "created": 1,
            "model": str(request.get("model")),
        }

    def _usage(self, turn: Turn) -> Json | None:
        if not turn.counts:
            return None
        return {
            "prompt_tokens": turn.input_tokens,
            "completion_tokens": turn.output_tokens,
            "total_tokens": turn.input_tokens + turn.output_tokens,
            "prompt_tokens_details": {"cached_tokens": turn.cached_tokens},
        }


def _chat_call(call: ModelCall, arguments: str) -> Json:
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


class OpenAIResponses:
    """OpenAI Responses: a list of items; each event of a stream has a number."""

    def body(self, turn: Turn, request: Json) -> Json:
        """Return a reply as one body."""
        items: list[Json] = []
        if turn.text:
            items.append(_message_item(turn, [_part(turn, turn.text)]))
        items += [_call_item(call, _written(call)) for call in turn.calls]
        cut = turn.stop == "max_tokens"
        return self._response(turn, request) | {
            "output": items,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": self._usage(turn),
        }

    def stream(self, turn: Turn, request: Json) -> Iterator[StreamEvent]:
        """Yield the events of a reply."""
        for number, event in enumerate(self._events(turn, request)):
            yield event._replace(data=event.data | {"sequence_number": number})

    def error(self, message: str) -> Json:
        """Return the body of an error."""
        return {"error": _error(message)}

    def _events(self, turn: Turn, request: Json) -> Iterator[StreamEvent]:
        begun = self._response(turn, request)
        yield _typed("response.created", response=begun)
        yield _typed("response.in_progress", response=begun)
        index = 0
        if turn.text:
            yield from _message_events(turn)
            index = 1
        for at, call in enumerate(turn.calls, index):
            yield from _call_events(call, at)
        whole = self.body(turn, request)
        yield _typed(f"response.{whole['status']}", response=whole)

    def _response(self, turn: Turn, request: Json) -> Json:
        return {
            "id": f"resp_{turn.number}",
            "object": "response",
            "created_at": 1,
            "model": str(request.get("model")),
            "status": "in_progress",
            "output": [],
            "tools": [],
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "usage": None,
        }

    def _usage(self, turn: Turn) -> Json | None:
        if not turn.counts:
            return None
        return {
            "input_tokens": turn.input_tokens,
            "input_tokens_details": {"cached_tokens": turn.cached_tokens},
            "output_tokens": turn.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": turn.input_tokens + turn.output_tokens,
        }


def _part(turn: Turn, text: str) -> Json:
    if turn.stop == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": []}


def _message_item(turn: Turn, parts: list[Json], status: str = "completed") -> Json:
    return {
        "id": f"msg_{turn.number}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": parts,
    }


def _call_item(call: ModelCall, written: str, status: str = "completed") -> Json:
    custom = isinstance(call.args, str)
    group = {"namespace": call.namespace} if call.namespace else {}
    return group | {
        "id": f"fc_{call.id}",
        "type": "custom_tool_call" if custom else "function_call",
        "status": status,
        "call_id": call.id,
        "name": call.name,
        "input" if custom else "arguments": written,
    }


def _message_events(turn: Turn) -> Iterator[StreamEvent]:
    kind = "refusal" if turn.stop == "refusal" else "output_text"
    field = "refusal" if turn.stop == "refusal" else "text"
    place = {"item_id": f"msg_{turn.number}", "output_index": 0, "content_index": 0}
    item = _message_item(turn, [], "in_progress")
    yield _typed("response.output_item.added", output_index=0, item=item)
    yield _typed("response.content_part.added", **place, part=_part(turn, ""))
    for piece in _pieces(turn.text):
        yield _typed(f"response.{kind}.delta", **place, delta=piece, logprobs=[])
    yield _typed(f"response.{kind}.done", **place, logprobs=[], **{field: turn.text})
    part = _part(turn, turn.text)
    yield _typed("response.content_part.done", **place, part=part)
    yield _typed("response.output_item.done", output_index=0, item=_message_item(turn, [part]))


def _call_events(call: ModelCall, index: int) -> Iterator[StreamEvent]:
    custom = isinstance(call.args, str)
    kind = "custom_tool_call_input" if custom else "function_call_arguments"
    written = _written(call)
    place = {"item_id": f"fc_{call.id}", "output_index": index}
    begun = _call_item(call, "", "in_progress")
    yield _typed("response.output_item.added", output_index=index, item=begun)
    for piece in _pieces(written):
        yield _typed(f"response.{kind}.delta", **place, delta=piece)
    last = {"input": written} if custom else {"arguments": written, "name": call.name}
    yield _typed(f"response.{kind}.done", **place, **last)
    yield _typed("response.output_item.done", output_index=index, item=_call_item(call, written))


PROTOCOLS: Mapping[str, ModelProtocol] = {
    "/v1/messages": AnthropicMessages(),
    "/v1/chat/completions": OpenAIChat(),
    "/v1/responses": OpenAIResponses(),
}
"""Each protocol by the path of its requests."""


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
