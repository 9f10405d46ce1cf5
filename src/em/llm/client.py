"""Ask a model: retries, corrections, counting and errors, the same for every provider.

`LlmClient` is what the rest of em knows of a model; `Client` implements it over a `Wire`. To get
structured data from a model, use `ask_struct`.
"""

import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from em import telemetry
from em.errors import BadAnswer, LlmError, LlmRefused, LlmRejected, LlmUnavailable, UsageError
from em.llm.wires import Message, Reply, Request, Tokens, Wire, WireError
from em.redaction.redactor import Redactor
from em.settings import Price
from em.values import json_schema
from em.values.canonical import Json
from em.values.json_schema import schema_problem
from em.values.mismatch import mismatch


class Spent(msgspec.Struct, frozen=True):
    """A running total. `calls` counts answers; `cost_usd` is None after an unknown price."""

    calls: int = 0
    tokens: Tokens = Tokens()
    cost_usd: float | None = 0.0


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """An answer.

    value: the parsed answer, valid by the schema; None without a schema.
    attempts: the requests that it took, with retries and corrections.
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
    """A model to ask. Safe to share between threads."""

    provider: str
    model: str

    @property
    def spent(self) -> Spent:
        """Everything that this client has spent so far."""

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
        """Ask and wait for the answer. Raises `LlmError`.

        schema: a JSON Schema that the answer must fit; `name` says what the answer is.
        """


PRICES = {
    "claude-fable-5-1": Price(10, 50),
    "claude-haiku-4-5": Price(1, 5),
    "claude-opus-5": Price(5, 25, 0.5),
    "claude-opus-5-5": Price(4, 20),
    "claude-sonnet-5": Price(2, 10, 0.2),
    "claude-sonnet-5-5": Price(2, 10, 0.2),
}
"""USD per million tokens, from the model pages of platform.claude.com in November 2026."""


def cost_of(price: Price | None, usage: Tokens | None) -> float | None:
    """Return the cost of an answer, or None if the price or the count is unknown."""
    if price is None or usage is None:
        return None
    if usage.cached and price.cached is None:
        return None
    fresh = usage.input - usage.cached
    total = fresh * price.input + usage.cached * (price.cached or 0) + usage.output * price.output
    return total / 1e6


FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds between retries. Each wait is twice the last one. A server that asks for more than the
longest wait gets no retry."""
CORRECTIONS = 2
TRANSIENT = frozenset({0, 408, 409, 425, 429, 529})
UNPROCESSABLE = frozenset({400, 415, 422, 501})
"""HTTP statuses of servers that don't support their protocol's structured mode."""


class Client:
    """A client for one model.

    max_retries: how often to repeat a request after a temporary failure.
    key_hint: the variable that holds the key, for the error about a rejected key.
    sleep: waits between retries.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        provider: str,
        model: str,
        price: Price | None = None,
        max_retries: int = 4,
        key_hint: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.provider = provider
        self.model = model
        self._wire = wire
        self._price = price
        self._max_retries = max_retries
        self._key_hint = key_hint
        self._sleep = sleep
        self._lock = threading.Lock()
        self._spent = Spent()
        # Schemas that the server's structured mode rejected: these go into the prompt.
        self._in_words: set[bytes] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {_place_of(self)}>"

    @property
    def spent(self) -> Spent:
        """Everything that this client has spent so far."""
        with self._lock:
            return self._spent

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
        """Ask and wait for the answer. See `LlmClient`."""
        messages = (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
        if not messages:
            raise UsageError("the prompt has no message", place="prompt")
        if schema is not None and (problem := schema_problem(schema)):
            raise UsageError(f"not a valid JSON Schema: {problem}", place="schema")
        request = Request(
            messages=messages,
            system=system,
            schema=schema,
            name=name,
            max_tokens=max_tokens,
            temperature=temperature,
        )
        with telemetry.span("em.model_call", {"gen_ai.request.model": self.model}) as span:
            completion = _Call(self).run(request)
            span.set("gen_ai.usage.input_tokens", completion.usage.input)
            span.set("gen_ai.usage.output_tokens", completion.usage.output)
        return completion

    def _account(self, usage: Tokens | None) -> float | None:
        """Add one answer to the total; return its cost."""
        cost = cost_of(self._price, usage)
        with self._lock:
            before = self._spent
            known = cost is not None and before.cost_usd is not None
            self._spent = Spent(
                before.calls + 1,
                before.tokens + (usage or Tokens()),
                (before.cost_usd or 0.0) + (cost or 0.0) if known else None,
            )
        return cost


class _Call:
    """One call of `complete`, with its attempts, tokens and cost."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._start = time.perf_counter()
        self._attempts = 0
        self._usage = Tokens()
        self._cost: float | None = 0.0

    def run(self, request: Request) -> Completion:
        for _ in range(CORRECTIONS + 1):
            reply = self._answer(request)
            if request.schema is None:
                return self._completion(reply, None)
            value, problems = read(reply.text, request.schema)
            if not problems:
                return self._completion(reply, value)
            if reply.stop == "max_tokens":
                raise self._cut_off(request)
            turns = _again(reply.text, problems, request.schema)
            request = msgspec.structs.replace(request, messages=(*request.messages, *turns))
        raise _unfit(self._client, problems)

    def _answer(self, request: Request) -> Reply:
        """Return a reply that is not empty and not a refusal."""
        reply = self._send(request)
        cost = self._client._account(reply.usage)
        self._usage += reply.usage or Tokens()
        self._cost = None if cost is None or self._cost is None else self._cost + cost
        if reply.refusal is not None:
            why = f": {reply.refusal}" if reply.refusal else ""
            raise self._error(LlmRefused, f"the model refused to answer{why}")
        if not reply.text.strip() and request.schema is None:
            if reply.stop == "max_tokens":
                raise self._cut_off(request)
            raise self._error(BadAnswer, "the answer is empty", problems=["the answer is empty"])
        return reply

    def _send(self, request: Request) -> Reply:
        """Send in the protocol's structured mode if schema and server allow it, else in words."""
        client, schema = self._client, request.schema
        if schema is None:
            return self._tried(request)
        key = msgspec.json.encode(schema, order="sorted")
        not_taken = False
        if key not in client._in_words and client._wire.fits(schema):
            try:
                return self._tried(request, structured_mode=True)
            except _Unprocessable:
                not_taken = True
        system = "\n\n".join(filter(None, (request.system, in_words(schema))))
        reply = self._tried(msgspec.structs.replace(request, system=system))
        if not_taken:
            client._in_words.add(key)
        return reply

    def _tried(self, request: Request, *, structured_mode: bool = False) -> Reply:
        """Send, and retry temporary failures: after doubling waits, or when the server says."""
        client = self._client
        retry = 0
        while True:
            self._attempts += 1
            try:
                return client._wire.send(request, structured=structured_mode)
            except WireError as error:
                if error.adapted:
                    continue
                if structured_mode and error.status in UNPROCESSABLE:
                    raise _Unprocessable from error
                if not _may_pass(error):
                    raise self._rejected(error) from error
                wait = _wait(retry, error)
                if retry == client._max_retries or wait > LONGEST_WAIT:
                    raise self._unavailable(error, wait) from error
            client._sleep(wait)
            retry += 1

    def _rejected(self, error: WireError) -> LlmError:
        if error.status in (401, 403):
            hint = self._client._key_hint
            return self._error(
                LlmRejected,
                f"the provider rejected the key (HTTP {error.status})",
                fix=f"check {hint}" if hint else "",
                status=error.status,
            )
        return self._error(
            LlmRejected,
            f"the provider rejected the request (HTTP {error.status}): {error.message}",
            fix="check the model's name and the base URL" if error.status == 404 else "",
            status=error.status,
        )

    def _unavailable(self, error: WireError, wait: float) -> LlmError:
        what = f"HTTP {error.status}: {error.message}" if error.status else error.message
        asked = error.retry_after is not None and wait > LONGEST_WAIT
        return self._error(
            LlmUnavailable,
            f"no answer in {self._attempts} tries: {what}",
            fix=f"the server asks to wait {wait:.0f} s" if asked else "try again later",
            status=error.status,
            attempts=self._attempts,
        )

    def _cut_off(self, request: Request) -> LlmError:
        problem = f"the answer was cut off at max_tokens={request.max_tokens}"
        return self._error(BadAnswer, problem, fix="raise max_tokens", problems=[problem])

    def _error(self, kind: type[LlmError], message: str, *, fix: str = "", **data: Any) -> LlmError:
        return kind(message, place=_place_of(self._client), fix=fix, **data)

    def _completion(self, reply: Reply, value: Any) -> Completion:
        return Completion(
            text=reply.text,
            value=value,
            usage=self._usage,
            cost_usd=self._cost,
            model=reply.model or self._client.model,
            seconds=time.perf_counter() - self._start,
            attempts=self._attempts,
            stop=reply.stop,
        )


class _Unprocessable(Exception):
    """The server rejected the structured mode; it may accept the same request in words."""


def _may_pass(error: WireError) -> bool:
    return error.status in TRANSIENT or (error.status >= 500 and error.status != 501)


def _wait(retry: int, error: WireError) -> float:
    if error.retry_after is not None:
        return error.retry_after
    longest = min(FIRST_WAIT * 2.0**retry, LONGEST_WAIT)
    # Half of it is random, so that many clients don't retry at the same moment.
    return longest * (0.5 + random.random() / 2)  # noqa: S311 - not for secrets


@lru_cache(maxsize=1)
def _redactor() -> Redactor:
    return Redactor()


T = TypeVar("T", bound=msgspec.Struct)


class Answer(NamedTuple, Generic[T]):
    """What a model returned, as a Struct, and the completion that it was read from."""

    value: T
    completion: Completion


def ask_struct(
    client: LlmClient,
    kind: type[T],
    prompt: str | Sequence[Message],
    *,
    choices: Mapping[str, Sequence[str]] | None = None,
    system: str = "",
    name: str = "answer",
    max_tokens: int = 4096,
    redacted: bool = False,
) -> Answer[T]:
    """Ask a model for a Struct. The one way to get structured data from a model.

    The schema that goes to the model is derived from `kind` (see `struct_schema`). An answer that
    the schema or the Struct's `__post_init__` refuses goes back to the model with the problem;
    after three tries this raises BadAnswer. Other errors are those of `LlmClient.complete`; what
    else a client raises is an LlmUnavailable with it as the cause.

    choices: the values that fields of these names may have, for those known only at run time.
    redacted: the prompt has no secrets, because its values were redacted one by one.

        class Query(msgspec.Struct):
            code: str
            tables: list[str]

        query, _ = ask_struct(client, Query, "…", choices={"tables": names}, name="query")
    """
    schema = struct_schema(kind, choices or {})
    clean = _redactor().text  # no model needs a recognisable secret
    given = [Message("user", prompt)] if isinstance(prompt, str) else prompt
    messages = [Message(one.role, one.text if redacted else clean(one.text)) for one in given]
    for _ in range(CORRECTIONS + 1):
        with _as_llm_errors(client):
            completion = client.complete(
                messages,
                system=clean(system),
                schema=schema,
                name=name,
                max_tokens=max_tokens,
            )
            value = completion.value
        try:
            # Not strict: JSON Schema takes 1.0 for an integer.
            return Answer(msgspec.convert(value, kind, strict=False), completion)
        except msgspec.ValidationError as error:
            problem = mismatch(error).place("the answer") + f": {mismatch(error).message}"
            messages += _again(completion.text, [problem], schema)
    raise _unfit(client, [problem])


@contextmanager
def _as_llm_errors(client: LlmClient) -> Iterator[None]:
    """Raise whatever a client raises as an LlmError: callers go on without a model then."""
    try:
        yield
    except LlmError:
        raise
    except Exception as error:
        said = _redactor().text(f"{type(error).__name__}: {error}")
        raise LlmUnavailable(f"the client raised {said}", place=_place_of(client)) from error


def _unfit(client: LlmClient, problems: Sequence[str]) -> BadAnswer:
    """Return the error for an answer that does not fit, after all corrections."""
    return BadAnswer(
        f"the answer does not fit its schema after {CORRECTIONS + 1} tries: {problems[0]}",
        place=_place_of(client),
        fix="ask for less at once, or another model",
        problems=list(problems),
    )


def _place_of(client: LlmClient) -> str:
    names = (getattr(client, name, "") for name in ("provider", "model"))
    return " ".join(filter(None, map(str, names))) or type(client).__name__


def struct_schema(kind: type[msgspec.Struct], choices: Mapping[str, Sequence[str]]) -> Json:
    """Derive a JSON Schema from a Struct, in the form that the structured modes of providers take.

    Every object is closed, references are written out (so `kind` must not be recursive), and
    docstrings and defaults are left out. Fields say more with `msgspec.Meta(description=…)`.
    """
    (schema,), definitions = msgspec.json.schema_components([kind])
    return _for_model(schema, definitions, choices)


def _for_model(part: Json, definitions: Json, choices: Mapping[str, Sequence[str]]) -> Json:
    def inner(below: Json) -> Json:
        return _for_model(below, definitions, choices)

    part = {key: value for key, value in part.items() if key not in ("title", "default")}
    if (reference := part.pop("$ref", None)) is not None:
        found = definitions[reference.rpartition("/")[2]]
        part = {**inner({**found, "description": ""}), "additionalProperties": False, **part}
        if not part["description"]:
            del part["description"]
        return part
    if "properties" in part:
        part["properties"] = {
            key: _limited(inner(below), choices.get(key))
            for key, below in part["properties"].items()
        }
    if isinstance(part.get("items"), dict):
        part["items"] = inner(part["items"])
    if isinstance(part.get("additionalProperties"), dict):
        part["additionalProperties"] = inner(part["additionalProperties"])
    if "anyOf" in part:
        part["anyOf"] = [inner(below) for below in part["anyOf"]]
    return part


def _limited(part: Json, choices: Sequence[str] | None) -> Json:
    """Allow only these values in a text, or in a list of texts."""
    if choices is None:
        return part
    if "items" in part:
        return {**part, "items": {**part["items"], "enum": list(choices)}}
    return {**part, "enum": list(choices)}


MAX_PROBLEMS = 20
MAX_STARTS = 20
_THOUGHTS = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)


def in_words(schema: Json) -> str:
    """Ask for a schema in the prompt, for servers that can't enforce one."""
    return (
        "Answer with one JSON value and nothing else: no prose, no code fence."
        f" It must fit this JSON Schema:\n{msgspec.json.encode(schema).decode()}"
    )


def _again(text: str, problems: list[str], schema: Json) -> tuple[Message, Message]:
    """Continue a conversation whose last answer can't be used: the answer and its problems."""
    listed = "\n".join(f"- {problem}" for problem in problems)
    correction = f"That answer can't be used:\n{listed}\n\n{in_words(schema)}"
    return Message("assistant", text or "(nothing)"), Message("user", correction)


def read(text: str, schema: Json) -> tuple[Any, list[str]]:
    """Return the value in a model's text, and its problems."""
    try:
        value = _decode(text)
    except (ValueError, RecursionError) as error:
        return None, [f"expected JSON: {error}"]
    found = json_schema.problems(schema, value)
    problems = [f"{path or 'the value'}: {problem}" for path, problem in found]
    return value, problems[:MAX_PROBLEMS]


def _decode(text: str) -> Any:
    """Decode the whole text; else a code fence in it; else its first object or list."""
    for candidate in (text, *_FENCE.findall(text)):
        try:
            return msgspec.json.decode(candidate)
        except msgspec.DecodeError:
            continue
    problem = "found none in the text"
    text = _THOUGHTS.sub("", text)
    for start in islice(re.finditer(r"[{\[]", text), MAX_STARTS):
        found = text[start.start() :]
        try:
            _, end = json.JSONDecoder().raw_decode(found)
            # Decode with msgspec as above: the standard library accepts NaN.
            return msgspec.json.decode(found[:end])
        except (ValueError, RecursionError) as error:
            problem = str(error)
    raise ValueError(problem)
