"""Record an OpenAI or Anthropic client: its calls, tokens, costs, and what its model asks for.

The client is not wrapped. Only its `request` method is replaced on this one object, below all of
its interfaces (`create`, `parse`, `stream`, `with_raw_response`, `beta`), so that they stay as they
are. What goes wrong here is logged and never reaches the client; this is the only place in em that
swallows its own errors.
"""

import functools
import inspect
import logging
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from em.errors import UsageError
from em.settings import Price
from em.traces.formats.openai_agents import read_items
from em.traces.live.model_answer import ModelAnswer, SeenIterator, StreamedAnswer, read_answer
from em.traces.recorder import payers_here, recorder_for, recorder_here

ClientT = TypeVar("ClientT")
Prices = Price | Mapping[str, Price]

_log = logging.getLogger("em.instrument")
_PATHS = {
    "anthropic": {"/v1/messages": "messages"},
    "openai": {"/chat/completions": "messages", "/responses": "input"},
}
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
