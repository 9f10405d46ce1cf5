"""`engine.metrics` counts the calls of one engine, sync and async, without reading the store."""

import asyncio
from pathlib import Path

import pytest

from em import Engine, Memory
from em.behaviour.result import Result


def test_hits_and_misses_are_counted() -> None:
    engine = Engine()

    @engine.function(effect="write")
    def note(text: str) -> str:
        return f"noted {text}"

    def agent(task: str) -> str:
        engine.report(tokens=100, cost_usd=0.5)
        return note(task)

    engine.set_agent(agent).finalize()
    assert engine.metrics.hit_rate == 0.0
    for task in ("a", "a", "b", "a"):
        engine(task)
    metrics = engine.metrics
    assert (metrics.calls, metrics.hits, metrics.misses, metrics.hand_overs) == (4, 2, 2, 0)
    assert metrics.hit_rate == 0.5
    now = metrics.read()
    assert (now.saved_tokens, now.saved_cost_usd) == (200, pytest.approx(1.0))
    assert now.hit_seconds > 0
    assert now.agent_seconds > 0
    assert repr(metrics) == "<Metrics 2 hits, 2 misses, 0 hand-overs>"
    metrics.reset()
    assert metrics.read().calls == 0
    assert engine.stats().hits == 2  # what is stored stays


def test_an_async_engine_counts_when_its_call_ends() -> None:
    engine = Engine()

    @engine.function(effect="write")
    async def note(text: str) -> str:
        return text

    async def agent(task: str) -> str:
        return await note(task)

    engine.set_agent(agent).finalize()

    async def run() -> None:
        first = await engine("a")
        second = await engine("a")
        assert (first.hit, second.hit) == (False, True)
        third = await engine.acall("a")
        assert third.hit

    asyncio.run(run())
    assert (engine.metrics.hits, engine.metrics.misses) == (2, 1)


def test_a_call_that_raises_is_not_counted() -> None:
    engine = Engine()

    def agent(task: str) -> str:
        raise LookupError(task)

    engine.set_agent(agent).finalize()
    with pytest.raises(LookupError):
        engine("a")
    assert engine.metrics.calls == 0


def test_a_result_is_not_work_that_is_still_to_be_done(tmp_path: Path) -> None:
    engine = Engine().set_agent(lambda task: task).finalize()
    with Memory(tmp_path / "em.db") as memory:

        @memory.record("ask the engine")
        def agent(task: str) -> Result:
            return engine(task)

        assert agent("a").value == "a"
        (kept,) = memory.traces()
        assert kept.trace.incomplete == ""
