"""The routines in use as tools of an agent: plain functions, and four libraries' forms."""

import asyncio
import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from langchain_core.tools import StructuredTool

from em import AsyncMemory, Memory
from em.errors import EmError, UsageError
from em.runner.package import keep_routine
from em.settings import Settings
from em.testing.model_server import LoopbackModel, ModelCall, Turn

REFUND = """\
name: refund
description: Pay an order back.
checks: hand_over
input_schema:
  type: object
  required: [order_id, reason]
  properties:
    order_id: {type: string, pattern: "^W[0-9]+$"}
    reason: {type: string, enum: [late, broken]}
    note: {type: string}
requests: ["Refund {order_id}, {reason}."]
tools: [{name: pay, effect: write}]
steps:
  - {id: open, type: assert, check: "order_id != 'W9'", message: "is paid back already"}
  - {id: paid, type: tool.call, tool: pay, args: {order_id: "{{ order_id }}"}, save_as: paid}
  - {id: out, type: return, value: "{{ paid }} ({{ reason }})"}
"""
GIVEN = {"order_id": "W1", "reason": "late"}


@pytest.fixture
def paid() -> list[str]:
    return []


@pytest.fixture
def memory(paid: list[str]) -> Iterator[Memory]:
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": REFUND})
        yield memory


def tools_of(paid: list[str]) -> dict[str, Any]:
    def pay(order_id: str) -> str:
        paid.append(order_id)
        return f"paid {order_id}"

    return {"pay": pay}


def test_plain_functions_have_the_inputs_as_signature(memory: Memory, paid: list[str]) -> None:
    (refund,) = memory.tools(tools=tools_of(paid))
    assert list(inspect.signature(refund).parameters) == ["order_id", "reason", "note"]
    assert (refund.__name__, refund(**GIVEN)) == ("refund", "paid W1 (late)")


@pytest.mark.parametrize("form", ["openai", "anthropic"])
def test_a_provider_s_sdk_takes_the_schemas_and_the_results(
    memory: Memory, paid: list[str], form: Any
) -> None:
    toolset = memory.tools(form, tools_of(paid))
    wanted = Turn(calls=[ModelCall("refund", GIVEN)])
    with LoopbackModel() as model:
        model.say(wanted, Turn(text="done"))
        agent = by_openai if form == "openai" else by_anthropic
        assert agent(model.base_url, toolset) == "done"
        sent = json.dumps(model.requests[-1].body)
    assert paid == ["W1"]
    assert "paid W1 (late)" in sent


def by_openai(url: str, toolset: Any) -> str:
    messages: list[Any] = [{"role": "user", "content": "Refund W1, it was late."}]
    with openai.OpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0) as client:
        while True:
            answer = client.chat.completions.create(
                model="m", messages=messages, tools=toolset.schemas
            )
            message = answer.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return message.content or ""
            messages += [
                {
                    "role": "tool",
                    "tool_call_id": one.id,
                    **toolset.call(one.function.name, one.function.arguments),  # type: ignore[union-attr]
                }
                for one in message.tool_calls
            ]


def by_anthropic(url: str, toolset: Any) -> str:
    messages: list[Any] = [{"role": "user", "content": "Refund W1, it was late."}]
    with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client:
        while True:
            answer = client.messages.create(
                model="m", max_tokens=99, messages=messages, tools=toolset.schemas
            )
            messages.append({"role": "assistant", "content": answer.content})
            calls = [one for one in answer.content if one.type == "tool_use"]
            if not calls:
                return "".join(one.text for one in answer.content if one.type == "text")
            results = [
                {"type": "tool_result", "tool_use_id": one.id, **toolset.call(one.name, one.input)}
                for one in calls
            ]
            messages.append({"role": "user", "content": results})


def content(told: dict[str, Any]) -> Any:
    return json.loads(told["content"])


def test_a_null_for_an_input_that_may_be_left_out_is_no_value(
    memory: Memory, paid: list[str]
) -> None:
    toolset = memory.tools("openai", tools_of(paid))
    assert toolset.schemas[0]["function"]["strict"] is True
    told = toolset.call("refund", json.dumps({**GIVEN, "note": None}))
    assert content(told)["output"] == "paid W1 (late)"


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ({"order_id": "W1"}, {"order_id": "W1"}),
        ({"order_id": "W1", "reason": "ugly"}, {"order_id": "W1"}),
        ({"order_id": "1", "reason": "late"}, {"reason": "late"}),
    ],
)
def test_inputs_that_are_missing_or_wrong_come_back_as_a_form(
    memory: Memory, paid: list[str], given: dict[str, Any], known: dict[str, Any]
) -> None:
    told = memory.tools("anthropic", tools_of(paid)).call("refund", given)
    shown = content(told)
    assert (shown["status"], told["is_error"], paid) == ("needs_input", False, [])
    assert shown["form"]["known"] == known
    assert shown["form"]["inputs"]["properties"]["reason"]["enum"] == ["late", "broken"]
    assert [run.body for run in memory.log.read(kinds=["run_waiting"])] == []


def test_a_hand_over_says_which_check_and_a_failure_is_an_error(
    memory: Memory, paid: list[str]
) -> None:
    toolset = memory.tools("anthropic", tools_of(paid))
    told = toolset.call("refund", {**GIVEN, "order_id": "W9"})
    assert content(told)["reason"]["step_id"] == "open"
    assert not told["is_error"]

    def breaks(order_id: str) -> str:
        raise OSError(order_id)

    told = memory.tools("anthropic", {"pay": breaks}).call("refund", GIVEN)
    assert (content(told)["failure"]["step_id"], told["is_error"]) == ("paid", True)


@pytest.mark.parametrize("form", ["openai", "langchain"])
def test_a_model_gets_the_beginning_of_a_huge_result(memory: Memory, form: Any) -> None:
    made = memory.tools(form, {"pay": lambda order_id: "x" * 1_000_000})
    told = made[0].invoke(GIVEN) if form == "langchain" else content(made.call("refund", GIVEN))
    assert told["status"] == "ok"
    assert told["run_id"] in told["too_large"]
    assert len(str(told)) < 30_000


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [("refnd", {}, "not_found"), ("refund", "{", "bad_input"), ("refund", "[]", "bad_input")],
)
def test_a_call_that_can_not_be_read_is_answered_with_what_to_do(
    memory: Memory, name: str, arguments: Any, code: str
) -> None:
    told = memory.tools("anthropic").call(name, arguments)
    assert (content(told)["error"]["code"], told["is_error"]) == (code, True)


def test_langchain_gets_tools_of_its_own(memory: Memory, paid: list[str]) -> None:
    (refund,) = memory.tools("langchain", tools_of(paid))
    assert isinstance(refund, StructuredTool)
    assert (refund.name, refund.description) == ("refund", "Pay an order back.")
    assert refund.invoke(GIVEN)["output"] == "paid W1 (late)"
    assert asyncio.run(refund.ainvoke(GIVEN))["output"] == "paid W1 (late)"
    assert refund.invoke({"order_id": "W1"})["form"]["known"] == {"order_id": "W1"}


def test_pydantic_ai_gets_tools_of_its_own(memory: Memory, paid: list[str]) -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    messages = pytest.importorskip("pydantic_ai.messages")
    models = pytest.importorskip("pydantic_ai.models.function")
    told: list[Any] = []

    def model(said: list[Any], info: Any) -> Any:
        (tool,) = info.function_tools
        assert tool.parameters_json_schema["required"] == ["order_id", "reason"]
        returned = [one for one in said[-1].parts if one.part_kind == "tool-return"]
        told.extend(one.content for one in returned)
        part = messages.TextPart("done") if returned else messages.ToolCallPart("refund", GIVEN)
        return messages.ModelResponse(parts=[part])

    (refund,) = memory.tools("pydantic-ai", tools_of(paid))
    assert isinstance(refund, pydantic_ai.Tool)
    agent = pydantic_ai.Agent(models.FunctionModel(model), tools=[refund])
    assert asyncio.run(agent.run("Refund W1.")).output == "done"
    assert (told[0]["output"], paid) == ("paid W1 (late)", ["W1"])


@pytest.mark.parametrize(
    ("form", "module", "package"),
    [
        ("langchain", "langchain_core.tools", "langchain-core"),
        ("pydantic-ai", "pydantic_ai", "pydantic-ai"),
    ],
)
def test_a_library_that_is_not_there_is_named(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, form: Any, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=package):
        memory.tools(form)


def test_only_routines_in_use_are_handed_out(memory: Memory) -> None:
    other = REFUND.replace("name: refund", "name: proposed")
    keep_routine(memory.store, {"routine.yaml": other}, retired=True)
    assert [one.__name__ for one in memory.tools()] == ["refund"]
    with pytest.raises(EmError):
        memory.tools(names=["no_such_routine"])
    memory.retire("refund@1")
    assert memory.tools() == []


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_the_switch_takes_them_all_away(mode: Any) -> None:
    with Memory("em.db") as memory:
        keep_routine(memory.store, {"routine.yaml": REFUND})
    with Memory("em.db", settings=Settings(routines=mode)) as memory:
        assert memory.tools() == []
        assert memory.tools("openai").schemas == []


def test_an_async_memory_hands_out_the_same_to_be_awaited(memory: Memory, paid: list[str]) -> None:
    async def pay(order_id: str) -> str:
        await asyncio.sleep(0)
        return f"paid {order_id}"

    async def work() -> list[Any]:
        async with AsyncMemory("em.db") as other:
            (refund,) = await other.tools(tools={"pay": pay})
            agent = other.agent(pay, {"pay": pay})
            assert await agent("Refund W1, late.") == "paid W1 (late)"
            toolset = await other.tools("openai", tools_of(paid))
            (tool,) = await other.tools("langchain", tools_of(paid))
            assert inspect.iscoroutinefunction(refund)
            assert toolset.schemas == memory.tools("openai").schemas
            told = await toolset.call("refund", GIVEN)
            return [
                await refund(**GIVEN),
                content(told)["output"],
                (await tool.ainvoke(GIVEN))["output"],
            ]

    assert asyncio.run(work()) == ["paid W1 (late)"] * 3
