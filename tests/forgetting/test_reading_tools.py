"""What a tool or an agent makes of what it read from the memory itself is forgotten with that."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from em import AsyncMemory, Engine, Memory
from em.traces.trace import Mission, ToolCall, Trace

ANA, BOB = "quokkaana", "wombatbob"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        for who, stem in (("ana", ANA), ("bob", BOB)):
            memory.observe(who, f"Lives at {stem}.")
            memory.observe(who, {"city": stem}, type="Profile")
            memory.checkpoint(who)
        yield memory


def stored(memory: Memory) -> str:
    events = [event.body for event in memory.log.read()]
    return repr(events) + repr([one.body for one in memory.store.artefacts()])


def by_recall(memory: Memory, who: str) -> str:
    return str(memory.recall("lives", who, 1)[0].text)


def by_state(memory: Memory, who: str) -> str:
    return str(memory.state(who).profile.city)


def by_question(memory: Memory, who: str) -> str:
    return str(memory.ask(who, code="state.profile.city"))


WAYS = [by_recall, by_state, by_question]
Way = Callable[[Memory, str], str]


def check(memory: Memory, kept: int) -> None:
    """Ana's text is gone, and Bob's is where it was, in so many bodies at least."""
    assert stored(memory).count(ANA) > kept
    assert stored(memory).count(BOB) > kept
    before = stored(memory).count(BOB)
    memory.forget(subject="ana")
    assert ANA not in stored(memory)
    assert stored(memory).count(BOB) == before


@pytest.mark.parametrize("way", WAYS)
def test_in_a_workflow(memory: Memory, tmp_path: Path, way: Way) -> None:
    (tmp_path / "flow.yaml").write_text(
        "workflows:\n  w:\n    params: [who]\n    steps:\n"
        "      - {name: look, tool: look, inputs: {who: '{{params.who}}'}}\n"
        "      - {name: two, tool: say, memory: {needs: [look]},"
        " inputs: {text: '{{memory.look_output}}'}}\n"
    )
    tools = {"look": lambda who: way(memory, who), "say": lambda text: f"said {text}"}
    for who in ("ana", "bob"):
        assert memory.workflow("w", {"who": who}, file="flow.yaml", tools=tools).status == "ok"
    check(memory, 5)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_async", [False, True])
def test_in_a_run_of_a_routine(memory: Memory, way: Way, is_async: bool) -> None:
    calls = [
        ToolCall(tool="find_home", args={"name": "someone"}, result={"home": "somewhere 12"}),
        ToolCall(tool="send", args={"to": "somewhere 12"}, result={"sent": "somewhere 12"}),
    ]
    mission = Mission("Send it home", {"name": "someone"})
    trace = Trace(mission=mission, events=calls, outcome="success", final_output="somewhere 12")
    routine = memory.compile(memory.add_trace(trace))
    tools: dict[str, Any] = {
        "find_home": lambda name: {"home": way(memory, name)},
        "send": lambda to: {"sent": to},
    }
    for who in ("ana", "bob"):
        if is_async:
            result = asyncio.run(_run(memory, routine.ref, who, tools))
        else:
            result = memory.run(routine, {"name": who}, tools)
        assert result.status == "ok", result
    check(memory, 5)


async def _run(memory: Memory, ref: str, who: str, tools: dict[str, Any]) -> Any:
    async with AsyncMemory(memory.store.location) as other:
        return await other.run(ref, {"name": who}, tools)


@pytest.mark.parametrize("way", WAYS)
def test_in_a_recorded_agent_and_its_threads(memory: Memory, way: Way) -> None:
    for who in ("ana", "bob"):
        with memory.record("tell where") as recorder:
            tell = recorder.tool(lambda text: f"told {text}", name="tell")
            with ThreadPoolExecutor(1) as pool:
                found = pool.submit(way, memory, who).result()
            tell(text=found)
    check(memory, 3)


@pytest.mark.parametrize("way", WAYS)
def test_in_the_agent_of_an_engine(memory: Memory, way: Way) -> None:
    engine = Engine(memory.store, name="e")

    @engine.function()
    def tell(text: str) -> str:
        return f"told {text}"

    @engine.set_agent
    def agent(who: str) -> str:
        return tell(way(memory, who))

    for who in ("ana", "bob"):
        assert engine(who).problem is None
    check(memory, 3)
