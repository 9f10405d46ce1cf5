"""`em.instrument`: real OpenAI and Anthropic clients are recorded, and don't notice it."""

import asyncio
import gc
import json
import logging
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

import em
from em import Engine, Memory
from em.errors import UsageError
from em.settings import Price
from em.testing.model_server import LoopbackModel, ModelCall, Turn, calling, failing
from em.traces.live import model_client
from em.traces.trace import Message, ToolCall, Trace

DEFINITIONS = {
    "messages": [{"name": "get_order", "input_schema": {"type": "object"}}],
    "chat": [{"type": "function", "function": {"name": "get_order", "parameters": {}}}],
    "responses": [{"type": "function", "name": "get_order", "parameters": {}}],
}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


@pytest.fixture
def model() -> Iterator[LoopbackModel]:
    with LoopbackModel() as model:
        yield model


OPEN: list[Any] = []


@pytest.fixture(autouse=True)
def _closed_clients() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


def anthropic_client(model: LoopbackModel) -> anthropic.Anthropic:
    OPEN.append(anthropic.Anthropic(api_key="k", base_url=model.base_url, max_retries=0))
    return OPEN[-1]


def openai_client(model: LoopbackModel) -> openai.OpenAI:
    OPEN.append(openai.OpenAI(api_key="k", base_url=f"{model.base_url}/v1", max_retries=0))
    return OPEN[-1]


def calls(trace: Trace) -> list[tuple[str, Any, Any, Any]]:
    return [(c.tool, c.args, c.result, c.error) for c in trace.calls if isinstance(c, ToolCall)]


def only(memory: Memory) -> Trace:
    (kept,) = memory.traces()
    return kept.trace


def get_order(order_id: str) -> str:
    return json.dumps({"id": order_id, "status": "pending"})


# One agent for each interface: ask, do what the model asks for, send the result back.


def by_messages(client: Any, text: str) -> str:
    said: list[Any] = [{"role": "user", "content": text}]
    while True:
        answer = client.messages.create(model="m", max_tokens=99, messages=said)
        asked = [block for block in answer.content if block.type == "tool_use"]
        if not asked:
            return str(answer.content[0].text)
        said.append({"role": "assistant", "content": answer.content})
        results = [
            {"type": "tool_result", "tool_use_id": one.id, "content": get_order(**one.input)}
            for one in asked
        ]
        said.append({"role": "user", "content": results})


def by_message_streams(client: Any, text: str) -> str:
    said: list[Any] = [{"role": "user", "content": text}]
    while True:
        with client.messages.stream(model="m", max_tokens=99, messages=said) as stream:
            "".join(stream.text_stream)
            answer = stream.get_final_message()
        asked = [block for block in answer.content if block.type == "tool_use"]
        if not asked:
            return str(answer.content[0].text)
        said.append({"role": "assistant", "content": answer.content})
        results = [
            {"type": "tool_result", "tool_use_id": one.id, "content": get_order(**one.input)}
            for one in asked
        ]
        said.append({"role": "user", "content": results})


def by_chat(client: Any, text: str) -> str:
    said: list[Any] = [{"role": "user", "content": text}]
    while True:
        message = client.chat.completions.create(model="m", messages=said).choices[0].message
        if not message.tool_calls:
            return str(message.content)
        said.append(message)
        for one in message.tool_calls:
            given = json.loads(one.function.arguments)
            result = {"role": "tool", "tool_call_id": one.id, "content": get_order(**given)}
            said.append(result)


def by_chat_chunks(client: Any, text: str) -> str:
    said: list[Any] = [{"role": "user", "content": text}]
    while True:
        stream = client.chat.completions.create(
            model="m", messages=said, stream=True, stream_options={"include_usage": True}
        )
        content, asked = "", {}
        for chunk in stream:
            for choice in chunk.choices:
                content += choice.delta.content or ""
                for part in choice.delta.tool_calls or ():
                    call = asked.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                    call["id"] += part.id or ""
                    call["name"] += part.function.name or ""
                    call["arguments"] += part.function.arguments or ""
        if not asked:
            return content
        made = [
            {"id": c["id"], "type": "function", "function": {**c, "id": None}}
            for c in asked.values()
        ]
        said.append({"role": "assistant", "tool_calls": made})
        for call in asked.values():
            result = get_order(**json.loads(call["arguments"]))
            said.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def by_responses(client: Any, text: str, stream: bool = False) -> str:
    said: list[Any] = [{"role": "user", "content": text}]
    while True:
        answer = client.responses.create(model="m", input=said, stream=stream)
        if stream:
            *_, last = answer
            answer = last.response
        asked = [item for item in answer.output if item.type == "function_call"]
        if not asked:
            return str(answer.output_text)
        for item in asked:
            said.append(item)
            result = get_order(**json.loads(item.arguments))
            said.append({"type": "function_call_output", "call_id": item.call_id, "output": result})


def by_response_streams(client: Any, text: str) -> str:
    return by_responses(client, text, stream=True)


AGENTS = [
    (anthropic_client, by_messages),
    (anthropic_client, by_message_streams),
    (openai_client, by_chat),
    (openai_client, by_chat_chunks),
    (openai_client, by_responses),
    (openai_client, by_response_streams),
]


@pytest.mark.parametrize(("make", "agent"), AGENTS)
def test_calls_tokens_and_tools_of_a_client_are_recorded(
    make: Callable[..., Any], agent: Any, memory: Memory, model: LoopbackModel
) -> None:
    model.say(calling("get_order", {"order_id": "#W1"}), "It is pending.")
    client = em.instrument(make(model), price=Price(1, 2))
    with memory.record("look") as recorder:
        recorder.output = agent(client, "What is with #W1?")
    trace = only(memory)
    assert calls(trace) == [
        ("get_order", {"order_id": "#W1"}, {"id": "#W1", "status": "pending"}, None)
    ]
    assert (trace.usage.model_calls, trace.usage.tokens) == (2, 2 * (11 + 7))
    assert trace.usage.cost_usd == pytest.approx(2 * (11 * 1 + 7 * 2) / 1e6)
    texts = [(e.role, e.text) for e in trace.events if isinstance(e, Message)]
    assert texts == [("user", "What is with #W1?"), ("assistant", "It is pending.")]
    assert trace.incomplete == ""


@pytest.mark.parametrize(("make", "agent"), AGENTS)
def test_a_client_returns_the_same_with_and_without_em(
    make: Callable[..., Any], agent: Any, memory: Memory, model: LoopbackModel
) -> None:
    model.say(calling("get_order", {"order_id": "#W1"}), "Pending.")
    plain = agent(make(model), "?")
    sent = [seen.body for seen in model.requests]
    model.requests.clear()
    model.say(calling("get_order", {"order_id": "#W1"}, ""), "Pending.")
    with memory.record("look"):
        assert agent(em.instrument(make(model)), "?") == plain
    ids = [json.dumps(one).replace("call_2", "call_1") for one in (s.body for s in model.requests)]
    assert [len(one) for one in ids] == [len(json.dumps(one)) for one in sent]


def test_async_clients_are_recorded(memory: Memory, model: LoopbackModel) -> None:
    async def agent() -> None:
        async with (
            em.instrument(anthropic.AsyncAnthropic(api_key="k", base_url=model.base_url)) as claude,
            em.instrument(openai.AsyncOpenAI(api_key="k", base_url=f"{model.base_url}/v1")) as gpt,
        ):
            said: Any = [{"role": "user", "content": "hello"}]
            await claude.messages.create(model="m", max_tokens=9, messages=said)
            async with claude.messages.stream(model="m", max_tokens=9, messages=said) as stream:
                assert "".join([text async for text in stream.text_stream]) == "two"
            chunks = await gpt.chat.completions.create(
                model="m", messages=said, stream=True, stream_options={"include_usage": True}
            )
            assert isinstance(chunks, openai.AsyncStream)
            async for _ in chunks:
                pass
            await gpt.responses.create(model="m", input="hello")

    async def run() -> None:
        async with memory.record("ask"):
            await agent()

    model.say("one", "two", "three", "four")
    asyncio.run(run())
    trace = only(memory)
    assert (trace.usage.model_calls, trace.usage.tokens) == (4, 4 * 18)
    said = [(e.role, e.text) for e in trace.events if isinstance(e, Message)]
    assert said.count(("user", "hello")) == 1
    assert [text for role, text in said if role == "assistant"] == ["one", "two", "three", "four"]


def test_a_stream_stays_lazy_and_of_its_type(memory: Memory, model: LoopbackModel) -> None:
    model.say("a text of several words that is streamed")
    client = em.instrument(anthropic_client(model))
    with memory.record("ask") as recorder:
        stream = client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        assert type(stream) is anthropic.Stream
        assert recorder.tokens is None
        assert next(stream).type == "message_start"
        assert recorder.tokens is None
        rest = [event.type for event in stream]
        assert rest[-1] == "message_stop"
        assert recorder.tokens == 18


def test_a_stream_that_is_dropped_counts_with_what_was_read(
    memory: Memory, model: LoopbackModel
) -> None:
    model.say("a text of several words")
    client = em.instrument(anthropic_client(model))
    with memory.record("ask"):
        stream = client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        next(stream)
        stream.close()
        del stream
        gc.collect()
    assert only(memory).usage.model_calls == 1


def test_raw_and_streaming_responses_are_recorded_and_unchanged(
    memory: Memory, model: LoopbackModel
) -> None:
    said: Any = [{"role": "user", "content": "hi"}]
    claude, gpt = em.instrument(anthropic_client(model)), em.instrument(openai_client(model))
    model.say(*["hello"] * 4)
    with memory.record("ask") as recorder:
        raw = claude.messages.with_raw_response.create(model="m", max_tokens=9, messages=said)
        assert raw.http_response.status_code == 200
        assert raw.parse().content[0].text == "hello"
        raw_chat = gpt.chat.completions.with_raw_response.create(model="m", messages=said)
        assert raw_chat.parse().choices[0].message.content == "hello"
        assert recorder.tokens == 2 * 18
        with gpt.responses.with_streaming_response.create(model="m", input="hi") as response:
            assert response.parse().output_text == "hello"
        beta = claude.beta.messages.create(model="m", max_tokens=9, messages=said)
        assert beta.content[0].text == "hello"
    assert only(memory).usage.tokens == 4 * 18


def test_copies_are_recorded_and_twice_is_once(memory: Memory, model: LoopbackModel) -> None:
    client = anthropic_client(model)
    assert em.instrument(em.instrument(client)) is client
    copy = client.with_options(timeout=5)
    assert type(copy) is anthropic.Anthropic
    assert copy.timeout == 5
    model.say("one", "two", "three")
    with memory.record("ask"):
        for one in (client, copy):
            one.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]
            )
    assert only(memory).usage.model_calls == 2
    assert em.uninstrument(client) is client
    assert not {"request", "copy", "with_options"} & vars(client).keys()
    with memory.record("again"):
        client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}])
    assert {kept.trace.usage.model_calls for kept in memory.traces()} == {2, None}


def test_outside_of_a_recording_nothing_is_recorded(memory: Memory, model: LoopbackModel) -> None:
    model.say("one")
    client = em.instrument(anthropic_client(model))
    client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}])
    assert list(memory.traces()) == []


def test_an_error_of_the_client_is_its_own(memory: Memory, model: LoopbackModel) -> None:
    model.say(failing(400, "no"), failing(400, "no"))
    plain, watched = anthropic_client(model), em.instrument(anthropic_client(model))
    errors = []
    for client in (plain, watched):
        with memory.record("ask"), pytest.raises(anthropic.BadRequestError) as raised:
            client.messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "?"}]
            )
        errors.append((type(raised.value), str(raised.value)))
    assert errors[0] == errors[1]


def test_an_error_of_em_is_logged_and_never_reaches_the_client(
    memory: Memory,
    model: LoopbackModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_args: Any) -> Any:
        raise RuntimeError("em is broken")

    client = em.instrument(anthropic_client(model))
    for name in ("read_answer", "read_items"):
        monkeypatch.setattr(model_client, name, fail)
    monkeypatch.setattr(model_client.StreamedAnswer, "add", fail)
    model.say("one", "two")
    said: Any = [{"role": "user", "content": "?"}]
    with caplog.at_level(logging.ERROR, "em.instrument"), memory.record("ask"):
        answer = client.messages.create(model="m", max_tokens=9, messages=said)
        stream = client.messages.create(model="m", max_tokens=9, messages=said, stream=True)
        types = [event.type for event in stream]
    assert answer.content[0].text == "one"
    assert types[-1] == "message_stop"
    assert "em is broken" in caplog.text


def test_cancelling_an_async_call_goes_through(memory: Memory, model: LoopbackModel) -> None:
    model.say(Turn(text="late", delay=30))

    async def run() -> None:
        async with em.instrument(
            anthropic.AsyncAnthropic(api_key="k", base_url=model.base_url)
        ) as client:
            said: Any = [{"role": "user", "content": "?"}]
            asking = asyncio.ensure_future(
                client.messages.create(model="m", max_tokens=9, messages=said)
            )
            await asyncio.sleep(0.1)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking

    asyncio.run(run())


def test_a_decorated_tool_is_recorded_once(memory: Memory, model: LoopbackModel) -> None:
    decorated = em.tool(get_order, effect="read")

    def agent(client: Any) -> None:
        said: list[Any] = [{"role": "user", "content": "What is with #W1?"}]
        answer = client.messages.create(model="m", max_tokens=9, messages=said)
        (asked,) = answer.content
        result = decorated(**asked.input)
        said.append({"role": "assistant", "content": answer.content})
        block = {"type": "tool_result", "tool_use_id": asked.id, "content": result}
        said.append({"role": "user", "content": [block]})
        client.messages.create(model="m", max_tokens=9, messages=said)

    model.say(calling("get_order", {"order_id": "#W1"}), "Pending.")
    with memory.record("look"):
        agent(em.instrument(anthropic_client(model)))
    trace = only(memory)
    assert [name for name, *_ in calls(trace)] == ["get_order"]
    (call,) = trace.calls
    assert isinstance(call, ToolCall)
    assert call.effect == "read"
    assert trace.incomplete == ""


def test_a_tool_that_calls_a_decorated_one_makes_the_trace_incomplete(
    memory: Memory, model: LoopbackModel
) -> None:
    # It can't be told whether `cancel` is what `cancel_order` did, or came beside it.
    cancel = em.tool(lambda order_id: "done", name="cancel")
    said: list[Any] = [{"role": "user", "content": "Cancel #W1"}]
    client = em.instrument(anthropic_client(model))
    model.say(calling("cancel_order", {"order_id": "#W1"}), "Done.")
    with memory.record("cancel"):
        answer = client.messages.create(model="m", max_tokens=9, messages=said)
        (asked,) = answer.content
        assert asked.type == "tool_use"
        cancel(order_id="#W1")
        said.append({"role": "assistant", "content": answer.content})
        block = {"type": "tool_result", "tool_use_id": asked.id, "content": "done"}
        said.append({"role": "user", "content": [block]})
        client.messages.create(model="m", max_tokens=9, messages=said)
    trace = only(memory)
    assert [name for name, *_ in calls(trace)] == ["cancel"]
    assert "Decorate `cancel_order` with em.tool" in trace.incomplete


def test_a_call_without_a_result_makes_the_trace_incomplete(
    memory: Memory, model: LoopbackModel
) -> None:
    client = em.instrument(anthropic_client(model))
    model.say(calling("send_mail", {"to": "a@b.example"}))
    with memory.record("send"):
        said: Any = [{"role": "user", "content": "Write to a@b.example"}]
        client.messages.create(model="m", max_tokens=9, messages=said)
    assert "`send_mail`" in only(memory).incomplete


def test_failed_results_and_several_calls_are_recorded(
    memory: Memory, model: LoopbackModel
) -> None:
    two = [ModelCall("get", {"x": 1}), ModelCall("get", {"x": 2})]
    model.say(Turn(calls=two), "done")
    client = em.instrument(anthropic_client(model))
    said: list[Any] = [{"role": "user", "content": "both"}]
    with memory.record("both"):
        answer = client.messages.create(model="m", max_tokens=9, messages=said)
        said.append({"role": "assistant", "content": answer.content})
        first, second = [block for block in answer.content if block.type == "tool_use"]
        blocks = [
            {"type": "tool_result", "tool_use_id": second.id, "content": "no", "is_error": True},
            {"type": "tool_result", "tool_use_id": first.id, "content": "yes"},
        ]
        said.append({"role": "user", "content": blocks})
        client.messages.create(model="m", max_tokens=9, messages=said)
    found = {(name, args["x"], result, error) for name, args, result, error in calls(only(memory))}
    assert found == {("get", 1, "yes", None), ("get", 2, None, "no")}


def test_results_of_calls_before_the_recording_are_not_in_it(
    memory: Memory, model: LoopbackModel
) -> None:
    model.say("done")
    client = em.instrument(anthropic_client(model))
    old = {"type": "tool_use", "id": "old", "name": "get", "input": {}}
    said: list[Any] = [
        {"role": "user", "content": "earlier"},
        {"role": "assistant", "content": [old]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "old"}]},
    ]
    with memory.record("later"):
        client.messages.create(model="m", max_tokens=9, messages=said)
    assert only(memory).calls == []


def test_a_hit_of_an_engine_reports_the_tokens_it_saved(model: LoopbackModel) -> None:
    client = em.instrument(anthropic_client(model), price={"m": Price(1, 1)})
    engine = Engine()
    done = []

    @engine.function(effect="write")
    def note(text: str) -> str:
        done.append(text)
        return "noted"

    def agent(task: str) -> str:
        client.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": task}]
        )
        return note(task)

    engine.set_agent(agent).finalize()
    model.say("go on")
    assert not engine("buy milk")
    result = engine("buy milk")
    assert result.hit
    assert result.saved.tokens == 18
    assert done == ["buy milk", "buy milk"]


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(UsageError, match="OpenAI or Anthropic client"):
        em.instrument(object())


def test_an_instrumented_client_is_freed_when_it_is_dropped(model: LoopbackModel) -> None:
    gc.collect()
    gc.disable()
    try:
        client = anthropic.Anthropic(api_key="k", base_url=model.base_url)
        left = weakref.ref(em.instrument(client))
        del client
        assert left() is None
    finally:
        gc.enable()


def test_a_request_that_is_the_input_is_not_recorded_twice(
    memory: Memory, model: LoopbackModel
) -> None:
    client = em.instrument(anthropic_client(model))
    model.say("Pending.")
    agent = memory.record("look")(lambda request: by_messages(client, request))
    assert agent("What is with #W1?") == "Pending."
    trace = only(memory)
    assert trace.mission.input_summary == {"request": "What is with #W1?"}
    assert [e.text for e in trace.events if isinstance(e, Message)] == ["Pending."]
