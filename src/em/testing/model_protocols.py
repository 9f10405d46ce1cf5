"""The protocols that the scripted model speaks: what a reply is as one body, and as a stream."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from em.testing.turn import ModelCall, Turn
from em.values.canonical import Json

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
