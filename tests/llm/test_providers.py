"""The real SDKs against a model on loopback: every fault, both protocols."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from em import Settings
from em.errors import LlmError, LlmRejected, LlmUnavailable
from em.llm import Completion, Tokens, get_llm_client
from em.llm.client import LONGEST_WAIT, Client
from em.llm.wires import AnthropicWire, OpenAIWire
from em.settings import Price, ProviderSettings
from em.testing import LoopbackModel, ProviderConformance
from em.testing.model_server import Turn, failing, rate_limited
from em.testing.providers import CITY, LISBON, OPEN, Connect

SECRET = "sk-test-0123456789"


def connect_by(protocol: Any) -> Connect:
    def connect(server: LoopbackModel, **settings: Any) -> Any:
        mine = ProviderSettings(
            protocol=protocol,
            base_url=server.base_url,
            model="m-1",
            key_env="MY_KEY",
            **settings,
        )
        return get_llm_client("mine", settings=Settings(providers={"mine": mine}), environ=KEYS)

    return connect


KEYS = {"MY_KEY": SECRET}


class TestAnthropic(ProviderConformance):
    @pytest.fixture
    def connect(self) -> Connect:
        return connect_by("anthropic")


class TestOpenAI(ProviderConformance):
    @pytest.fixture
    def connect(self) -> Connect:
        return connect_by("openai")


@pytest.fixture
def server() -> Iterator[LoopbackModel]:
    with LoopbackModel() as server:
        yield server


@pytest.fixture(params=["anthropic", "openai"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def client_of(server: LoopbackModel, protocol: str, **options: Any) -> Client:
    if protocol == "anthropic":
        wire: Any = AnthropicWire(key=SECRET, base_url=server.base_url, model="m", timeout=10)
    else:
        wire = OpenAIWire(
            key=SECRET, base_url=f"{server.base_url}/v1", model="m", timeout=10, new_limit=False
        )
    return Client(wire, provider="p", model="m", **options)


def test_waits_double_with_chance_and_a_server_that_asks_for_time_gets_it(
    server: LoopbackModel, protocol: str
) -> None:
    waits: list[float] = []
    server.say(failing(), failing(), failing(529), rate_limited("7"), "ok")
    answer = client_of(server, protocol, sleep=waits.append).complete("a")
    assert answer.attempts == 5
    first, second, third, asked = waits
    assert 0.25 <= first <= 0.5 <= second <= 1.0 <= third <= 2.0
    assert asked == 7


def test_a_date_to_wait_for_is_understood_and_nonsense_is_not_waited_for(
    server: LoopbackModel, protocol: str
) -> None:
    waits: list[float] = []
    past = "Wed, 21 Oct 2015 07:28:00 GMT"
    server.say(rate_limited(past), rate_limited("soon"), rate_limited("-3"), "ok")
    client_of(server, protocol, sleep=waits.append).complete("a")
    assert waits[0] == waits[2] == 0
    assert 0 < waits[1] <= 1


def test_a_server_that_asks_for_an_hour_is_not_waited_for(
    server: LoopbackModel, protocol: str
) -> None:
    server.say(rate_limited("3600"))
    with pytest.raises(LlmUnavailable, match="asks to wait 3600 s") as caught:
        client_of(server, protocol).complete("a")
    assert LONGEST_WAIT < 3600
    assert caught.value.data["attempts"] == 1


def test_the_protocols_own_structured_mode_is_used(server: LoopbackModel, protocol: str) -> None:
    server.say(LISBON)
    client_of(server, protocol).complete("Where?", schema=CITY, name="a city!")
    body = server.requests[0].body
    if protocol == "anthropic":
        form = body["output_config"]["format"]
        assert form["type"] == "json_schema"
        assert form["schema"]["properties"].keys() == {"city", "people"}
        assert "tool_choice" not in body
    else:
        form = body["response_format"]["json_schema"]
        assert (form["name"], form["strict"], form["schema"]) == ("a_city_", True, CITY)
    assert "system" not in str(body["messages"])


def test_a_server_without_a_structured_mode_is_asked_in_words_and_not_twice(
    protocol: str,
) -> None:
    with LoopbackModel(rejects=["output_config", "response_format"]) as server:
        client = client_of(server, protocol)
        server.say(f"Here you are:\n```json\n{msgspec.json.encode(LISBON).decode()}\n```", LISBON)
        first = client.complete("Where?", schema=CITY, system="Be short")
        assert (first.value, first.attempts) == (LISBON, 2)
        second = client.complete("Where?", schema=CITY)
        assert (second.value, second.attempts) == (LISBON, 1)
    asked = str(server.requests[-2].body)
    assert "JSON Schema" in asked
    assert "Be short" in asked


def test_a_free_form_object_is_asked_for_in_words_where_the_mode_would_empty_it(
    server: LoopbackModel,
) -> None:
    server.say({"args": {"x": 1}})
    client_of(server, "anthropic").complete("?", schema=OPEN)
    assert "output_config" not in server.requests[0].body
    assert "JSON Schema" in server.requests[0].body["system"]


def test_a_request_that_is_wrong_in_itself_is_told_in_the_servers_words(protocol: str) -> None:
    with (
        LoopbackModel(rejects=["messages"]) as server,
        pytest.raises(LlmRejected, match="Unsupported parameter: 'messages'"),
    ):
        client_of(server, protocol).complete("Where?", schema=CITY)
    assert len(server.requests) == 2


def test_an_openai_model_that_wants_another_limit_gets_it() -> None:
    with LoopbackModel() as server:
        server.say(
            failing(400, "'max_tokens' is not supported. Use 'max_completion_tokens' instead."),
            "one",
            "two",
        )
        client = client_of(server, "openai", max_retries=0)
        assert client.complete("a", max_tokens=9).attempts == 2
        assert client.complete("a", max_tokens=9).attempts == 1
    assert [seen.body.get("max_completion_tokens") for seen in server.requests] == [None, 9, 9]


def test_temperature_is_sent_only_if_it_was_given(server: LoopbackModel, protocol: str) -> None:
    server.say("a", "b")
    client = client_of(server, protocol)
    client.complete("a")
    client.complete("a", temperature=0.0)
    assert [seen.body.get("temperature") for seen in server.requests] == [None, 0.0]


def test_costs_follow_the_price_and_add_up(server: LoopbackModel, protocol: str) -> None:
    client = client_of(server, protocol, price=Price(2, 10, 0.5))
    turn = Turn(text="hi", input_tokens=1_000, output_tokens=100, cached_tokens=400)
    server.say(turn, turn)
    assert client.complete("a").cost_usd == pytest.approx((600 * 2 + 400 * 0.5 + 1000) / 1e6)
    client.complete("a")
    assert client.spent.cost_usd == pytest.approx(2 * 2400e-6)
    assert client.spent.tokens == Tokens(2_000, 200, 800)


def test_a_price_that_is_not_known_is_no_figure(server: LoopbackModel, protocol: str) -> None:
    client = client_of(server, protocol, price=Price(2, 10))
    server.say(Turn(text="hi", cached_tokens=4), "no cache")
    assert client.complete("a").cost_usd is None
    assert client.complete("a").cost_usd is not None
    assert client.spent.cost_usd is None


def test_a_server_that_is_not_there(protocol: str) -> None:
    with LoopbackModel() as server:
        address = server.base_url
    waits: list[float] = []
    with pytest.raises(LlmUnavailable, match="the connection failed"):
        client_of_address(address, protocol, waits).complete("a")
    assert len(waits) == 2


def client_of_address(address: str, protocol: str, waits: list[float]) -> Client:
    class There:
        base_url = address

    return client_of(There, protocol, sleep=waits.append, max_retries=2)  # type: ignore[arg-type]


def test_many_threads_share_a_client(server: LoopbackModel, protocol: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    server.say(*["hi"] * 40)
    client = client_of(server, protocol)

    def ask(number: int) -> Completion:
        return client.complete(f"{number}")

    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(ask, range(40)))) == 40
    assert (client.spent.calls, client.spent.tokens.output) == (40, 280)


def test_a_body_of_another_shape_is_an_error_of_ours(server: LoopbackModel, protocol: str) -> None:
    for body in (b"[]", b"{}", b'"hi"', b"null", b'{"choices": [], "content": null}'):
        server.say(Turn(body=body))
        with pytest.raises(LlmError):
            client_of(server, protocol, max_retries=0).complete("a")
