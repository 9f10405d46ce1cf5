"""The behaviour cache beside the plain calls, and a full one beside a nearly empty one."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from bench.figure import Figure, in_turns, seconds

STEPS = 10
FEW = 10
MANY = 100_000
OF_ONE_TASK = 100
HITS = 50


def hits() -> Iterator[Figure]:
    from em import Engine

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        few, many = folder / "few.db", folder / "many.db"
        state = State()
        with engine_on(few, state) as small:
            fill(small, state, of_task=1, others=FEW - 1)
        with engine_on(many, state) as large:
            fill(large, state, of_task=OF_ONE_TASK, others=MANY - OF_ONE_TASK)
        state.number = 0
        with engine_on(few, state) as small, engine_on(many, state) as large:
            yield _hit_beside_plain(small, state)
            yield _many_beside_few(small, large)
        yield _recording()
        yield _between_runs()
        yield _first_hit(folder, many, Engine)


class State:
    """The environment that checks look at, and the tool that is trivial."""

    def __init__(self) -> None:
        self.number = 0

    def look(self) -> int:
        return self.number

    def work(self, n: int, label: str) -> int:
        return n + 1


def engine_on(path: Path | None, state: State) -> Any:
    """An engine whose task is ten calls; the check of the first sees the environment."""
    from em import Check, Engine

    engine = Engine(path, name="bench")
    check = Check(state.look, lambda now, then: now == then)
    first = engine.function(pre_check=check, name="first")(state.work)
    work = engine.function(name="work")(state.work)

    def agent(task: str) -> int:
        first(0, task)
        for n in range(1, STEPS):
            work(n, task)
        return STEPS

    return engine.set_agent(agent)


def fill(engine: Any, state: State, of_task: int, others: int) -> None:
    """Behaviours as an engine records them; other tasks' are copies of one under their own keys."""
    from em.behaviour.cache import KIND
    from em.behaviour.task import make_task
    from em.log.event import Draft
    from em.store import Commit
    from em.store.protocol import ArtefactDraft
    from em.values.times import new_id

    for number in range(of_task):
        state.number = number
        assert engine("the task").stored
    known = engine.cache.find(make_task({"task": "the task"}, [], {}).key)
    assert len(known.stored) == of_task

    def commits() -> Iterator[Commit]:
        import msgspec

        body = msgspec.to_builtins(known.stored[0].behaviour)
        for number in range(others):
            key = make_task({"task": f"task {number}"}, [], {}).key
            event_id = new_id()
            told = {"engine": "bench", "key": key, "steps": STEPS, "seconds": 0.001}
            yield Commit(
                events=[
                    Draft(
                        stream=engine.cache.stream,
                        kind="behaviour_recorded",
                        id=event_id,
                        body=told,
                    )
                ],
                artefacts=[
                    ArtefactDraft(kind=KIND, name=f"bench/{key}", body=body, from_events=[event_id])
                ],
            )

    engine.cache.store.commit_all(commits())


def _timed(work: Callable[[], object]) -> float:
    """Median seconds of one call: a checkpoint of the log may fall into any."""
    times = []
    for _ in range(HITS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def _hit(engine: Any) -> Callable[[], object]:
    def hit() -> None:
        assert engine("the task").hit

    return hit


def _hit_beside_plain(engine: Any, state: State) -> Figure:
    def plain() -> None:
        for n in range(STEPS):
            state.work(n, "the task")

    ours, theirs, _ = in_turns(lambda: _timed(_hit(engine)), lambda: _timed(plain), rounds=15)
    more = (ours - theirs) * 1e6
    return Figure(
        f"a hit with {STEPS} trivial steps, {FEW} behaviours stored: microseconds more",
        ours * 1e6,
        f"the {STEPS} plain calls",
        theirs * 1e6,
        "µs",
        more,
        400,
        False,
    )


def _many_beside_few(small: Any, large: Any) -> Figure:
    ours, theirs, ratio = in_turns(
        lambda: _timed(_hit(large)), lambda: _timed(_hit(small)), rounds=15
    )
    return Figure(
        f"the same with {MANY:,} stored, {OF_ONE_TASK} of them for this task",
        ours * 1e6,
        f"with {FEW} stored",
        theirs * 1e6,
        "µs",
        ratio,
        1.5,
        False,
    )


def _recording() -> Figure:
    """Inside of the agent's run: what a recorded call takes beyond the plain one."""
    from em import Engine

    engine = Engine()
    calls = 1_000
    state = State()
    tool = engine.function()(state.work)
    spent: list[float] = []

    def agent(number: int) -> None:
        def work() -> None:
            for n in range(calls):
                tool(n, "label")

        spent.append(seconds(work) / calls)
        raise StopRun

    engine.set_agent(agent)
    numbers = count()

    def ours() -> float:
        with suppress(StopRun):
            engine(next(numbers))
        return spent[-1]

    def plain() -> float:
        def work() -> None:
            for n in range(calls):
                state.work(n, "label")

        return seconds(work) / calls

    mine, other, _ = in_turns(ours, plain, rounds=15)
    return Figure(
        "recording a trivial tool: microseconds more",
        mine * 1e6,
        "the plain call",
        other * 1e6,
        "µs",
        (mine - other) * 1e6,
        20,
        False,
    )


def _between_runs() -> Figure:
    """From the last call of a run that is recorded to the first one of its replay."""
    from em import Check, Engine

    engine, numbers = Engine(), count()
    looks: list[float] = []

    def look(number: int, label: int) -> None:
        looks.append(time.perf_counter())

    @engine.function(pre_check=Check(look, lambda now, then: True))
    def work(number: int, label: int) -> None:
        pass

    def agent(label: int) -> None:
        for number in range(STEPS):
            work(number, label)

    engine.set_agent(agent).finalize()

    def between(task: Callable[[], object]) -> float:
        looks.clear()
        task()
        task()
        return looks[STEPS] - looks[STEPS - 1]

    def ours() -> float:
        number = next(numbers)
        return between(lambda: engine(number))

    def plain() -> float:
        return between(lambda: [look(number, 0) for number in range(STEPS)])

    mine, other, _ = in_turns(ours, plain, rounds=15)
    return Figure(
        f"from the end of a recorded run of {STEPS} steps to the first step of its replay:"
        " milliseconds more",
        mine * 1e3,
        "between two plain calls",
        other * 1e3,
        "ms",
        (mine - other) * 1e3,
        10,
        False,
    )


class StopRun(Exception):
    """Ends a run before it is stored: only the calls are measured."""


def _first_hit(folder: Path, many: Path, engine_class: Any) -> Figure:
    """Opening a full cache and the first hit, beside opening an empty one."""
    numbers = count()

    def ours() -> float:
        state = State()

        def work() -> None:
            with engine_on(many, state) as engine:
                assert engine("the task").hit

        return seconds(work)

    def empty() -> float:
        path = folder / f"empty{next(numbers)}.db"

        def work() -> None:
            with engine_class(path, name="bench") as engine:
                engine.cache.find("0")

        return seconds(work)

    mine, other, _ = in_turns(ours, empty, rounds=9)
    return Figure(
        f"opening a cache of {MANY:,} behaviours and the first hit: milliseconds more",
        mine * 1e3,
        "opening an empty one",
        other * 1e3,
        "ms",
        (mine - other) * 1e3,
        50,
        False,
    )
