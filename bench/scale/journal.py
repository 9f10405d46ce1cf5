"""What a step costs with its journal, beside one committed insert; and what loads or checks once.

Both sides have the same durability: `normal` survives a killed process, `full` a power cut. The
plain table has the same indexes and pragmas.
"""

import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, Literal

from bench.figure import Figure, in_turns, seconds
from bench.server import postgres_address

STEPS = 100
FLOW_STEPS = 50
ROUNDS = {"quick": 5, "whole": 15}
RUNS = {"quick": 4, "whole": 10}
SYNCHRONOUS: tuple[Literal["normal", "full"], ...] = ("normal", "full")
_numbers = count()


def add(x: int, y: int) -> int:
    """The least that a tool can do."""
    return x + y


def figures(size: str) -> Iterator[Figure]:
    """Yield the figures of steps on both stores, of workflows, of batches and of questions."""
    for synchronous in SYNCHRONOUS:
        yield routine_step(synchronous, size)
        yield workflow_step(synchronous, size)
    yield routine_step("normal", size, clock=time.process_time)
    yield workflow_step("normal", size, clock=time.process_time)
    yield from _on_postgres(size)
    yield _called_workflow(size)
    yield _held_by_a_batch(size)


def write_routine(folder: Path) -> None:
    """Write a routine of trivial steps, each with an effect for all that em knows."""
    (folder / "routine.yaml").write_text(
        "name: bench\nsteps:\n"
        + "".join(
            f'  - {{id: s{n}, type: tool.call, tool: add, args: {{x: "{{{{ x{n} }}}}", y: 1}},'
            f" save_as: x{n + 1}}}\n"
            for n in range(STEPS)
        )
    )


def write_workflow(file: Path) -> None:
    """Write a workflow whose steps each need the one before."""
    steps = []
    for n in range(FLOW_STEPS):
        before = f"memory.s{n - 1}_output" if n else "params.x"
        needs = f"[tool_output(s{n - 1})]" if n else "[]"
        steps.append(
            f"      - {{name: s{n}, tool: add, effect: read, memory: {{needs: {needs}}},"
            f" inputs: {{x: '{{{{{before}}}}}', y: 1}}}}\n"
        )
    file.write_text(f"workflows:\n  sums:\n    params: [{{x: 0}}]\n    steps:\n{''.join(steps)}")


Clock = Callable[[], float]


def routine_step(
    synchronous: Literal["normal", "full"], size: str = "whole", clock: Clock = time.perf_counter
) -> Figure:
    """One step of a routine, its intent and result in the journal."""
    from em.runner.engine import run_routine
    from em.runner.package import Package
    from em.store.sqlite import SqliteStore

    with tempfile.TemporaryDirectory() as name:
        folder, runs = Path(name), RUNS[size]
        write_routine(folder)
        package = Package(folder)

        def ours() -> float:
            with SqliteStore(folder / f"{next(_numbers)}.db", synchronous=synchronous) as store:
                return _spent(
                    lambda: [run_routine(package, {"x0": 0}, [add], store=store)], runs, clock
                ) / (runs * STEPS)

        return _beside_an_insert(
            "one step of a routine", ours, folder, synchronous, runs * STEPS, size, 1.5, clock
        )


def workflow_step(
    synchronous: Literal["normal", "full"], size: str = "whole", clock: Clock = time.perf_counter
) -> Figure:
    """One step of a workflow, its needs resolved and its result in the journal."""
    from em.store.sqlite import SqliteStore
    from em.workflows import Workflows

    with tempfile.TemporaryDirectory() as name:
        folder, runs = Path(name), RUNS[size]
        file = folder / "flow.yaml"
        write_workflow(file)

        def ours() -> float:
            with SqliteStore(folder / f"{next(_numbers)}.db", synchronous=synchronous) as store:
                flow = Workflows(store, file=file, tools=[add])
                workflow = flow.file.workflow("sums")
                flow.start_this(workflow)  # planned once, as by a worker that runs many
                return _spent(lambda: [flow.start_this(workflow)], runs, clock) / (
                    runs * FLOW_STEPS
                )

        return _beside_an_insert(
            "one step of a workflow", ours, folder, synchronous, runs * FLOW_STEPS, size, 2, clock
        )


def _spent(work: Callable[[], object], times: int, clock: Clock) -> float:
    start = clock()
    for _ in range(times):
        work()
    return clock() - start


def _beside_an_insert(
    what: str,
    ours: Callable[[], float],
    folder: Path,
    synchronous: str,
    rows: int,
    size: str,
    bar: float,
    clock: Clock,
) -> Figure:
    from bench.store import EVENTS_TABLE, INSERT, plain_connection, plain_rows
    from em.store.sqlite import WAL_PAGES

    def plain() -> float:
        path = folder / f"{next(_numbers)}.plain"
        with closing(plain_connection(path)) as connection:
            connection.execute(f"PRAGMA synchronous={synchronous}")
            connection.execute(f"PRAGMA wal_autocheckpoint={WAL_PAGES}")
            connection.executescript(EVENTS_TABLE)
            made = iter(plain_rows(0, rows))

            def insert() -> None:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute(INSERT, next(made))
                connection.execute("COMMIT")

            return _spent(insert, rows, clock) / rows

    mine, other, ratio = in_turns(ours, plain, rounds=ROUNDS[size])
    is_cpu = clock is time.process_time
    how = "in CPU time" if is_cpu else "journal on"
    return Figure(
        f"{what}, {how}, synchronous={synchronous}",
        mine * 1e6,
        "one insert of such a row, committed",
        other * 1e6,
        "µs",
        ratio,
        None if is_cpu else bar,
        False,
    )


def _on_postgres(size: str) -> Iterator[Figure]:
    """A step of a routine on PostgreSQL, beside one insert that is committed there."""
    import psycopg

    from em.runner.engine import run_routine
    from em.runner.package import Package
    from em.store.postgres import PostgresStore

    with tempfile.TemporaryDirectory() as name, postgres_address() as address:
        folder = Path(name)
        write_routine(folder)
        package = Package(folder)
        with (
            PostgresStore(address) as store,
            psycopg.connect(address, autocommit=True) as connection,
        ):
            connection.execute("CREATE TABLE plain(n BIGINT PRIMARY KEY, body TEXT)")
            insert = "INSERT INTO plain VALUES (%s, %s)"

            def ours() -> float:
                return seconds(lambda: run_routine(package, {"x0": 0}, [add], store=store)) / STEPS

            def plain() -> float:
                return (
                    _spent(
                        lambda: connection.execute(insert, (next(_numbers), "x" * 150)),
                        STEPS,
                        time.perf_counter,
                    )
                    / STEPS
                )

            mine, other, ratio = in_turns(ours, plain, rounds=ROUNDS[size])
    yield Figure(
        "one step of a routine, journal on, PostgreSQL", mine * 1e6,
        "one insert into a plain table there, committed", other * 1e6, "µs", ratio, None, False,
    )  # fmt: skip


def _called_workflow(size: str) -> Figure:
    """`memory.workflow()`, which is given its file and tools each time, beside a reused object."""
    from em import Memory

    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "flow.yaml"
        write_workflow(file)
        with Memory(Path(name) / "em.db") as memory:
            flow = memory.workflows(file, {"add": add})

            def called() -> float:
                return seconds(lambda: memory.workflow("sums", file=file, tools={"add": add}))

            def reused() -> float:
                return seconds(lambda: flow.start("sums"))

            mine, other, ratio = in_turns(called, reused, rounds=3 * ROUNDS[size])
    return Figure(
        f"memory.workflow() of {FLOW_STEPS} steps", mine * 1e3, "with a reused object",
        other * 1e3, "ms", ratio, 1.5, False,
    )  # fmt: skip


def _held_by_a_batch(size: str) -> Figure:
    """What `observe_many` of a generator holds at most, at four times the records."""
    from em import Memory

    few = 2_000 if size == "quick" else 40_000

    def held(records: int) -> float:
        with tempfile.TemporaryDirectory() as name, Memory(Path(name) / "em.db") as memory:
            tracemalloc.start()
            memory.observe_many(
                {"subject": f"s{n % 50}", "record": _trip(n), "type": "Trip"}
                for n in range(records)
            )
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return most / 1e6

    one, four = held(few), held(4 * few)
    return Figure(
        f"MB held by observe_many of a generator of {4 * few:,} records", four,
        f"of {few:,}", one, "MB", four / one, 2.5, False,
    )  # fmt: skip


def _trip(n: int) -> dict[str, Any]:
    return {
        "date": f"202{n % 5}-0{1 + n % 9}-1{n % 9}",
        "city": f"City{n % 50}",
        "cost_usd": n % 700 + 0.5,
        "nights": n % 14,
    }
