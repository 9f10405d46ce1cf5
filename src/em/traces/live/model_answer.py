"""Answer of a model: its texts, the calls it asks for and its tokens, from an SDK's own objects.

Three forms are read: Anthropic's messages, OpenAI's chat completions and OpenAI's responses; whole,
as JSON, or as the events of a stream. Objects are only looked at: nothing of a client's is changed.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec

from em.llm.wires import Tokens
from em.traces.formats._messages import as_args
from em.traces.model_request import Called
from em.values.canonical import Json

_ASKED = frozenset({"tool_use", "function_call", "custom_tool_call"})


class ModelAnswer(msgspec.Struct):
    """What a model answered. served: a tool that the provider ran itself."""

    model: str = ""
    texts: list[str] = []
    calls: list[Called] = []
    served: str = ""
    tokens: Tokens | None = None


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
