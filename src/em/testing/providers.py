"""The promises of every provider."""

from typing import Any, Protocol

import pytest

from em.errors import BadAnswer, LlmRefused, LlmRejected, LlmUnavailable
from em.llm.client import LlmClient
from em.llm.wires import Message, Tokens
from em.testing.model_server import (
    LoopbackModel,
    Turn,
    broken_body,
    cut_off,
    failing,
    rate_limited,
    refusal,
    slow,
    truncated,
)

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer", "minimum": 1}},
    "required": ["city", "people"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"args": {"type": "object"}}, "required": ["args"]}
LISBON = {"city": "Lisbon", "people": 545_000}


class Connect(Protocol):
    """Connects a client of the provider under test to the server."""

    def __call__(self, server: LoopbackModel, **settings: Any) -> LlmClient:
        """Return a client; settings are `timeout` and `max_retries`."""


class ProviderConformance:
    """Derive a test class from this one and define the fixture `connect`."""

    @pytest.fixture
    def connect(self) -> Connect:
        """Return the function that connects your client."""
        raise NotImplementedError

    @pytest.fixture
    def server(self) -> Any:
        """The scripted server."""
        with LoopbackModel() as server:
            yield server

    def test_an_answer_with_its_count(self, server: LoopbackModel, connect: Connect) -> None:
        server.say(Turn(text="Olá", input_tokens=30, output_tokens=5, cached_tokens=10))
        client = connect(server)
        answer = client.complete("Say hello", system="Speak Portuguese", max_tokens=50)
        assert (answer.text, answer.value, answer.stop) == ("Olá", None, "end")
        assert answer.usage == Tokens(input=30, output=5, cached=10)
        assert (answer.attempts, answer.model) == (1, client.model)
        assert "Speak Portuguese" in str(server.requests[0].body)

    def test_a_conversation_keeps_its_order(self, server: LoopbackModel, connect: Connect) -> None:
        server.say("4")
        turns = [Message("user", "1+1"), Message("assistant", "2"), Message("user", "2+2")]
        connect(server).complete(turns)
        sent = [turn["content"] for turn in server.requests[0].body["messages"]]
        assert sent == ["1+1", "2", "2+2"]

    def test_spending_adds_up(self, server: LoopbackModel, connect: Connect) -> None:
        server.say("one", "two")
        client = connect(server)
        client.complete("a")
        client.complete("b")
        assert (client.spent.calls, client.spent.tokens) == (2, Tokens(22, 14))

    def test_a_server_that_counts_nothing_is_no_free_one(
        self, server: LoopbackModel, connect: Connect
    ) -> None:
        server.say(Turn(text="hi", counts=False))
        client = connect(server)
        assert client.complete("a").cost_usd is None
        assert client.spent.cost_usd is None

    @pytest.mark.parametrize("schema", [CITY, OPEN], ids=["closed", "open"])
    def test_an_answer_by_schema(
        self, server: LoopbackModel, connect: Connect, schema: Any
    ) -> None:
        said = LISBON if schema is CITY else {"args": {"free": [1]}}
        server.say(said)
        assert connect(server).complete("Where?", schema=schema).value == said

    @pytest.mark.parametrize(
        "wrong", ["Lisbon, of course", '{"city": "Lisbon", ', {"city": "Lisbon", "people": 0}, ""]
    )
    def test_a_wrong_answer_goes_back_with_what_is_wrong(
        self, server: LoopbackModel, connect: Connect, wrong: Any
    ) -> None:
        server.say(wrong, LISBON)
        answer = connect(server).complete("Where?", schema=CITY)
        assert (answer.value, answer.attempts) == (LISBON, 2)
        assert answer.usage == Tokens(22, 14)
        assert "can't be used" in server.requests[1].body["messages"][-1]["content"]

    def test_wrong_answers_end_in_an_error_that_lists_the_problems(
        self, server: LoopbackModel, connect: Connect
    ) -> None:
        server.say(*[{"city": 1}] * 3)
        client = connect(server)
        with pytest.raises(BadAnswer) as caught:
            client.complete("Where?", schema=CITY)
        assert len(caught.value.data["problems"]) == 2
        assert len(server.requests) == client.spent.calls == 3

    def test_a_cut_off_answer_is_told_as_such(
        self, server: LoopbackModel, connect: Connect
    ) -> None:
        server.say(truncated('{"city": "Lis'), truncated("Once upon"), truncated(""))
        client = connect(server)
        with pytest.raises(BadAnswer, match="cut off at max_tokens=20"):
            client.complete("Where?", schema=CITY, max_tokens=20)
        assert client.complete("A story").stop == "max_tokens"
        with pytest.raises(BadAnswer, match="cut off"):
            client.complete("A story")

    def test_an_empty_answer_is_an_error(self, server: LoopbackModel, connect: Connect) -> None:
        server.say("")
        with pytest.raises(BadAnswer, match="empty"):
            connect(server).complete("a")

    def test_a_refusal_is_an_error(self, server: LoopbackModel, connect: Connect) -> None:
        server.say(refusal())
        with pytest.raises(LlmRefused, match="I won't"):
            connect(server).complete("a")
        assert len(server.requests) == 1

    @pytest.mark.parametrize(
        "fault",
        [
            rate_limited(),
            failing(500),
            failing(503),
            failing(408),
            failing(409),
            cut_off(),
            broken_body(),
        ],
        ids=["429", "500", "503", "408", "409", "cut off", "broken body"],
    )
    def test_what_may_pass_is_tried_again(
        self, server: LoopbackModel, connect: Connect, fault: Turn
    ) -> None:
        server.say(fault, "there")
        answer = connect(server).complete("a")
        assert (answer.text, answer.attempts) == ("there", 2)

    def test_a_slow_server_is_not_waited_for(self, server: LoopbackModel, connect: Connect) -> None:
        server.say(slow(20), "in time")
        assert connect(server, timeout=0.5).complete("a").text == "in time"
        server.say(slow(20))
        with pytest.raises(LlmUnavailable, match="within the timeout"):
            connect(server, timeout=0.5, max_retries=0).complete("a")

    def test_retries_end(self, server: LoopbackModel, connect: Connect) -> None:
        server.say(*[rate_limited()] * 3)
        with pytest.raises(LlmUnavailable) as caught:
            connect(server, max_retries=2).complete("a")
        assert caught.value.data["attempts"] == len(server.requests) == 3

    @pytest.mark.parametrize("status", [400, 401, 403, 404])
    def test_what_can_not_pass_is_not_tried_again(
        self, server: LoopbackModel, connect: Connect, status: int
    ) -> None:
        server.say(failing(status, "no such thing"))
        client = connect(server)
        with pytest.raises(LlmRejected) as caught:
            client.complete("a")
        assert client.model in caught.value.place
        assert len(server.requests) == 1

    def test_a_key_is_not_repeated(self, server: LoopbackModel, connect: Connect) -> None:
        server.key = "another one"
        client = connect(server)
        with pytest.raises(LlmRejected) as caught:
            client.complete("a")
        headers = server.requests[0].headers
        sent = headers.get("x-api-key") or headers["authorization"].removeprefix("Bearer ")
        assert sent not in f"{caught.value} {caught.value.as_dict()} {client!r}"
