"""Capture in the process: around any agent, and from the libraries that agents are written with."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import AsyncMemory, Memory
from em.traces.recorder import Recorder, recorded_tool
from em.traces.trace import ToolCall


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


@recorded_tool(effect="read")
def get_order(order_id: str) -> dict[str, str]:
    return {"id": order_id, "status": "pending"}


@recorded_tool
def cancel(order_id: str, *, reason: str = "") -> str:
    if not order_id.startswith("#"):
        raise ValueError("no such order")
    return "cancelled"


def names(trace: Any) -> list[str]:
    return [call.tool for call in trace.calls if isinstance(call, ToolCall)]


def test_a_recorder_notes_calls_errors_and_times() -> None:
    recorder = Recorder("add", {"x": 1}, app="test")

    def add(x: int, y: int) -> int:
        if y == 0:
            raise ValueError("no zero")
        return x + y

    recorded = recorder.tool(add, effect="read")
    own = recorder.udf(add, name="mine")
    recorder.said("user", "add it")
    with pytest.raises(ValueError, match="no zero"):
        recorded(x=1, y=0)
    assert (recorded(1, 2), own(x=1, y=1)) == (3, 2)
    trace = recorder.trace(final_output=3, model_calls=4)
    first, second, third = trace.calls
    assert isinstance(first, ToolCall)
    assert (first.error, second.result, third.result) == ("ValueError: no zero", 3, 2)
    assert second.args == {"x": 1, "y": 2}
    assert first.duration_ms is not None
    assert (trace.usage.model_calls, trace.mission.input_summary) == (4, {"x": 1})


def test_an_agent_is_recorded_by_a_context_manager(memory: Memory) -> None:
    with memory.record("cancel an order", {"order": "#W1"}, app="mine") as recorder:
        recorder.said("user", "cancel #W1")
        recorder.answered(tokens=50)
        get_order("#W1")
        recorder.output = cancel("#W1", reason="dear")
    (kept,) = memory.traces()
    assert (kept.trace.outcome, kept.trace.final_output) == ("success", "cancelled")
    assert names(kept.trace) == ["get_order", "cancel"]
    assert kept.trace.calls[1].args == {"order_id": "#W1", "reason": "dear"}
    assert (kept.trace.usage.tokens, kept.trace.usage.model_calls) == (50, 1)
    get_order("#W2")  # nobody records
    assert len(memory.traces()[0].trace.calls) == 2


def test_an_agent_is_recorded_by_a_decorator_each_time_it_runs(memory: Memory) -> None:
    @memory.record()
    def agent(order_id: str) -> str:
        """Cancel an order."""
        try:
            return cancel(order_id)
        except ValueError:
            return cancel(f"#{order_id}")

    assert agent("#W1") == agent(order_id="W2") == "cancelled"
    first, second = memory.traces()
    assert (first.trace.mission.goal, first.trace.mission.input_summary) == (
        "Cancel an order.",
        {"order_id": "#W1"},
    )
    assert [call.error for call in second.trace.calls] == ["ValueError: no such order", None]
    routine = memory.compile([second.id], name="cancel")
    assert routine.name == "cancel"


def test_an_agent_that_raises_is_a_failure_that_is_kept(memory: Memory) -> None:
    @memory.record("fail")
    def agent() -> None:
        cancel("x")

    with pytest.raises(ValueError, match="no such order"):
        agent()
    assert memory.traces()[0].trace.outcome == "failure"


def test_async_agents_and_their_tools_do_not_mix(tmp_path: Path) -> None:
    @recorded_tool
    async def fetch(n: int) -> int:
        await asyncio.sleep(0.01 * (3 - n))
        return n

    async def run() -> list[list[Any]]:
        async with AsyncMemory(tmp_path / "em.db") as memory:

            @memory.record("fetch")
            async def agent(n: int) -> int:
                first: int = await fetch(n)
                second: int = await fetch(n)
                return first + second

            assert await asyncio.gather(*map(agent, range(3))) == [0, 2, 4]
            async with memory.record("by hand") as recorder:
                recorder.output = await fetch(7)
            return [[call.result for call in kept.trace.calls] for kept in await memory.traces()]

    assert sorted(asyncio.run(run())) == [[0, 0], [1, 1], [2, 2], [7]]


def test_what_json_cant_say_is_told_as_text(memory: Memory) -> None:
    @recorded_tool
    def odd(thing: Any) -> Any:
        return thing

    with memory.record("odd"):
        odd(object())
        odd({1, 2})
        odd(float("nan"))
    kept = memory.traces()[0].trace.calls
    assert "object object" in kept[0].result
    assert kept[2].result == "nan"


def test_a_result_that_cant_be_shown_does_not_fail_the_call(memory: Memory) -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with memory.record("look", {}) as recorder:
        assert isinstance(recorder.tool(Shy, name="look")(), Shy)
    (trace,) = memory.traces()
    (call,) = trace.trace.calls
    assert isinstance(call, ToolCall)
    assert call.error is None
    assert "Shy" in call.result


def graph() -> Any:
    """An agent of LangGraph whose model is scripted; everything else is the real library."""
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    @tool
    def look_up(order_id: str) -> dict[str, str]:
        """Look up an order."""
        if not order_id.startswith("#"):
            raise ValueError("no such order")
        return {"id": order_id, "status": "pending"}

    def asking(number: int, order_id: str) -> AIMessage:
        call = {"name": "look_up", "args": {"order_id": order_id}, "id": f"c{number}"}
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return AIMessage("", tool_calls=[call], usage_metadata=usage)

    model = GenericFakeChatModel(
        messages=iter([asking(1, "W1"), asking(2, "#W1"), AIMessage("It is pending.")])
    )
    made = StateGraph(MessagesState)
    made.add_node("agent", lambda state: {"messages": [model.invoke(state["messages"])]})
    made.add_node("tools", ToolNode([look_up], handle_tool_errors=True))
    made.add_edge(START, "agent")
    made.add_conditional_edges("agent", tools_condition)
    made.add_edge("tools", "agent")
    return made.compile()


@pytest.mark.filterwarnings("ignore")  # of the library, about its own future
def test_langgraph_is_captured_by_a_callback_handler(memory: Memory) -> None:
    from langchain_core.messages import HumanMessage

    from em.traces.live.langchain import EmCallbackHandler

    handler = EmCallbackHandler(memory)
    asked = {"messages": [HumanMessage("what of W1?")]}
    graph().invoke(asked, config={"callbacks": [handler]})
    asyncio.run(graph().ainvoke(asked, config={"callbacks": [handler]}))
    kept = memory.traces()
    assert handler.trace_ids == [one.id for one in kept]
    for one in kept:
        trace = one.trace
        assert (trace.mission.goal, trace.final_output) == ("what of W1?", "It is pending.")
        assert [call.args for call in trace.calls] == [{"order_id": "W1"}, {"order_id": "#W1"}]
        assert "no such order" in str(trace.calls[0].error)
        assert trace.calls[1].result == {"id": "#W1", "status": "pending"}
        assert (trace.usage.tokens, trace.usage.model_calls) == (30, 3)
        said = [event.role for event in trace.events if not isinstance(event, ToolCall)]  # type: ignore[union-attr]
        assert said == ["user", "assistant"]


@pytest.mark.filterwarnings("ignore")  # as above
def test_what_langgraph_gives_is_imported_however_it_was_written(
    memory: Memory, tmp_path: Path
) -> None:
    from langchain_core.load import dumpd
    from langchain_core.messages import HumanMessage, messages_to_dict

    messages = graph().invoke({"messages": [HumanMessage("what of W1?")]})["messages"]
    for number, written in enumerate((
        messages_to_dict(messages),
        {"messages": [message.model_dump() for message in messages]},
        dumpd({"messages": messages}),
    )):  # fmt: skip
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(written))
        (read,) = memory.import_files(path)
        assert (read.format, read.calls) == ("langchain", 2)
    assert all(
        kept.trace.calls[1].result == {"id": "#W1", "status": "pending"} for kept in memory.traces()
    )


def scripted_agents() -> Any:
    """Agents of OpenAI's SDK whose model is scripted; everything else is the real library."""
    from agents import Agent, function_tool
    from agents.items import ModelResponse
    from agents.models.interface import Model
    from agents.tracing import generation_span
    from agents.usage import Usage
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    class Scripted(Model):
        def __init__(self, *turns: Any) -> None:
            self._turns = iter(turns)

        async def get_response(self, *_args: Any, **more: Any) -> Any:
            turn, given = next(self._turns), more["input"]
            asked = given if isinstance(given, list) else [{"role": "user", "content": given}]
            with generation_span(input=asked, model="scripted") as span:
                span.span_data.output = [turn.model_dump()]
                span.span_data.usage = {"input_tokens": 7, "output_tokens": 3}
            return ModelResponse(output=[turn], usage=Usage(), response_id=None)

        def stream_response(self, *_args: Any, **_more: Any) -> Any:
            raise NotImplementedError

    def call(call_id: str, name: str, **args: Any) -> Any:
        return ResponseFunctionToolCall(
            arguments=json.dumps(args), call_id=call_id, name=name, type="function_call"
        )

    def say(text: str) -> Any:
        content = ResponseOutputText(text=text, type="output_text", annotations=[])
        return ResponseOutputMessage(
            id="m", content=[content], role="assistant", status="completed", type="message"
        )

    @function_tool
    def look_up(order_id: str) -> str:
        return json.dumps({"id": order_id, "status": "pending"})

    helped = Scripted(call("h1", "look_up", order_id="#W9"), say("pending"))
    helper = Agent(name="helper", tools=[look_up], model=helped)
    return Agent(
        name="shop",
        tools=[look_up, helper.as_tool("ask_helper", "asks")],
        model=Scripted(
            call("c1", "look_up", order_id="#W1"), call("c2", "ask_helper", input="and #W9?"),
            say("Both are pending."),
        ),
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # of the library, about its own future
def test_the_openai_agents_sdk_is_captured_by_a_tracing_processor(memory: Memory) -> None:
    import agents

    from em.traces.live.openai_agents import EmTracingProcessor

    processor = EmTracingProcessor(memory)
    agents.set_trace_processors([processor])
    try:
        # Its `run_sync` leaves an event loop open behind it.
        asyncio.run(agents.Runner.run(scripted_agents(), "what of #W1?"))
    finally:
        agents.set_trace_processors([])
    main, helper = sorted(memory.traces(), key=lambda kept: kept.trace.parent or "")
    assert sorted(processor.trace_ids) == sorted([main.id, helper.id])
    assert main.trace.mission.goal == "what of #W1?"
    assert names(main.trace) == ["look_up", "ask_helper"]
    assert main.trace.calls[0].result == {"id": "#W1", "status": "pending"}
    assert (helper.trace.parent, helper.trace.parent_call) == (main.id, "c2")
    assert [call.args for call in helper.trace.calls] == [{"order_id": "#W9"}]
    assert (main.trace.usage.tokens, main.trace.usage.model_calls) == (30, 3)


def test_importing_em_imports_none_of_these_libraries() -> None:
    import subprocess
    import sys

    code = (
        "import sys, em.memory, em.traces.transcripts, em.traces.recorder\n"
        "em.memory.Memory(':memory:').record('x')\n"
        "heavy = ('langchain_core', 'agents', 'opentelemetry', 'google.protobuf')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
