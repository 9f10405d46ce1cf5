"""Record an OpenAI or Anthropic client: its calls, tokens, costs, and what its model asks for.

The client is not wrapped. Only its `request` method is replaced on this one object, below all of
its interfaces (`create`, `parse`, `stream`, `with_raw_response`, `beta`), so that they stay as they
are. What goes wrong here is logged and never reaches the client; this is the only place in em that
swallows its own errors.

Answers are read in three forms: Anthropic's messages, OpenAI's chat completions and OpenAI's
responses; whole, as JSON, or as the events of a stream.
"""

import functools
import inspect
import logging
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from em.errors import UsageError
from em.llm.wires import Tokens
from em.settings import Price
from em.traces.formats._messages import as_args
from em.traces.formats.openai_agents import read_items
from em.traces.model_request import Called
from em.traces.recorder import payers_here, recorder_for, recorder_here
from em.values.canonical import Json

ClientT = TypeVar("ClientT")
Prices = Price | Mapping[str, Price]

_log = logging.getLogger("em.instrument")
_PATHS = {
    "anthropic": {"/v1/messages": "messages"},
    "openai": {"/chat/completions": "messages", "/responses": "input"},
}
_ASKED = frozenset({"tool_use", "function_call", "custom_tool_call"})
_REPLACED = ("request", "copy", "with_options")


def instrument(client: ClientT, *, price: Prices | None = None) -> ClientT:
    """Record the model calls of an OpenAI or Anthropic client, and return the same client.

    ```python
    import anthropic

    import em

    client = em.instrument(anthropic.Anthropic(api_key="sk-…"))
    memory = em.Memory("em.db")

    @memory.record("Answer a customer")
    def agent(question: str) -> str:
        answer = client.messages.create(
            model="claude-sonnet-5-5",
            max_tokens=1024,
            messages=[{"role": "user", "content": question}],
        )
        return answer.content[0].text
    ```

    Inside of `memory.record` each model call is counted with its tokens and its cost, and each
    tool that the model asks for is recorded with the result that is sent back. Inside of an agent
    of `em.Engine` the tokens are those that a hit saves. Elsewhere nothing is recorded.

    price: USD per million tokens, for all models or by model. Without it, em's own prices count,
        if the client talks to the provider itself.

    Copies (`with_options`) are recorded too. A second call changes nothing but the price.
    """
    provider = _provider_of(client)
    uninstrument(client)
    watch = _ClientWatch(client, provider, price)
    for name in _REPLACED:
        setattr(client, name, watch.request() if name == "request" else watch.copied(name))
    return client


def uninstrument(client: ClientT) -> ClientT:
    """Stop recording a client's calls, and return the client."""
    for name in _REPLACED:
        watch = getattr(vars(client).get(name), "__em_watch__", None)
        if isinstance(watch, _ClientWatch):
            delattr(client, name)
            if name in watch.replaced:
                setattr(client, name, watch.replaced[name])
    return client


def _provider_of(client: Any) -> Literal["openai", "anthropic"]:
    for one in type(client).__mro__:
        package = one.__module__.partition(".")[0]
        is_client = callable(getattr(client, "request", None)) and hasattr(client, "base_url")
        if is_client and package == "openai":
            return "openai"
        if is_client and package == "anthropic":
            return "anthropic"
    raise UsageError(
        f"expected an OpenAI or Anthropic client, got a {type(client).__name__}",
        place="em.instrument",
        fix="pass the client itself: em.instrument(anthropic.Anthropic())",
    )


def _quietly(do: Callable[..., Any], *args: Any) -> Any:
    """Do it for em's sake: an error is logged, and None returned."""
    try:
        return do(*args)
    except Exception:  # noqa: BLE001 - whatever is wrong with em must not reach the client
        _log.exception("a model call was not recorded; the call itself is not affected")
        return None


class ModelAnswer(msgspec.Struct):
    """What a model answered. served: a tool that the provider ran itself."""

    model: str = ""
    texts: list[str] = []
    calls: list[Called] = []
    served: str = ""
    tokens: Tokens | None = None


class _ClientWatch:
    """What is known of an instrumented client."""

    def __init__(self, client: Any, provider: str, price: Prices | None) -> None:
        self._provider, self._price = provider, price
        # What other code put onto the client before.
        self.replaced = {name: vars(client)[name] for name in _REPLACED if name in vars(client)}
        # Without a reference to the client itself: it would not be freed when it is dropped.
        self._client = weakref.ref(client)
        self._base_url = str(client.base_url)

    def _inner(self, name: str) -> Callable[..., Any]:
        """Return a method of the client as it is without em."""
        if name in self.replaced:
            found: Callable[..., Any] = self.replaced[name]
            return found
        method = getattr(type(self._client()), name)

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            return method(self._client(), *args, **kwargs)

        return call

    def request(self) -> Callable[..., Any]:
        """Return the `request` that records."""
        inner = self._inner("request")

        @functools.wraps(inner)
        def request(cast_to: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
            exchange = _quietly(self._begin, options)
            result = inner(cast_to, options, *args, **kwargs)
            if exchange is not None:
                _quietly(exchange.returned, result)
            return result

        @functools.wraps(inner)
        async def arequest(cast_to: Any, options: Any, *args: Any, **kwargs: Any) -> Any:
            exchange = _quietly(self._begin, options)
            result = await inner(cast_to, options, *args, **kwargs)
            if exchange is not None:
                _quietly(exchange.returned, result)
            return result

        is_async = inspect.iscoroutinefunction(inspect.unwrap(inner))
        return self._marked(arequest if is_async else request)

    def copied(self, name: str) -> Callable[..., Any]:
        """Return the method that copies the client; the copy is recorded too."""
        inner = self._inner(name)

        @functools.wraps(inner)
        def copy(*args: Any, **kwargs: Any) -> Any:
            made = inner(*args, **kwargs)
            _quietly(functools.partial(instrument, made, price=self._price))
            return made

        return self._marked(copy)

    def _marked(self, function: Any) -> Callable[..., Any]:
        function.__em_watch__ = self
        marked: Callable[..., Any] = function
        return marked

    def _begin(self, options: Any) -> "_Exchange | None":
        """Return the exchange that this request begins; None if it asks no model."""
        path = str(options.url).partition("?")[0].rstrip("/")
        field = _PATHS[self._provider].get(path)
        body = options.json_data
        if field is None or options.method.lower() != "post" or not isinstance(body, Mapping):
            return None
        if not (payers_here() or recorder_here()):
            return _Exchange(self, None)
        return _Exchange(self, body.get(field))

    def cost(self, answer: ModelAnswer) -> float | None:
        """Return what an answer cost, if its price is known."""
        from em.llm.client import PRICES, cost_of
        from em.llm.providers import PROVIDERS

        if isinstance(self._price, Price):
            price: Price | None = self._price
        elif self._price is not None:
            price = self._price.get(answer.model)
        else:
            own = (PROVIDERS[self._provider].base_url or "").rstrip("/")
            is_own = self._base_url.rstrip("/") == own
            price = PRICES.get(answer.model) if is_own else None
        return cost_of(price, answer.tokens)


class _Exchange:
    """One request to a model, and its answer."""

    def __init__(self, watch: _ClientWatch, said: Any) -> None:
        self._watch = watch
        self._recorder = recorder_here()
        self._payers = payers_here()
        self._is_over = False
        if self._recorder is not None and said is not None:
            self._hear(said)

    def _hear(self, said: Any) -> None:
        """Take what is sent to the model: texts of users, and results of calls."""
        recorder = self._recorder
        assert recorder is not None
        given = [said] if isinstance(said, str) else [_as_json(one) for one in said]
        texts, _, results = read_items(given)
        recorder.asked.end(results)
        spoken = [one for one in texts if one.role in ("user", "assistant")]
        for one in recorder.asked.new_texts(spoken):
            if not recorder.was_given(one.text):
                recorder.said(one.role, one.text)

    def returned(self, result: Any) -> None:
        """Take what the client returns: an answer, a stream, or a response to be read later."""
        if hasattr(result, "http_response") and hasattr(result, "parse"):
            self._response(result)
        elif hasattr(result, "_iterator"):
            self._streamed(result)
        else:
            self._take(read_answer(result))

    def _response(self, response: Any) -> None:
        """Take a raw response: its body if it was read already, else what `parse` will return."""
        kind = response.http_response.headers.get("content-type", "")
        if response.http_response.is_closed and "json" in kind:
            self._take(read_answer(response.http_response.json()))
            return
        parse = response.parse

        def seen(result: Any) -> Any:
            if not self._is_over:
                _quietly(self.returned, result)
            return result

        if inspect.iscoroutinefunction(parse):

            @functools.wraps(parse)
            async def parsed_later(*args: Any, **kwargs: Any) -> Any:
                return seen(await parse(*args, **kwargs))

            response.parse = parsed_later
        else:
            response.parse = functools.wraps(parse)(lambda *a, **k: seen(parse(*a, **k)))

    def _streamed(self, stream: Any) -> None:
        """Look at the events of a stream as its consumer takes them."""
        if isinstance(stream._iterator, SeenIterator):
            return
        answer = StreamedAnswer()

        def see(event: Any) -> None:
            _quietly(answer.add, event)
            if answer.is_over:
                end()

        def end() -> None:
            if not self._is_over:
                _quietly(lambda: self._take(answer.read()))

        stream._iterator = SeenIterator(stream._iterator, see, end)

    def _take(self, answer: ModelAnswer) -> None:
        """Record an answer."""
        self._is_over = True
        tokens = answer.tokens
        count = None if tokens is None else tokens.input + tokens.output
        cost = self._watch.cost(answer)
        for payer in self._payers:
            payer.answered(count)
            payer.report(cost_usd=cost)
        recorder = self._recorder
        if recorder is None:
            for call in answer.calls[:1]:
                recorder_for(call.name)  # marks the recordings that the call may belong to
            return
        if not recorder.is_open:
            return
        if answer.served:
            recorder.mark_incomplete(
                f"the provider ran `{answer.served}` itself, which a routine can't do"
            )
        for text in answer.texts:
            recorder.asked.answered("assistant", text)
            recorder.said("assistant", text)
        recorder.asked.ask(answer.calls)


def _as_json(value: Any) -> Any:
    """Return a message as JSON, where a caller passes the SDK's own objects back."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", warnings=False)
    if isinstance(value, Mapping):
        content = value.get("content")
        if isinstance(content, list | tuple):
            return {**value, "content": [_as_json(part) for part in content]}
    return value


def read_answer(given: Any) -> ModelAnswer:
    """Read a whole answer, as an object of the SDK's or as JSON."""
    answer = ModelAnswer(model=str(_get(given, "model") or ""))
    answer.tokens = tokens_of(_get(given, "usage"))
    for choice in _get(given, "choices") or ():
        _read_chat_message(answer, _get(choice, "message"))
    for block in [*_list(given, "content"), *_list(given, "output")]:
        _read_block(answer, block)
    return answer


def tokens_of(usage: Any) -> Tokens | None:
    """Return the tokens of an answer. Anthropic counts those of a cache beside the input."""
    if usage is None:
        return None
    read = _count(usage, "input_tokens") or _count(usage, "prompt_tokens")
    written = _count(usage, "output_tokens") or _count(usage, "completion_tokens")
    cached = _count(usage, "cache_read_input_tokens")
    beside = cached + _count(usage, "cache_creation_input_tokens")
    for details in ("input_tokens_details", "prompt_tokens_details"):
        cached += _count(_get(usage, details), "cached_tokens")
    return Tokens(read + beside, written, cached)


def _count(usage: Any, name: str) -> int:
    found = _get(usage, name)
    return found if isinstance(found, int) else 0


def _read_chat_message(answer: ModelAnswer, message: Any) -> None:
    text = _get(message, "content")
    if isinstance(text, str) and text:
        answer.texts.append(text)
    for call in _get(message, "tool_calls") or ():
        part = _get(call, "function") or _get(call, "custom")
        given = _get(part, "arguments")
        args = as_args(_get(part, "input") if given is None else given)
        answer.calls.append(Called(str(_get(call, "id")), str(_get(part, "name")), args))


def _read_block(answer: ModelAnswer, block: Any) -> None:
    kind = str(_get(block, "type") or "")
    if kind in _ASKED:
        given = _get(block, "arguments")
        args = as_args(_get(block, "input") if given is None else given)
        call_id = _get(block, "call_id") or _get(block, "id")
        answer.calls.append(Called(str(call_id), str(_get(block, "name")), args))
    elif kind.endswith(("_use", "_call")):
        answer.served = answer.served or str(_get(block, "name") or kind)
    elif kind == "message":
        texts = [_get(part, "text") for part in _list(block, "content")]
        answer.texts += [text for text in texts if isinstance(text, str) and text]
    elif kind == "text" and _get(block, "text"):
        answer.texts.append(str(_get(block, "text")))


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)


def _list(thing: Any, name: str) -> list[Any]:
    found = _get(thing, name)
    return found if isinstance(found, list) else []


class StreamedAnswer:
    """An answer as it is streamed; `read` gives what has come so far as a whole answer."""

    def __init__(self) -> None:
        self._model = ""
        self._usage: Json = {}
        self._blocks: dict[int, Json] = {}
        self._chat: dict[int, Json] = {}
        self._text = ""
        self._whole: Any = None
        self.is_over = False

    def add(self, event: Any) -> None:
        """Take the next event of the stream."""
        if _get(event, "choices") is not None:
            self._add_chunk(event)
            return
        kind = str(_get(event, "type") or "")
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self._whole, self.is_over = _get(event, "response"), True
        elif kind == "message_start":
            message = _get(event, "message")
            self._model = str(_get(message, "model") or "")
            self._add_usage(_get(message, "usage"))
        elif kind == "content_block_start":
            block = _get(event, "content_block")
            names = ("type", "id", "name", "text")
            self._blocks[_get(event, "index")] = {name: _get(block, name) for name in names}
        elif kind == "content_block_delta":
            self._add_delta(self._blocks.get(_get(event, "index"), {}), _get(event, "delta"))
        elif kind == "message_delta":
            self._add_usage(_get(event, "usage"))
        self.is_over = self.is_over or kind == "message_stop"

    def _add_usage(self, usage: Any) -> None:
        names = (
            "input_tokens", "output_tokens", "cache_read_input_tokens",
            "cache_creation_input_tokens",
        )  # fmt: skip
        found = {name: _get(usage, name) for name in names}
        self._usage |= {name: count for name, count in found.items() if isinstance(count, int)}

    def _add_delta(self, block: Json, delta: Any) -> None:
        for field, part in (("text", "text"), ("input", "partial_json")):
            more = _get(delta, part)
            if isinstance(more, str):
                block[field] = (block.get(field) or "") + more

    def _add_chunk(self, chunk: Any) -> None:
        self._model = self._model or str(_get(chunk, "model") or "")
        usage = _get(chunk, "usage")
        if usage is not None:
            names = ("prompt_tokens", "completion_tokens", "prompt_tokens_details")
            self._usage = {name: _get(usage, name) for name in names}
        for choice in _list(chunk, "choices"):
            delta = _get(choice, "delta")
            self._text += _get(delta, "content") or ""
            for part in _get(delta, "tool_calls") or ():
                call = self._chat.setdefault(_get(part, "index"), {"id": "", "function": {}})
                call["id"] = call["id"] or _get(part, "id") or ""
                for name in ("name", "arguments"):
                    more = _get(_get(part, "function"), name) or ""
                    call["function"][name] = call["function"].get(name, "") + more

    def read(self) -> ModelAnswer:
        """Return what has come so far; a call whose arguments are cut off is left out."""
        if self._whole is not None:
            return read_answer(self._whole)
        blocks = [
            block
            for block in self._blocks.values()
            if block["type"] not in _ASKED or _is_whole(block.get("input"))
        ]
        calls = [call for call in self._chat.values() if _is_whole(call["function"]["arguments"])]
        message = {"content": self._text, "tool_calls": calls}
        choices = [{"message": message}] if self._text or calls else []
        given = {"model": self._model, "usage": self._usage or None, "choices": choices}
        return read_answer({**given, "content": blocks})


def _is_whole(text: Any) -> bool:
    if not text:
        return True
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


class SeenIterator:
    """A stream's iterator, sync or async, that shows what passes to `see`, and its end to `end`.

    It only passes on what the iterator of the client gives and raises, when it is asked for it.
    """

    def __init__(self, inner: Any, see: Callable[[Any], None], end: Callable[[], None]) -> None:
        self._inner, self._see, self._end = inner, see, end

    def __iter__(self) -> Iterator[Any]:
        return self

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            item = next(self._inner)
        except BaseException:
            self._end()
            raise
        self._see(item)
        return item

    async def __anext__(self) -> Any:
        try:
            item = await anext(self._inner)
        except BaseException:
            self._end()
            raise
        self._see(item)
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __del__(self) -> None:
        self._end()  # the stream was dropped before its end
