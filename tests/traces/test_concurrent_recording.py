"""Recorded tools in threads and tasks: each call is in its trace, or the trace says otherwise."""

import asyncio
import contextvars
import multiprocessing
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import msgspec
import pytest

from em import Memory
from em.compiler.compile_trace import compile_trace
from em.errors import RoutineError
from em.traces.catalogue import list_traces
from em.traces.recorder import Recorder, recorded_tool
from em.traces.trace import Trace, read_trace


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


@recorded_tool(effect="read")
def look(n: int) -> int:
    return n * 10


@recorded_tool(effect="read")
async def look_later(n: int) -> int:
    await asyncio.sleep(0)
    return n * 10


def only(memory: Memory) -> Trace:
    (kept,) = memory.traces()
    return kept.trace


def seen(trace: Trace) -> list[int]:
    return [call.args["n"] for call in trace.calls]


def test_calls_in_a_thread_pool_are_recorded(memory: Memory) -> None:
    with memory.record("look at three"), ThreadPoolExecutor(3) as pool:
        assert look(0) == 0
        assert list(pool.map(look, (1, 2))) == [10, 20]
    trace = only(memory)
    assert sorted(seen(trace)) == [0, 1, 2]
    assert trace.incomplete == ""


def test_a_pool_that_is_older_than_the_recordings_serves_each_of_them(memory: Memory) -> None:
    with ThreadPoolExecutor(2) as pool:
        pool.submit(look, 99).result()  # nobody records

        @memory.record("look")
        def agent(n: int) -> int:
            return sum(pool.map(look, (n, n + 1)))

        with ThreadPoolExecutor(4) as others:
            list(others.map(agent, range(0, 40, 10)))
        pool.submit(look, 99).result()  # nobody records any more
    traces = [kept.trace for kept in memory.traces()]
    assert sorted(sorted(seen(trace)) for trace in traces) == [[n, n + 1] for n in (0, 10, 20, 30)]
    assert not any(trace.incomplete for trace in traces)


async def _gather() -> None:
    await asyncio.gather(look_later(1), look_later(2))


async def _tasks() -> None:
    tasks = [asyncio.create_task(look_later(n)) for n in (1, 2)]
    for task in tasks:
        await task


async def _to_thread() -> None:
    await asyncio.gather(asyncio.to_thread(look, 1), asyncio.to_thread(look, 2))


async def _in_executor() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(loop.run_in_executor(None, look, n) for n in (1, 2)))


@pytest.mark.parametrize("way", [_gather, _tasks, _to_thread, _in_executor])
def test_calls_in_asyncio_are_recorded(memory: Memory, way: Callable[[], Awaitable[None]]) -> None:
    @memory.record("look at two")
    async def agent() -> None:
        await way()

    asyncio.run(agent())
    trace = only(memory)
    assert sorted(seen(trace)) == [1, 2]
    assert trace.incomplete == ""


def test_concurrent_calls_are_in_the_order_of_their_start(memory: Memory) -> None:
    begun, end = threading.Event(), threading.Event()

    @recorded_tool
    def slow(n: int) -> int:
        begun.set()
        end.wait(10)
        return n

    with memory.record("two at once"), ThreadPoolExecutor(2) as pool:
        first = pool.submit(slow, 1)
        begun.wait(10)
        pool.submit(look, 2).result()
        end.set()
        first.result()
    assert seen(only(memory)) == [1, 2]


def test_a_tool_that_calls_another_is_one_call(memory: Memory) -> None:
    @recorded_tool
    def look_at_all(n: int) -> int:
        with ThreadPoolExecutor(2) as pool:
            return look(n) + sum(pool.map(look, range(n)))

    with memory.record("look at all"):
        look_at_all(3)
        look(7)
    assert [call.tool for call in only(memory).calls] == ["look_at_all", "look"]  # type: ignore[union-attr]


class Worker:
    """A thread with a queue that is older than the recordings: it can't know their context."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]
        self._jobs = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def do(self, job: Callable[[], Any]) -> Any:
        done: Future[Any] = Future()
        self._jobs.put((job, done))
        return done.result(10)

    def _work(self) -> None:
        while (found := self._jobs.get()) is not None:
            job, done = found
            done.set_result(job())

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


def test_a_call_of_an_unknown_thread_makes_every_open_trace_incomplete(
    memory: Memory, worker: Worker
) -> None:
    with memory.record("first"):
        look(1)
        context = contextvars.Context()  # not inside of the first
        with ThreadPoolExecutor(1):
            context.run(_record_second, memory, worker)
    with memory.record("third"):
        look(3)
    first, second, third = sorted(memory.traces(), key=lambda kept: kept.trace.mission.goal)
    for kept in (first, second):
        assert "`look`" in kept.trace.incomplete
        assert "thread" in kept.trace.incomplete
    assert third.trace.incomplete == ""
    assert [seen(kept.trace) for kept in (first, second, third)] == [[1], [2], [3]]
    assert look(4) == 40  # and the calls of nobody are nobody's


def _record_second(memory: Memory, worker: Worker) -> None:
    with memory.record("second"):
        look(2)
        worker.do(lambda: look(9))


def test_a_lone_recording_does_not_take_the_calls_of_others(memory: Memory, worker: Worker) -> None:
    with memory.record("mine"):
        look(1)
        worker.do(lambda: look(9))  # perhaps an agent that is not recorded
    trace = only(memory)
    assert seen(trace) == [1]
    assert "look" in trace.incomplete


def test_a_thread_that_is_given_the_context_is_attributed(memory: Memory) -> None:
    with memory.record("mine"):
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(look, 1))
        thread.start()
        thread.join()
    assert (seen(only(memory)), only(memory).incomplete) == ([1], "")


def test_a_call_that_still_runs_at_the_end_makes_the_trace_incomplete(memory: Memory) -> None:
    begun, end = threading.Event(), threading.Event()

    @recorded_tool
    def slow(n: int) -> int:
        begun.set()
        end.wait(10)
        return n

    with ThreadPoolExecutor(1) as pool:
        with memory.record("leave early"):
            pool.submit(slow, 1)
            begun.wait(10)
        end.set()
    trace = only(memory)
    assert trace.incomplete == "a call of `slow` was still running when the recording ended"
    assert trace.calls[0].error is not None


def test_a_call_after_the_end_makes_the_stored_trace_incomplete(memory: Memory) -> None:
    end = threading.Event()

    def late() -> None:
        end.wait(10)
        look(2)

    with ThreadPoolExecutor(1) as pool:
        with memory.record("leave early") as recorder:
            recorder.output = look(1)
            pool.submit(late)
        assert only(memory).incomplete == ""
        end.set()
    trace = only(memory)
    assert trace.incomplete == "`look` was called after the recording had ended"
    assert (trace.final_output, seen(trace)) == (10, [1])


def test_work_that_a_tool_leaves_behind_makes_only_its_own_trace_incomplete(
    memory: Memory,
) -> None:
    end = threading.Event()

    def later() -> None:
        end.wait(10)
        look(2)

    with ThreadPoolExecutor(1) as pool:

        @recorded_tool
        def begin(n: int) -> int:
            pool.submit(later)
            return n

        with memory.record("begin"):
            begin(1)
        with memory.record("another"):
            look(3)
            end.set()
            pool.submit(look, 4).result()
    first, second = (kept.trace for kept in memory.traces())
    assert first.incomplete == "`look` was called by `begin` after that had returned"
    assert (second.incomplete, seen(second)) == ("", [3, 4])


def test_what_is_not_finished_when_a_tool_returns_makes_the_trace_incomplete(
    memory: Memory,
) -> None:
    @recorded_tool
    def pages(n: int) -> Iterator[int]:
        yield from range(n)

    with memory.record("read pages"):
        assert list(pages(2)) == [0, 1]
    assert "`pages` returned a generator" in only(memory).incomplete


def test_an_incomplete_trace_is_listed_exported_and_not_compiled(memory: Memory) -> None:
    recorder = Recorder("look", {"n": 1})
    recorder.tool(look)(1)
    recorder.mark_incomplete("a call of `x` was lost")
    trace = recorder.trace(final_output=10)
    trace_id = memory.add_trace(trace)
    (one,) = list_traces(memory.store).traces
    assert one.incomplete == only(memory).incomplete == "a call of `x` was lost"
    assert read_trace(msgspec.json.encode(trace), "file").incomplete == "a call of `x` was lost"
    for compile_it in (lambda: compile_trace(trace), lambda: memory.compile(trace_id)):
        with pytest.raises(RoutineError, match="incomplete: a call of `x` was lost") as raised:
            compile_it()
        assert "record the agent again" in str(raised.value)


def test_an_agent_inside_of_another_is_a_call_of_it_or_makes_its_trace_incomplete(
    memory: Memory,
) -> None:
    @memory.record("help")
    def helper(n: int) -> int:
        return look(n)  # type: ignore[no-any-return]

    with memory.record("alone"):
        helper(1)
    with memory.record("as a tool"):
        recorded_tool(helper)(2)
    with memory.record("without calls"), memory.record("idle"):
        pass
    traces = {kept.trace.mission.goal: kept.trace for kept in memory.traces()}
    assert "em.tool" in traces["alone"].incomplete
    assert '"help"' in traces["alone"].incomplete
    assert [call.result for call in traces["as a tool"].calls] == [20]
    assert [goal for goal, trace in traces.items() if trace.incomplete] == ["alone"]


# What the agent was asked, and what it gave


@dataclass
class Wish:
    item: str
    count: int = 1


def test_every_argument_of_an_agent_is_in_its_trace(memory: Memory) -> None:
    class Shop:
        @memory.record(app="shop")
        def agent(
            self,
            request: str,
            wish: Wish,
            *more: int,
            limit: int = 5,
            client: Any = None,
            **extra: str,
        ) -> str:
            return f"{request}: {look(limit)}"

        @classmethod
        @memory.record(app="shop")
        def of_class(cls, request: str = "hello") -> str:
            return request

    assert Shop().agent("refund #W1", Wish("hat"), 7, client=object(), colour="red")
    Shop.of_class()
    first, second = memory.traces()
    assert first.trace.mission.input_summary == {
        "request": "refund #W1",
        "wish": {"item": "hat", "count": 1},
        "more": [7],
        "limit": 5,
        "colour": "red",
    }
    assert first.trace.final_output == "refund #W1: 50"
    assert second.trace.mission.input_summary == {"request": "hello"}


def test_an_async_agents_arguments_and_output_are_in_its_trace(memory: Memory) -> None:
    @memory.record(app="shop")
    async def agent(request: str, limit: int = 5) -> list[int]:
        return [await look_later(limit)]

    asyncio.run(agent("go"))
    trace = only(memory)
    assert trace.mission.input_summary == {"request": "go", "limit": 5}
    assert trace.final_output == [50]


def test_an_agent_that_streams_is_recorded_while_it_runs_only(memory: Memory) -> None:
    @memory.record()
    def agent(request: str) -> Iterator[int]:
        """Stream."""
        yield look(1)
        yield look(2)

    def with_result() -> Any:
        yield look(1)
        return "done"

    for n in agent("go"):
        look(n)  # the consumer's own call
    assert list(memory.record()(with_result)()) == [10]
    first, second = (kept.trace for kept in memory.traces())
    assert (seen(first), first.final_output, first.incomplete) == ([1, 2], [10, 20], "")
    assert (first.mission.goal, first.mission.input_summary) == ("Stream.", {"request": "go"})
    assert (seen(second), second.final_output) == ([1], "done")


def test_a_stream_that_the_consumer_leaves_has_no_known_outcome(memory: Memory) -> None:
    @memory.record()
    def agent() -> Iterator[int]:
        yield look(1)
        yield look(2)

    stream = agent()
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert (seen(only(memory)), only(memory).outcome) == ([1], "unknown")


def test_an_async_agent_that_streams_is_recorded(memory: Memory) -> None:
    @memory.record()
    async def agent(n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield await look_later(number)

    async def consume() -> None:
        async for number in agent(2):
            await look_later(number + 100)

    asyncio.run(consume())
    trace = only(memory)
    assert (seen(trace), trace.final_output, trace.outcome) == ([0, 1], [0, 10], "success")


def test_an_agent_that_fails_while_it_streams_has_failed(memory: Memory) -> None:
    @memory.record()
    def agent() -> Iterator[int]:
        yield look(1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        list(agent())
    assert (seen(only(memory)), only(memory).outcome) == ([1], "failure")


# What runs in other threads and processes


def test_a_thread_that_outlives_the_recording_makes_the_stored_trace_incomplete(
    memory: Memory,
) -> None:
    end = threading.Event()
    with memory.record("leave early"):
        look(1)
        thread = threading.Thread(target=lambda: (end.wait(10), look(2)))
        thread.start()
    with memory.record("another"):
        look(3)
    assert [kept.trace.incomplete for kept in memory.traces()] == ["", ""]
    end.set()
    thread.join()
    first, second = (kept.trace for kept in memory.traces())
    assert first.incomplete == "`look` was called after the recording had ended"
    assert (second.incomplete, seen(second)) == ("", [3])


def test_the_threads_of_a_pool_belong_to_nobody(memory: Memory) -> None:
    with ThreadPoolExecutor(1) as pool:
        with memory.record("starts the thread of the pool"):
            pool.submit(look, 1).result()
        pool.submit(look, 2).result()  # nobody records
    assert (seen(only(memory)), only(memory).incomplete) == ([1], "")


def test_a_task_that_outlives_the_recording_makes_the_stored_trace_incomplete(
    memory: Memory,
) -> None:
    async def main() -> None:
        with memory.record("leave early"):
            await look_later(1)
            task = asyncio.create_task(look_later(2))
        await task

    asyncio.run(main())
    assert only(memory).incomplete == "`look_later` was called after the recording had ended"


def test_work_in_a_pool_of_threads_of_multiprocessing_is_recorded(memory: Memory) -> None:
    with ThreadPool(2) as older, memory.record("look"), ThreadPool(2) as younger:
        for pool in (older, younger):
            assert pool.map(look, (1, 2)) == [10, 20]
            assert pool.apply_async(look, (3,)).get() == 30
    assert sorted(seen(only(memory))) == [1, 1, 2, 2, 3, 3]
    assert only(memory).incomplete == ""


def _by_executor(pool: Any) -> None:
    assert pool.submit(look, 2).result() == 20


def _by_loop(pool: Any) -> None:
    async def main() -> int:
        return await asyncio.get_running_loop().run_in_executor(pool, look, 2)

    assert asyncio.run(main()) == 20


def _by_process(_pool: Any) -> None:
    process = SPAWN.Process(target=look, args=(2,))
    process.start()
    process.join()
    assert process.exitcode == 0


def _by_pool(_pool: Any) -> None:
    with SPAWN.Pool(1) as pool:
        assert pool.map(look, [2]) == [20]


SPAWN: Any = multiprocessing.get_context("spawn")


@pytest.fixture(scope="module")
def processes() -> Iterator[Any]:
    """A pool whose processes are older than the recordings."""
    with ProcessPoolExecutor(1, mp_context=SPAWN) as pool:
        pool.submit(look, 1).result()
        yield pool


@pytest.mark.parametrize("way", [_by_executor, _by_loop, _by_process, _by_pool])
def test_work_in_another_process_makes_the_trace_incomplete(
    memory: Memory, processes: Any, way: Callable[[Any], None]
) -> None:
    with memory.record("look at two"):
        look(1)
        way(processes)
    assert "another process" in only(memory).incomplete
    inside = recorded_tool(lambda: way(processes), name="inside")
    with memory.record("look in a tool"):
        inside()
    assert memory.traces()[-1].trace.incomplete == "", "a call is recorded as a whole"
