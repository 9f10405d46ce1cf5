"""A scripted reply of a model: its text, its tool calls, and how it fails on request."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


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
