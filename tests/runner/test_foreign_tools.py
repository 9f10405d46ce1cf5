"""Tools of other libraries: each is run by a routine and recorded, as the library's own object."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.tools import tool as langchain_tool
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

import em
from em import Memory
from em.errors import UsageError
from em.runner.tools import ToolRegistry
from em.traces.trace import ToolCall
from mcp import Client

SERVER = Path(__file__).parent / "mcp_server.py"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def recorded(memory: Memory) -> list[tuple[str, Any, Any, Any]]:
    (kept,) = memory.traces()
    assert kept.trace.incomplete == ""
    found = [call for call in kept.trace.calls if isinstance(call, ToolCall)]
    return [(call.tool, call.args, call.result, call.error) for call in found]


def run(registry: ToolRegistry, name: str, /, **args: Any) -> Any:
    """Call a registered tool as a run does."""
    tool = registry[name]
    result = tool.function(**args)
    return asyncio.run(result) if tool.is_async else result


class Shop:
    """An object with a tool."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def close_order(self, order_id: str, reason: str = "") -> str:
        """Close an order."""
        self.closed.append(order_id)
        return f"closed {order_id}"


# LangChain


@langchain_tool
def price_of(item: str, count: int = 1) -> dict[str, int]:
    """Return the price of an item."""
    if item == "nothing":
        raise ToolException("there is no such item")
    return {"price": count * 3}


@langchain_tool
async def slow_price(item: str) -> int:
    """Return a price, later."""
    return len(item)


class Shouting(BaseTool):
    name: str = "shout"
    description: str = "Shout a word."

    def _run(self, word: str, run_manager: Any = None) -> str:
        assert run_manager is not None
        return word.upper()


@langchain_tool
def who(word: str, config: RunnableConfig) -> str:
    """Say who asks."""
    return f"{word} {config['metadata']['who']}"


@langchain_tool(response_format="content_and_artifact")
def two_things(word: str) -> tuple[str, dict[str, str]]:
    """Return a text and an object."""
    return word, {"of": word}


def test_a_routine_calls_tools_of_langchain() -> None:
    registry = ToolRegistry([price_of, slow_price, Shouting(), two_things])
    assert list(registry) == ["price_of", "slow_price", "shout", "two_things"]
    assert run(registry, "price_of", item="a", count=2) == {"price": 6}
    assert run(registry, "price_of", item="a") == {"price": 3}
    assert run(registry, "slow_price", item="abc") == 3
    assert run(registry, "shout", word="hey") == "HEY"
    assert run(registry, "two_things", word="x") == ["x", {"of": "x"}]
    assert registry["price_of"].description == "Return the price of an item."
    assert registry["price_of"].parameters == {"item", "count"}
    with pytest.raises(ToolException, match="no such item"):
        run(registry, "price_of", item="nothing")
    with pytest.raises(ValueError, match="the arguments don't fit price_of"):
        run(registry, "price_of", item=["a"])


def test_a_failure_that_langchain_would_return_as_text_fails_the_step() -> None:
    polite = price_of.model_copy(update={"handle_tool_error": True})
    assert polite.invoke({"item": "nothing"}) == "there is no such item"
    with pytest.raises(ToolException):
        run(ToolRegistry([polite]), "price_of", item="nothing")


def test_calls_of_langchain_tools_are_recorded(memory: Memory) -> None:
    tools = em.tool([price_of, slow_price, Shouting(), who, two_things])
    assert [type(one) for one in tools] == [
        StructuredTool, StructuredTool, Shouting, StructuredTool, StructuredTool,
    ]  # fmt: skip
    priced, slow, shout, asks, both = tools

    async def agent() -> None:
        call = {"type": "tool_call", "id": "1", "name": "price_of", "args": {"item": "a"}}
        assert priced.invoke(call).content == '{"price": 3}'
        assert await slow.ainvoke({"item": "ab"}) == 2
        assert shout.invoke("hey") == "HEY"
        assert await shout.ainvoke({"word": "ho"}) == "HO"
        assert asks.invoke({"word": "it is"}, {"metadata": {"who": "me"}}) == "it is me"
        assert both.invoke({"word": "x"}) == "x"
        with pytest.raises(ToolException):
            priced.invoke({"item": "nothing"})

    with memory.record("shop"):
        asyncio.run(agent())
    assert recorded(memory) == [
        ("price_of", {"item": "a", "count": 1}, {"price": 3}, None),
        ("slow_price", {"item": "ab"}, 2, None),
        ("shout", {"word": "hey"}, "HEY", None),
        ("shout", {"word": "ho"}, "HO", None),
        ("who", {"word": "it is"}, "it is me", None),
        ("two_things", {"word": "x"}, ["x", {"of": "x"}], None),
        (
            "price_of",
            {"item": "nothing", "count": 1},
            None,
            "ToolException: there is no such item",
        ),
    ]


# Definitions of OpenAI and Anthropic, with their functions


class OrderId(BaseModel):
    """Which order."""

    order_id: str


DEFINITIONS = [
    {
        "type": "function",
        "function": {
            "name": "close",
            "description": "Close it.",
            "parameters": OrderId.model_json_schema(),
        },
    },
    {"type": "function", "name": "close", "parameters": OrderId.model_json_schema()},
    {"name": "close", "description": "Close it.", "input_schema": OrderId.model_json_schema()},
    openai.pydantic_function_tool(OrderId, name="close"),
]


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_definition_comes_with_its_function(definition: Any, memory: Memory) -> None:
    shop = Shop()
    registry = ToolRegistry([(definition, shop.close_order)])
    assert run(registry, "close", order_id="#W1") == "closed #W1"
    with pytest.raises(ValueError, match="the arguments don't fit close: order_id: 7 is not"):
        run(registry, "close", order_id=7)
    assert shop.closed == ["#W1"]
    same, close = em.tool((definition, shop.close_order))
    assert same is definition
    with memory.record("close"):
        close(order_id="#W2")
    assert recorded(memory) == [("close", {"order_id": "#W2"}, "closed #W2", None)]


@anthropic.beta_tool
def weather(city: str, days: int = 1) -> str:
    """Tell the weather.

    Args:
        city: where
    """
    return f"sun in {city} for {days}"


@anthropic.beta_async_tool
async def forecast(city: str) -> str:
    """Tell the weather later."""
    return f"rain in {city}"


def test_tools_of_the_anthropic_sdk(memory: Memory) -> None:
    registry = ToolRegistry([weather, forecast])
    assert run(registry, "weather", city="Lisbon") == "sun in Lisbon for 1"
    assert run(registry, "forecast", city="Porto") == "rain in Porto"
    with pytest.raises(ValueError, match="don't fit weather"):
        run(registry, "weather", city=1)
    first, second = em.tool([weather, forecast])
    assert type(first) is type(weather)
    assert first.to_dict() == weather.to_dict()

    async def agent() -> None:
        assert first.call({"city": "Lisbon", "days": 2}) == "sun in Lisbon for 2"
        assert await second.call({"city": "Porto"}) == "rain in Porto"
        assert first("Faro") == "sun in Faro for 1"

    with memory.record("ask"):
        asyncio.run(agent())
    assert recorded(memory) == [
        ("weather", {"city": "Lisbon", "days": 2}, "sun in Lisbon for 2", None),
        ("forecast", {"city": "Porto"}, "rain in Porto", None),
        ("weather", {"city": "Faro"}, "sun in Faro for 1", None),
    ]


# Pydantic


class Discount(BaseModel):
    """Give a discount."""

    order_id: str
    percent: int = 10

    def __call__(self) -> str:
        return f"{self.percent}% on {self.order_id}"


def test_a_pydantic_model_is_a_tool(memory: Memory) -> None:
    registry = ToolRegistry([Discount, (OrderId, lambda order: f"got {order.order_id}")])
    assert run(registry, "Discount", order_id="#W1") == "10% on #W1"
    assert run(registry, "OrderId", order_id="#W1") == "got #W1"
    made, (_, got) = em.tool([Discount, (OrderId, lambda order: f"got {order.order_id}")])
    assert issubclass(made, Discount)
    assert made.model_json_schema() == Discount.model_json_schema()
    with memory.record("give"):
        assert made(order_id="#W2", percent=5)() == "5% on #W2"
        assert got(OrderId(order_id="#W3")) == "got #W3"
    assert recorded(memory) == [
        ("Discount", {"order_id": "#W2", "percent": 5}, "5% on #W2", None),
        ("OrderId", {"order_id": "#W3"}, "got #W3", None),
    ]


def test_a_function_that_takes_a_model_gets_one_from_json() -> None:
    def close(order: OrderId, note: str = "") -> str:
        assert isinstance(order, OrderId)
        return order.order_id + note

    registry = ToolRegistry([close])
    assert run(registry, "close", order={"order_id": "#W1"}, note="!") == "#W1!"


# MCP


server = MCPServer("shop")


@server.tool()
def stock(item: str) -> int:
    """Count what is left."""
    if item == "nothing":
        raise ToolError("there is no such item")
    return len(item)


def test_calls_of_an_mcp_client_are_recorded(memory: Memory) -> None:
    async def agent() -> None:
        async with Client(server) as client:
            assert em.tool(em.tool(client)) is client
            answer = await client.call_tool("stock", {"item": "tea"})
            assert answer.structured_content == {"result": 3}
            assert (await client.call_tool("stock", {"item": "nothing"})).is_error

    with memory.record("count"):
        asyncio.run(agent())
    (name, args, result, error), (*_, refused) = recorded(memory)
    assert (name, args, result, error) == ("stock", {"item": "tea"}, {"result": 3}, None)
    assert "there is no such item" in refused


# Lists, methods, and what is no tool


def test_tools_come_as_a_list_of_functions_and_methods() -> None:
    shop = Shop()
    registry = ToolRegistry([os.getcwd, shop.close_order, {"again": shop.close_order}])
    assert list(registry) == ["getcwd", "close_order", "again"]
    assert run(registry, "again", order_id="#W1") == "closed #W1"


def test_a_schema_of_arguments_is_checked_before_the_call() -> None:
    shop = Shop()
    registry = ToolRegistry()
    schema = {"type": "object", "properties": {"order_id": {"pattern": "^#"}}}
    registry.register("close", shop.close_order, effect="write", args_schema=schema)
    assert run(registry, "close", order_id="#W1") == "closed #W1"
    with pytest.raises(ValueError, match="the arguments don't fit close: order_id"):
        run(registry, "close", order_id="W1")
    registry.register("by_model", shop.close_order, args_schema=OrderId)
    with pytest.raises(ValueError, match="don't fit by_model"):
        run(registry, "by_model", order=1)
    assert shop.closed == ["#W1"]
    with pytest.raises(UsageError, match="args_schema"):
        registry.register("bad", shop.close_order, args_schema={"type": "thing"})


@pytest.mark.parametrize("thing", [7, {"name": 1}, [3]])
def test_what_is_no_tool_is_refused(thing: Any) -> None:
    with pytest.raises(UsageError, match="expected"):
        ToolRegistry([thing]) if not isinstance(thing, dict) else ToolRegistry([(thing, len)])
    with pytest.raises(UsageError, match="expected"):
        em.tool(thing if not isinstance(thing, dict) else (thing, len))


def test_a_file_of_tools_may_have_tools_of_other_libraries(tmp_path: Path) -> None:
    file = tmp_path / "tools.py"
    file.write_text(
        "from langchain_core.tools import tool\n\n\n"
        "@tool\ndef price(item: str) -> int:\n    'Tell a price.'\n    return len(item)\n\n\n"
        "def plain(x):\n    return x\n\n\nPAIR = (1, 2)\n"
    )
    registry = ToolRegistry.load(str(file))
    assert {"price", "plain"} <= registry.keys()
    assert run(registry, "price", item="tea") == 3
