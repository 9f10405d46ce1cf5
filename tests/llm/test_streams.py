"""The scripted model streams to the real SDKs, over three protocols, and breaks as scripted."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from em.testing import LoopbackModel, ModelCall, Turn
from em.testing.model_server import SeenRequest, broken_stream, calling, cut_off

TEXT = "The shop in Lisbon has 545 things in its window."
PATCH = "*** Begin Patch\n*** Add File: a\n+1\n*** End Patch"


@pytest.fixture
def server() -> Iterator[LoopbackModel]:
    with LoopbackModel(key="k") as server:
        yield server


class Reply:
    """What a client made of a stream, the same for every protocol."""

    def __init__(self, text: str, calls: list[tuple[str, str, Any]], stop: str, tokens: int):
        self.text, self.calls, self.stop, self.tokens = text, calls, stop, tokens


def by_anthropic(server: LoopbackModel) -> Reply:
    with (
        anthropic.Anthropic(api_key="k", base_url=server.base_url, max_retries=0) as client,
        client.messages.stream(
            model="m", max_tokens=99, messages=[{"role": "user", "content": "?"}]
        ) as stream,
    ):
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    calls = [(b.id, b.name, b.input) for b in last.content if b.type == "tool_use"]
    return Reply(text, calls, str(last.stop_reason), last.usage.output_tokens)


def by_chat(server: LoopbackModel) -> Reply:
    with (
        openai_client(server) as client,
        client.chat.completions.stream(
            model="m",
            messages=[{"role": "user", "content": "?"}],
            stream_options={"include_usage": True},
        ) as stream,
    ):
        last = stream.get_final_completion()
    (choice,) = last.choices
    calls = [
        (call.id, call.function.name, json.loads(call.function.arguments))
        for call in choice.message.tool_calls or ()
    ]
    assert last.usage is not None
    tokens = last.usage.completion_tokens
    return Reply(choice.message.content or "", calls, choice.finish_reason, tokens)


def by_responses(server: LoopbackModel) -> Reply:
    with (
        openai_client(server) as client,
        client.responses.stream(model="m", input="?") as stream,
    ):
        last = stream.get_final_response()
    calls = [
        (item.call_id, item.name, json.loads(item.arguments))
        for item in last.output
        if item.type == "function_call"
    ]
    calls += [
        (item.call_id, item.name, item.input)
        for item in last.output
        if item.type == "custom_tool_call"
    ]
    assert last.usage is not None
    return Reply(last.output_text, calls, str(last.status), last.usage.output_tokens)


def openai_client(server: LoopbackModel) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url=f"{server.base_url}/v1", max_retries=0, timeout=10)


CLIENTS = {"messages": by_anthropic, "chat": by_chat, "responses": by_responses}
STOPS = {
    "messages": ("end_turn", "tool_use"),
    "chat": ("stop", "tool_calls"),
    "responses": ("completed", "completed"),
}


def breaks(server: LoopbackModel, protocol: str) -> bool:
    try:
        CLIENTS[protocol](server)
    except Exception:  # noqa: BLE001 - the SDKs let errors of their HTTP libraries through
        return True
    return False


@pytest.fixture(params=list(CLIENTS))
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_text_arrives_in_pieces_with_its_count(server: LoopbackModel, protocol: str) -> None:
    server.say(Turn(text=TEXT, output_tokens=21))
    reply = CLIENTS[protocol](server)
    assert (reply.text, reply.calls, reply.stop) == (TEXT, [], STOPS[protocol][0])
    assert reply.tokens == 21
    assert server.requests[0].body["stream"] is True


def test_several_tool_calls_arrive_whole_and_numbered(server: LoopbackModel, protocol: str) -> None:
    first, second = {"path": "orders.csv", "lines": [1, 2]}, {"command": "wc -l 'é'"}
    server.say(
        Turn(text="I look.", calls=[ModelCall("Read", first), ModelCall("Bash", second)]),
        calling("Read", first),
    )
    reply = CLIENTS[protocol](server)
    assert (reply.text, reply.stop) == ("I look.", STOPS[protocol][1])
    assert reply.calls == [("call_1", "Read", first), ("call_2", "Bash", second)]
    assert CLIENTS[protocol](server).calls == [("call_3", "Read", first)]


def test_a_tool_of_free_text_gets_its_text(server: LoopbackModel) -> None:
    server.say(calling("apply_patch", PATCH))
    assert by_responses(server).calls == [("call_1", "apply_patch", PATCH)]


def test_a_slow_stream_is_only_slow(server: LoopbackModel, protocol: str) -> None:
    server.say(Turn(text=TEXT, pace=0.01))
    assert CLIENTS[protocol](server).text == TEXT


def test_a_stream_that_is_cut_or_malformed_is_an_error_of_the_client(
    server: LoopbackModel, protocol: str
) -> None:
    server.say(cut_off(TEXT), broken_stream(TEXT), TEXT)
    assert breaks(server, protocol)
    assert breaks(server, protocol)
    assert CLIENTS[protocol](server).text == TEXT


def test_calls_are_also_given_without_a_stream(server: LoopbackModel) -> None:
    args = {"path": "a"}
    server.say(*[calling("Read", args) for _ in range(3)])
    question: Any = [{"role": "user", "content": "?"}]
    with anthropic.Anthropic(api_key="k", base_url=server.base_url) as anthropics:
        message = anthropics.messages.create(model="m", max_tokens=9, messages=question)
    (block,) = message.content
    assert block.type == "tool_use"
    assert (block.name, block.input) == ("Read", args)
    with openai_client(server) as client:
        chat = client.chat.completions.create(model="m", messages=question)
        (item,) = client.responses.create(model="m", input="?").output
    (call,) = chat.choices[0].message.tool_calls or ()
    assert call.type == "function"
    assert json.loads(call.function.arguments) == args
    assert item.type == "function_call"
    assert (item.call_id, json.loads(item.arguments)) == ("call_3", args)


def test_what_a_client_asks_besides_takes_nothing_of_the_script() -> None:
    def aside(seen: SeenRequest) -> str | None:
        return "a title" if "title" in str(seen.body) else None

    with LoopbackModel(aside=aside) as server:
        server.say("scripted")
        url = f"{server.base_url}/v1/messages"
        for text, reply in (("a title, please", "a title"), ("the task", "scripted")):
            body = {"model": "m", "messages": [{"role": "user", "content": text}]}
            said = httpx.post(url, json=body).json()
            assert said["content"][0]["text"] == reply
        assert httpx.get(f"{server.base_url}/v1/models").json()["data"] == []
        assert httpx.post(f"{url}/count_tokens", json={}).json() == {"input_tokens": 11}
        assert httpx.get(f"{server.base_url}/v2").status_code == 404
        assert (server.replies_left, len(server.requests)) == (0, 2)
