"""Calls in threads, tasks and processes that an agent starts: recorded, or nothing is learnt."""

import asyncio
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest

from em import Engine
from em.traces.catalogue import find_traces

SPAWN: Any = multiprocessing.get_context("spawn")


def absolute(number: int) -> int:
    return abs(number)


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine(name="elsewhere") as engine:
        yield engine


@pytest.fixture(scope="module")
def processes() -> Iterator[Any]:
    """A pool whose processes are older than the runs."""
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        pool.submit(absolute, 1).result()
        yield pool


def test_a_pool_of_threads_that_is_older_serves_the_runs(engine: Engine) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(absolute, 1).result()
        size = engine.function(name="size")(absolute)
        engine.set_agent(lambda number: pool.submit(size, number).result())
        assert engine(-3).stored
        assert engine(-3).hit


def in_thread(work: Callable[[], Any]) -> Callable[[], None]:
    thread = threading.Thread(target=work)
    thread.start()
    return thread.join


def in_pool(work: Callable[[], Any]) -> Callable[[], None]:
    pool = ThreadPoolExecutor(1)
    pool.submit(work)
    return pool.shutdown


@pytest.mark.parametrize("start", [in_thread, in_pool])
def test_a_call_after_the_run_takes_its_behaviour_out_of_use(
    engine: Engine, start: Callable[..., Callable[[], None]]
) -> None:
    refunds: list[int] = []
    end, join = threading.Event(), list[Callable[[], None]]()
    mail = engine.function(name="mail")(lambda number: f"refunded {number}")
    refund = engine.function(name="refund")(refunds.append)

    def agent(number: int) -> str:
        join.append(start(lambda: (end.wait(10), refund(number))))
        return mail(number)

    engine.set_agent(agent)
    assert engine(7).stored
    end.set()
    join[0]()
    assert engine(7).how == "miss", "a hit would mail without a refund"
    join[1]()
    assert refunds == [7, 7]
    first = find_traces(engine.cache.store)[0]
    assert "refund" in first.trace.incomplete


def test_a_task_after_the_run_takes_its_behaviour_out_of_use(engine: Engine) -> None:
    refunds: list[int] = []
    tasks: list[Any] = []
    mail = engine.function(name="mail")(lambda number: f"refunded {number}")

    @engine.function()
    async def refund(number: int) -> None:
        refunds.append(number)

    async def later(number: int, end: asyncio.Event) -> None:
        await end.wait()
        await refund(number)

    async def main() -> None:
        end = asyncio.Event()

        async def agent(number: int) -> str:
            tasks.append(asyncio.create_task(later(number, end)))
            return mail(number)

        engine.set_agent(agent)
        assert (await engine(7)).stored
        end.set()
        await tasks[0]
        assert (await engine(7)).how == "miss"
        await tasks[1]

    asyncio.run(main())
    assert refunds == [7, 7]


def by_executor(pool: Any, number: int) -> Any:
    return pool.submit(absolute, number).result()


def by_loop(pool: Any, number: int) -> Any:
    async def main() -> int:
        return await asyncio.get_running_loop().run_in_executor(pool, absolute, number)

    return asyncio.run(main())


def by_process(_pool: Any, number: int) -> Any:
    process = SPAWN.Process(target=absolute, args=(number,))
    process.start()
    process.join()
    return abs(number)


@pytest.mark.parametrize("way", [by_executor, by_loop, by_process])
def test_a_run_that_works_in_other_processes_is_not_stored(
    engine: Engine, processes: Any, way: Callable[[Any, int], Any]
) -> None:
    mail = engine.function(name="mail")(lambda number: f"refunded {number}")

    def agent(number: int) -> str:
        way(processes, number)
        return mail(number)

    engine.set_agent(agent)
    result = engine(-7)
    assert (result.stored, result.value) == (False, "refunded -7")
    assert "another process" in str(result.problem)

    inside = engine.function(name="inside")(lambda number: way(processes, number))
    engine.set_agent(inside)
    assert engine(-8).stored, "a call is recorded as a whole"
    assert engine(-8).value == 8
