"""Wires: send one request to a provider, once, through its official SDK.

A new protocol implements `Wire` here; retries, corrections and counting are in `client`. The SDKs
are imported when a wire is made.
"""

import json
import re
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import msgspec

from em.errors import MissingExtra
from em.values.canonical import Json


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: Literal["user", "assistant"]
    text: str


class Tokens(msgspec.Struct, frozen=True):
    """Tokens read and written. `cached` is the part of `input` that came from a cache."""

    input: int = 0
    output: int = 0
    cached: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return Tokens(
            self.input + other.input, self.output + other.output, self.cached + other.cached
        )


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a model, as a wire sends it and as a script gets it."""

    messages: tuple[Message, ...]
    system: str = ""
    schema: Json | None = None
    name: str = "answer"
    max_tokens: int = 4096
    temperature: float | None = None

    @property
    def prompt(self) -> str:
        """The text of the last message."""
        return self.messages[-1].text


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One answer from a wire. `usage` is None if the server sends none."""

    text: str
    stop: str = "end"
    usage: Tokens | None = None
    model: str = ""
    refusal: str | None = None


class WireError(Exception):
    """A request that got no usable reply.

    status: the HTTP status, or 0 if the connection failed.
    retry_after: how long the server asks to wait, in seconds.
    adapted: the wire changed how it sends, so the client repeats the request at once. A wire may
    set it once for each thing that it can adapt.
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
    """A protocol that sends one request, once. `Client` does all the rest."""

    def fits(self, schema: Json) -> bool:
        """Whether the protocol's structured mode accepts this schema."""

    def send(self, request: Request, *, structured: bool) -> Reply:
        """Send a request; with `structured`, ask the server to enforce the schema.

        Raises WireError.
        """


def is_closed(schema: Any) -> bool:
    """Whether a schema is of an object that, like all objects in it, lists all its properties.

    The structured modes of providers require that; a free-form object would come back empty.
    """
    return isinstance(schema, dict) and schema.get("type") == "object" and _closed(schema)


def _closed(part: Any) -> bool:
    if isinstance(part, list):
        return all(map(_closed, part))
    if not isinstance(part, dict):
        return True
    if part.get("$ref") is not None and not str(part["$ref"]).startswith("#/$defs/"):
        return False
    kind = part.get("type")
    is_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
    if is_object and (part.get("additionalProperties") is not False or "properties" not in part):
        return False
    if _TYPED.isdisjoint(part):
        return False
    names = ("properties", "$defs", "definitions")
    below = [sub for name in names for sub in part.get(name, {}).values()]
    below += [part[name] for name in ("items", "anyOf", "allOf", "oneOf") if name in part]
    return all(map(_closed, below))


_TYPED = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})
"""Keys of a schema that says what its values are."""


def all_required(schema: Any) -> bool:
    """Whether every property of every object is required, as OpenAI's strict mode demands."""
    if isinstance(schema, list):
        return all(map(all_required, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if isinstance(properties, dict) and set(properties) != set(schema.get("required", ())):
        return False
    return all(map(all_required, schema.values()))


LONGEST_MESSAGE = 500


@contextmanager
def as_wire_errors(sdk: Any, key: str) -> Iterator[None]:
    """Turn an SDK's errors into a WireError that never shows the key.

    Both SDKs come from one generator and have the same errors.
    """
    try:
        yield
    except sdk.APIStatusError as error:
        raise WireError(
            _without(key, _message(error)),
            status=error.status_code,
            retry_after=_retry_after(error.response.headers),
        ) from None
    except sdk.APITimeoutError:
        raise WireError("no answer within the timeout") from None
    except sdk.APIConnectionError as error:
        cause = error.__cause__ or error
        raise WireError(_without(key, f"the connection failed: {cause}")) from None
    except (sdk.APIError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise WireError(_without(key, f"the reply can't be read: {error}")) from None


@contextmanager
def refuse_misshaped() -> Iterator[None]:
    """Turn a reply of the wrong shape into a WireError: the SDKs pass on any body."""
    try:
        yield
    except (AttributeError, IndexError, TypeError) as error:
        raise WireError(f"the reply does not follow the protocol: {error}") from None


def _message(error: Any) -> str:
    """Return the server's own message, or the SDK's."""
    body = error.body
    if isinstance(body, dict):
        inner = body.get("error", body)
        if isinstance(inner, dict) and isinstance(inner.get("message"), str):
            return str(inner["message"])
    return str(error.message)


def _without(key: str, text: str) -> str:
    """Remove the key from a message: servers may repeat a key that they reject."""
    text = text.replace(key, "[key]") if key else text
    return text[:LONGEST_MESSAGE]


def _retry_after(headers: Any) -> float | None:
    """Return how long a server asks to wait; the header has seconds, or a date."""
    from email.utils import parsedate_to_datetime

    value = headers.get("retry-after")
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


_ANTHROPIC_STOPS = {"end_turn": "end", "stop_sequence": "end"}


class AnthropicWire:
    """One model over the Messages protocol of Anthropic."""

    def __init__(self, *, key: str, base_url: str, model: str, timeout: float) -> None:
        try:
            import anthropic
        except ImportError:
            raise MissingExtra("anthropic", "asking a model over Anthropic's protocol") from None
        self._sdk = anthropic
        self._key = key
        self._model = model
        self._client = anthropic.Anthropic(
            api_key=key, base_url=base_url, timeout=timeout, max_retries=0
        )
        weakref.finalize(self, self._client.close)

    def fits(self, schema: Json) -> bool:
        """`output_config` accepts closed schemas."""
        return is_closed(schema)

    def send(self, request: Request, *, structured: bool) -> Reply:
        """Send a request once."""
        with as_wire_errors(self._sdk, self._key):
            message = self._client.messages.create(**self._options(request, structured))
        with refuse_misshaped():
            return _anthropic_reply(message)

    def _options(self, request: Request, structured: bool) -> dict[str, Any]:
        messages = [{"role": turn.role, "content": turn.text} for turn in request.messages]
        options: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "max_tokens": request.max_tokens,
        }
        if request.system:
            options["system"] = request.system
        if request.temperature is not None:
            # The SDK dropped this argument; servers with other models still accept it.
            options["extra_body"] = {"temperature": request.temperature}
        if structured and request.schema is not None:
            # Not a forced tool: models that always think refuse one. The SDK removes from the
            # schema what the server can't enforce; the client checks all of it.
            schema = self._sdk.transform_schema(request.schema)
            options["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
        return options


def _anthropic_reply(message: Any) -> Reply:
    text = "".join(block.text for block in message.content if block.type == "text")
    stop = str(message.stop_reason or "end_turn")
    return Reply(
        text=text,
        stop=_ANTHROPIC_STOPS.get(stop, stop),
        usage=_anthropic_usage(getattr(message, "usage", None)),
        model=str(message.model or ""),
        refusal=text if stop == "refusal" else None,
    )


def _anthropic_usage(usage: Any) -> Tokens | None:
    if usage is None:
        return None
    cached = usage.cache_read_input_tokens or 0
    written = usage.cache_creation_input_tokens or 0
    return Tokens((usage.input_tokens or 0) + cached + written, usage.output_tokens or 0, cached)


_OPENAI_STOPS = {"stop": "end", "length": "max_tokens"}
NEW_LIMIT, OLD_LIMIT = "max_completion_tokens", "max_tokens"


class OpenAIWire:
    """One model over the Chat Completions protocol of OpenAI, which many servers speak.

    new_limit: send `max_completion_tokens`, the only limit that OpenAI's reasoning models accept;
    many other servers accept only `max_tokens`. The wire switches when the server asks for it.
    """

    def __init__(
        self, *, key: str, base_url: str, model: str, timeout: float, new_limit: bool
    ) -> None:
        try:
            import openai
        except ImportError:
            raise MissingExtra("openai", "asking a model over OpenAI's protocol") from None
        self._sdk = openai
        self._key = key
        self._model = model
        self._limit = NEW_LIMIT if new_limit else OLD_LIMIT
        self._client = openai.OpenAI(api_key=key, base_url=base_url, timeout=timeout, max_retries=0)
        weakref.finalize(self, self._client.close)

    def fits(self, schema: Json) -> bool:
        """`response_format` accepts any schema of an object."""
        return schema.get("type") == "object"

    def send(self, request: Request, *, structured: bool) -> Reply:
        """Send a request once."""
        try:
            with as_wire_errors(self._sdk, self._key):
                options = self._options(request, structured)
                completion = self._client.chat.completions.create(**options)
        except WireError as error:
            if error.status == 400 and self._limit == OLD_LIMIT and NEW_LIMIT in error.message:
                self._limit = NEW_LIMIT
                raise WireError(error.message, status=400, adapted=True) from None
            raise
        with refuse_misshaped():
            return _openai_reply(completion)

    def _options(self, request: Request, structured: bool) -> dict[str, Any]:
        messages = [{"role": turn.role, "content": turn.text} for turn in request.messages]
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        options: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            self._limit: request.max_tokens,
        }
        if request.temperature is not None:
            options["temperature"] = request.temperature
        if structured and request.schema is not None:
            form = {
                "name": re.sub(r"[^A-Za-z0-9_-]+", "_", request.name)[:64] or "answer",
                "schema": request.schema,
                "strict": is_closed(request.schema) and all_required(request.schema),
            }
            options["response_format"] = {"type": "json_schema", "json_schema": form}
        return options


def _openai_reply(completion: Any) -> Reply:
    choice = completion.choices[0]
    stop = str(choice.finish_reason or "stop")
    refusal = choice.message.refusal
    if refusal is None and stop == "content_filter":
        refusal = choice.message.content or ""
    return Reply(
        text=choice.message.content or "",
        stop=_OPENAI_STOPS.get(stop, stop),
        usage=_openai_usage(getattr(completion, "usage", None)),
        model=str(completion.model or ""),
        refusal=refusal,
    )


def _openai_usage(usage: Any) -> Tokens | None:
    if usage is None:
        return None
    details = getattr(usage, "prompt_tokens_details", None)
    cached = getattr(details, "cached_tokens", None) or 0
    return Tokens(usage.prompt_tokens or 0, usage.completion_tokens or 0, cached)
