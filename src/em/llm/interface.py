"""What the rest of em knows of a model: ask it, get a completion, see what was spent."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec

from em.values.canonical import Json


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Literal["user", "assistant"]
    text: str


class Tokens(msgspec.Struct, frozen=True):
    """What was read and written. `cached` is the part of `input` that came from a cache."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            self.input + other.input, self.output + other.output, self.cached + other.cached
        )


class Spent(msgspec.Struct, frozen=True):
    """A running total. `calls` counts answers; `cost_usd` is None once a price was not known."""

    calls: int = 0
    tokens: Tokens = Tokens()
    cost_usd: float | None = 0.0


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """An answer.

    value: the parsed answer, checked by its schema; None where no schema was given.
    attempts: how many requests were sent for it, retries and corrections included.
    stop: `end`, `max_tokens` (the text is cut off), or the provider's own word.
    """

    text: str
    value: Any = None
    usage: Tokens = Tokens()
    cost_usd: float | None = None
    model: str = ""
    seconds: float = 0.0
    attempts: int = 1
    stop: str = "end"


class LlmClient(Protocol):
    """A model that can be asked. Safe to share between threads."""

    provider: str
    model: str

    @property
    def spent(self) -> Spent:
        """Everything this client has spent so far."""

    def complete(
        self,
        prompt: str | Sequence[Message],
        *,
        system: str = "",
        schema: Json | None = None,
        name: str = "answer",
        max_tokens: int = 4096,
        temperature: float | None = None,
    ) -> Completion:
        """Ask, and wait for the answer. Raises `LlmError`.

        schema: a JSON Schema that the answer must fit; `name` says what the answer is.
        """


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One question, as a wire sends it and as a script sees it."""

    messages: tuple[Message, ...]
    system: str = ""
    schema: Json | None = None
    name: str = "answer"
    max_tokens: int = 4096
    temperature: float | None = None

    @property
    def prompt(self) -> str:
        """What was said last."""
        return self.messages[-1].text


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer as it came over the wire. `usage` is None where the server tells none."""

    text: str
    stop: str = "end"
    usage: Tokens | None = None
    model: str = ""
    refusal: str | None = None


class WireError(Exception):
    """A request that got no usable reply.

    status: the HTTP status, 0 where the connection failed.
    retry_after: how long the server asks to wait, in seconds.
    adapted: the wire has learnt what the server wants; the same request is sent again at once. A
    wire may say so once for each thing it can learn.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        retry_after: float | None = None,
        adapted: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after = retry_after
        self.adapted = adapted


class Wire(Protocol):
    """Sends one request, once. What a new protocol implements; all the rest is in `Client`."""

    def fits(self, schema: Json) -> bool:
        """Whether the protocol's own structured mode takes this schema."""

    def send(self, request: Request, *, structured: bool) -> Reply:
        """Send it; with `structured`, ask the server to hold the answer to the schema.

        Raises WireError.
        """
