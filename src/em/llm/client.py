"""The client: one place for retries, corrections, counting and errors, whatever the protocol."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from em.errors import BadAnswer, LlmError, LlmRefused, LlmRejected, LlmUnavailable, UsageError
from em.llm import structure as structured
from em.llm.interface import Completion, Message, Reply, Request, Spent, Tokens, Wire, WireError
from em.llm.prices import cost_of
from em.settings import Price
from em.values.canonical import Json
from em.values.json_schema import schema_problem

FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds. Waits double from the first one; a server that asks for more than the longest is not
waited for."""
CORRECTIONS = 2
TRANSIENT = frozenset({0, 408, 409, 425, 429, 529})
UNPROCESSABLE = frozenset({400, 415, 422, 501})
"""What servers say to a structured mode that they don't know."""


class Client:
    """Asks one model over a wire.

    max_retries: how often a request is sent again after a failure that may pass.
    key_hint: what a user sets to give another key, told when the key is not taken.
    sleep: how to wait between retries.
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
        # Schemas that the server's structured mode did not take: these are asked for in words.
        self._in_words: set[bytes] = set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._place}>"

    @property
    def _place(self) -> str:
        return f"{self.provider} {self.model}".strip()

    @property
    def spent(self) -> Spent:
        """Everything this client has spent so far."""
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
        """Ask, and wait for the answer. See `LlmClient`."""
        messages = (Message("user", prompt),) if isinstance(prompt, str) else tuple(prompt)
        if not messages:
            raise UsageError("there is nothing to ask", place="prompt")
        if schema is not None and (problem := schema_problem(schema)):
            raise UsageError(f"this is no JSON Schema: {problem}", place="schema")
        request = Request(
            messages=messages,
            system=system,
            schema=schema,
            name=name,
            max_tokens=max_tokens,
            temperature=temperature,
        )
        return _Call(self).run(request)

    def _account(self, usage: Tokens | None) -> float | None:
        """Count one answer; says what it cost."""
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
    """One call of `complete`: what it took is counted here."""

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
            value, problems = structured.read(reply.text, request.schema)
            if not problems:
                return self._completion(reply, value)
            if reply.stop == "max_tokens":
                raise self._cut_off(request)
            told = structured.correction(problems, request.schema)
            turns = (Message("assistant", reply.text or "(nothing)"), Message("user", told))
            request = msgspec.structs.replace(request, messages=(*request.messages, *turns))
        raise self._error(
            BadAnswer,
            f"the answer does not fit its schema after {CORRECTIONS + 1} tries: {problems[0]}",
            fix="ask for less at once, or another model",
            problems=problems,
        )

    def _answer(self, request: Request) -> Reply:
        """A reply that says something."""
        reply = self._send(request)
        cost = self._client._account(reply.usage)
        self._usage += reply.usage or Tokens()
        self._cost = None if cost is None or self._cost is None else self._cost + cost
        if reply.refusal is not None:
            why = f": {reply.refusal}" if reply.refusal else ""
            raise self._error(LlmRefused, f"the model declines to answer{why}")
        if not reply.text.strip() and request.schema is None:
            if reply.stop == "max_tokens":
                raise self._cut_off(request)
            raise self._error(BadAnswer, "the answer is empty", problems=["the answer is empty"])
        return reply

    def _send(self, request: Request) -> Reply:
        """One reply; by the protocol's structured mode if schema and server allow it."""
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
        system = "\n\n".join(filter(None, (request.system, structured.in_words(schema))))
        reply = self._tried(msgspec.structs.replace(request, system=system))
        if not_taken:
            client._in_words.add(key)
        return reply

    def _tried(self, request: Request, *, structured_mode: bool = False) -> Reply:
        """Send, and send again what may pass: with waits that double, or as the server asks."""
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
                f"the key is not taken (HTTP {error.status})",
                fix=f"check {hint}" if hint else "",
                status=error.status,
            )
        return self._error(
            LlmRejected,
            f"the provider does not take the request (HTTP {error.status}): {error.message}",
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
        return self._error(BadAnswer, problem, fix="allow more tokens", problems=[problem])

    def _error(self, kind: type[LlmError], message: str, *, fix: str = "", **data: Any) -> LlmError:
        return kind(message, place=self._client._place, fix=fix, **data)

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
    """The server does not take its structured mode; it may take the same request in words."""


def _may_pass(error: WireError) -> bool:
    return error.status in TRANSIENT or (error.status >= 500 and error.status != 501)


def _wait(retry: int, error: WireError) -> float:
    if error.retry_after is not None:
        return error.retry_after
    longest = min(FIRST_WAIT * 2.0**retry, LONGEST_WAIT)
    # Half of it by chance, so that many clients don't come back at the same moment.
    return longest * (0.5 + random.random() / 2)  # noqa: S311 - not for secrets
