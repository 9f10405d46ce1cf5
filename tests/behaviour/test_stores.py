"""Promise 10: behaviours live in the store, shared by threads, tasks, programs and processes."""

import asyncio
import contextvars
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from em import AsyncMemory, Check, Engine, Memory
from em.errors import UsageError
from em.store import Store
from em.store.sqlite import SqliteStore

WORKER = Path(__file__).with_name("worker.py")


def counting(where: Any, done: list[Any], **options: Any) -> Engine:
    """A task of three calls, of which each needs the result of the one before."""
    engine = Engine(where, name="counting", **options)

    @engine.function()
    def begin(name: str) -> str:
        time.sleep(0.001)
        return f"{name}-{len(done):06}-{threading.get_ident()}"

    @engine.function()
    def end(token: str, name: str) -> str:
        time.sleep(0.001)
        done.append((name, token))
        return token

    def agent(name: str) -> str:
        token = begin(name)
        time.sleep(0.001)
        return end(token, name)

    return engine.set_agent(agent)


def test_10_behaviours_are_kept_in_the_store_and_shared(store: Store) -> None:
    first, second = counting(store, []), counting(store, [])
    assert not first("ana")
    result = second("ana")
    assert result.hit
    assert result.value.startswith("ana-")
    assert not second("bo")
    assert first("bo"), "what another engine recorded is seen at once"
    assert second.stats().hits == 2


def work_of_a_hit(store: SqliteStore, engine: Engine) -> tuple[list[str], int]:
    """Return the statements of a hit, and how many instructions SQLite needed for them."""
    statements: list[str] = []
    steps: list[None] = []
    engine("ana")  # loads the behaviour, and remembers the end of the log
    with store._pool.connection() as connection:  # the next use takes the same one
        connection.set_trace_callback(lambda text: statements.append(text.split("VALUES")[0]))
        connection.set_progress_handler(lambda: steps.append(None), 1)
    assert engine("ana").hit
    with store._pool.connection() as connection:
        connection.set_trace_callback(None)
        connection.set_progress_handler(None, 1)
    return [text.split("IN (")[0] for text in statements], len(steps)


def test_10_a_hit_asks_the_store_for_the_same_with_ten_times_as_many_stored(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "em.db") as store:
        engine = counting(store, [])
        engine("ana")
        for number in range(20):
            engine(f"one of few {number}")
        statements, instructions = work_of_a_hit(store, engine)
        assert statements, "a hit is logged"
        for number in range(200):
            engine(f"one of many {number}")
        more_statements, more_instructions = work_of_a_hit(store, engine)
        assert more_statements == statements
        assert more_instructions == instructions


def work_between(store: SqliteStore, steps: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the statements from the end of an agent's run to the first call of the next task."""
    engine, statements = Engine(store, name=f"of {steps}"), list[str]()

    def look(text: str) -> None:
        statements.append(text.partition("VALUES")[0])

    def watch(callback: Any) -> None:
        with store._pool.connection() as connection:
            connection.set_trace_callback(callback)

    check = Check(lambda number: number, lambda now, then: now == then)

    @engine.function(pre_check=check)
    def work(number: int) -> None:
        if number == 0:
            watch(None)

    def agent(name: str) -> None:
        for number in range(steps):
            work(number)
        watch(look)

    engine.set_agent(agent).finalize()
    for kind in ("em.behaviour.way.teach", "em.behaviour.cache.teach", "em.behaviour.way.Course"):
        monkeypatch.setattr(kind, None)  # nothing is compiled, and nothing interpreted
    engine("warm")
    assert engine("warm").hit
    assert engine("ana").stored
    assert engine("ana").hit
    return statements


def test_10_between_two_runs_a_run_is_stored_in_one_commit_and_nothing_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqliteStore(tmp_path / "em.db") as store:
        few, many = (work_between(store, steps, monkeypatch) for steps in (3, 30))
    assert sum(text.startswith("COMMIT") for text in few) == 2, "one for each run"
    asked = [sum("INSERT" not in text for text in texts) for texts in (few, many)]
    assert asked[1] <= 2 * asked[0], "ten times as many calls are not asked about one by one"


def test_10_memory_gives_engines_that_live_in_it(tmp_path: Path) -> None:
    with Memory(tmp_path / "em.db") as memory:
        for name, hit in (("a", False), ("a", True), ("b", False)):
            engine = memory.engine(name)
            tool = engine.function()(lambda: 1)
            assert engine.set_agent(lambda tool=tool: tool() and None)().hit is hit
        assert memory.log.verify().ok
        assert [event.kind for event in memory.log.read(stream="behaviours/a")] == [
            "behaviour_recorded"
        ]


def test_10_an_engine_alone_is_private_and_in_memory(tmp_path: Path) -> None:
    done: list[Any] = []
    assert not counting(None, done)("ana")
    assert not counting(None, done)("ana")
    assert list(tmp_path.iterdir()) == []


def test_10_threads_do_not_mix(store: Store) -> None:
    done: list[Any] = []
    engine = counting(store, done)
    names = [f"name{n % 6}" for n in range(48)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        results = list(pool.map(engine, names))
    for name, result in zip(names, results, strict=True):
        assert result.problem is None
        assert result.value.startswith(f"{name}-")
        assert [step.tool for step in result.steps] == ["begin", "end"]
        assert result.steps[1].args == {"token": result.value, "name": name}
    assert sorted(token for _, token in done) == sorted(result.value for result in results)
    assert all(engine(name) for name in set(names))


def test_10_tasks_of_one_loop_do_not_mix(store: Store) -> None:
    engine = Engine(store, name="loop")

    @engine.function()
    async def fetch(name: str) -> str:
        await asyncio.sleep(0.001)
        return f"page of {name}"

    async def agent(name: str) -> list[str]:
        return [await fetch(name), *await asyncio.gather(fetch(name + "1"), fetch(name + "2"))]

    engine.set_agent(agent)

    async def scenario() -> None:
        names = [f"name{n % 5}" for n in range(20)]
        results = await asyncio.gather(*(engine(name) for name in names))
        for name, result in zip(names, results, strict=True):
            assert result.value == [f"page of {name}{n}" for n in ("", 1, 2)]
            assert [step.args["name"] for step in result.steps] == [name, name + "1", name + "2"]
        again = await asyncio.gather(*(engine(name) for name in set(names)))
        assert all(again)

    asyncio.run(scenario())


def test_10_async_memory_has_engines_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with AsyncMemory(tmp_path / "em.db") as memory:
            engine = memory.engine("e")

            @engine.function()
            async def work() -> int:
                return 1

            async def agent() -> int:
                return await work()

            engine.set_agent(agent)
            assert not await engine()
            assert await engine()

    asyncio.run(scenario())


def test_10_two_processes_share_one_file(tmp_path: Path) -> None:
    db = tmp_path / "em.db"
    running = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(db), str(n)], stdout=subprocess.PIPE, text=True
        )
        for n in range(2)
    ]
    outs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], outs
    with Memory(db) as memory:
        assert memory.log.verify().ok
        engine = counting(memory.store, [])
        # Each worker did each task 5 times; whoever came later found what the other had recorded.
        for name in ("t0", "t1", "t2", "t3"):
            assert engine(name).hit
        stats = engine.stats()
        assert stats.hits + stats.misses == 2 * 4 * 5 + 4
        assert stats.misses <= 2 * 4


def test_10_a_private_engine_starts_anew_in_a_child_process(tmp_path: Path) -> None:
    done: list[Any] = []
    engine = counting(None, done)
    engine("ana")
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def child() -> None:
        queue.put([engine("ana").hit, engine("ana").hit])

    process = context.Process(target=child)
    process.start()
    process.join(30)
    assert queue.get() == [False, True]
    assert engine("ana").hit


def test_10_the_agent_alone_records_nothing(tmp_path: Path) -> None:
    done: list[Any] = []
    engine = counting(tmp_path / "em.db", done)
    assert engine.agent("ana").startswith("ana-")
    assert engine.stats().recorded == 0
    assert not engine("ana")


def test_10_calls_that_a_thread_hides_are_noticed_and_not_half_recorded(tmp_path: Path) -> None:
    def make(start: Callable[..., Any]) -> Engine:
        engine = Engine()

        @engine.function()
        def work(n: int) -> int:
            return n

        def agent() -> None:
            work(1)
            thread = threading.Thread(target=start, args=(work, 2))
            thread.start()
            thread.join()

        return engine.set_agent(agent)

    hidden = make(lambda work, n: work(n))()
    assert not hidden.stored
    assert "contextvars.copy_context" in str(hidden.problem)

    engine = Engine()

    @engine.function()
    def work(n: int) -> int:
        return n

    def agent() -> None:
        work(1)
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(work, 2))
        thread.start()
        thread.join()

    seen = engine.set_agent(agent)()
    assert seen.stored, seen.problem
    assert len(engine().steps) == 2


def test_10_an_engine_inside_of_another_is_a_tool_or_is_not_recorded() -> None:
    inner, outer = Engine(name="inner"), Engine(name="outer")
    step = inner.function()(lambda: "step")
    inner.set_agent(step)
    note = outer.function()(lambda text: None)

    def agent() -> None:
        note("begin")
        inner()

    bare = outer.set_agent(agent)()
    assert "engine inner" in str(bare.problem)
    wrapped = outer.function(name="sub")(lambda: inner().value)

    def better() -> None:
        note("begin")
        wrapped()

    assert outer.set_agent(better)().stored
    assert outer().hit


def test_10_nothing_is_pickled_and_what_is_foreign_is_passed_over(tmp_path: Path) -> None:
    from em.store import Commit
    from em.store.protocol import ArtefactDraft

    with SqliteStore(tmp_path / "em.db") as store:
        engine = counting(store, [])
        engine("ana")
        (artefact,) = store.artefacts("behaviour")
        store.commit(
            Commit(artefacts=[ArtefactDraft(kind="behaviour", name=artefact.name, body={"v": 9})])
        )
        other = counting(store, [])
        assert other("ana").hit
    sources = [path.read_text() for path in Path(_behaviour_folder()).glob("*.py")]
    assert not any("import pickle" in text for text in sources)


def _behaviour_folder() -> str:
    import em.behaviour

    return os.path.dirname(em.behaviour.__file__)


def test_10_a_store_that_fails_does_not_take_the_answer_away(tmp_path: Path) -> None:
    done: list[Any] = []
    store = SqliteStore(tmp_path / "em.db")
    engine = counting(store, done)
    engine("ana")
    store.close()
    result = engine("ana")
    assert result.value.startswith("ana-")
    assert "the store could not be read" in result.reason
    assert result.problem is not None


def test_10_a_store_that_cant_be_reached_does_not_keep_the_agent_from_working() -> None:
    done: list[Any] = []
    with counting("postgresql://nobody@127.0.0.1:1/nothing", done) as engine:
        result = engine("ana")
        assert result.value.startswith("ana-")
        assert "the store could not be read" in result.reason
        assert not result.stored
    with pytest.raises(UsageError, match="is not supported"):
        counting("mysql://x", done)("ana")
