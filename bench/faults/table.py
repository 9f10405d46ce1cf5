"""`python -m bench faults`: kills at random points of everything that writes, and other faults.

For each part and store: kills, what was acknowledged, what of it is lost, and what is there twice.
"""

import argparse
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.faults import cluster, damage, queue, service
from bench.faults.act import ACTS, EARLY, ROOT, Act, Verdict
from bench.figure import Figure
from bench.server import postgres_address

SIZES = {"quick": 60, "nightly": 1_000}
LOADED = (
    "em.store.sqlite em.store.postgres psycopg bench.faults.child bench.faults.act em.memory"
    " em.runner.engine em.workflows.runs em.compiler.compile_trace em.traces.transcripts"
    " em.state.subjects em.heuristics.heuristic jsonschema_rs re2"
)
"""Modules that processes have from the start, so that they are killed while they write."""
START = 60.0
"""Seconds within which a process must have begun."""


class Options(NamedTuple):
    """What to run."""

    parts: Sequence[str] = ()
    kills: int = SIZES["quick"]
    seed: int = 1
    stores: Sequence[str] = ("SQLite", "PostgreSQL")


class Row(NamedTuple):
    """One line of the table."""

    part: str
    store: str
    kills: int
    acknowledged: int
    lost: int
    doubled: int
    said: str = ""

    def __str__(self) -> str:
        numbers = f"{self.kills:>6,} {self.acknowledged:>13,} {self.lost:>5,} {self.doubled:>8,}"
        return f"{self.part:<14} {self.store:<11} {numbers}  {self.said}"


HEAD = f"{'part':<14} {'store':<11} {'kills':>6} {'acknowledged':>13} {'lost':>5} {'doubled':>8}"


class Child:
    """A process that does an act, with what it acknowledged so far."""

    def __init__(self, act: Act, turn: int, fault: str = "") -> None:
        from tests.forks import start_python

        said, out = os.pipe()
        complained, err = os.pipe()
        words = ["-m", "bench.faults.child", act.name, str(act.folder), act.db, str(turn), fault]
        before = os.getcwd()
        os.chdir(ROOT)  # where the bench is imported from
        try:
            self.process = start_python(*words, stdin=0, stdout=out, stderr=err, loaded=LOADED)
        finally:
            os.chdir(before)
        os.close(out)
        os.close(err)
        self._said, self._complained = os.fdopen(said), os.fdopen(complained, errors="replace")
        first = self._said.readline()
        assert first == "begun\n", first + self._complained.read()

    def kill_after(self, seconds: float, *, early: bool = False) -> list[str]:
        """Kill it a while after its first acknowledgement, or early; return what it said."""
        first = [] if early else self.first_line()
        time.sleep(seconds)
        self.process.send_signal(signal.SIGKILL)
        return [*first, *self.end()[0]]

    def first_line(self) -> list[str]:
        """Wait for the first acknowledgement; none if the process ends before it."""
        line = self._said.readline()
        return [line[:-1]] if line.endswith("\n") else []

    def end(self) -> tuple[list[str], int, str]:
        """Wait for its end; return what it acknowledged, its exit code, and its complaints."""
        # A line without its end was cut while it was printed: it says nothing.
        lines = [line[:-1] for line in self._said if line.endswith("\n")]
        code, complaint = self.process.wait(), self._complained.read()
        self._said.close()
        self._complained.close()
        return lines, code, complaint


def killed(act: Act, store: str, kills: int, draw: random.Random) -> Row:
    """Kill processes in the middle of an act, then look at what is there."""
    act.prepare()
    acknowledged: list[str] = []
    for turn in range(kills):
        child = Child(act, turn)
        early, seconds = draw.random() < EARLY, draw.uniform(0, act.longest)
        acknowledged += child.kill_after(seconds, early=early)
        act.settle()
    verdict = act.judge(acknowledged)
    return _row(act.name, store, kills, acknowledged, verdict, verified(act.db))


def _row(
    part: str, store: str, kills: int, acknowledged: Sequence[str], verdict: Verdict, more: str = ""
) -> Row:
    lost = verdict.lost + bool(more)
    said = "; ".join(filter(None, (verdict.said, more)))
    return Row(part, store, kills, len(acknowledged), lost, verdict.doubled, said)


def verified(db: str) -> str:
    """Return what is wrong with a database after all that; nothing if it verifies."""
    from em import Memory

    with Memory(db) as memory:
        report, health = memory.log.verify(), memory.store.health(deep=True)
    problems = [*health.problems, *([] if report.ok else ["the log does not verify"])]
    return "; ".join(problems)[:300]


Make = Callable[[str], tuple[Path, str]]
"""Makes a folder and the address of an empty database in it, for a store."""


@contextmanager
def places(stores: Sequence[str]) -> Iterator[Make]:
    """Yield what makes places; everything is removed at the end."""
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        base.chmod(0o755)  # one fault is a user without rights
        server = stack.enter_context(postgres_address()) if "PostgreSQL" in stores else ""
        numbers = iter(range(10_000))

        def make(store: str) -> tuple[Path, str]:
            name = f"place{next(numbers)}"
            folder = base / name
            folder.mkdir()
            if store == "SQLite":
                return folder, str(folder / "em.db")
            import psycopg

            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {name}")
            return folder, server.replace("/postgres?", f"/{name}?")

        yield make


def read_options(words: Sequence[str]) -> Options:
    """Read the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench faults", description=__doc__)
    parser.add_argument("--part", action="append", choices=[*ACTS, *OTHERS, *damage.FAULTS])
    parser.add_argument(
        "--size", default="quick", help="quick (60 kills), nightly (1,000), or a number"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="other seeds kill at other moments  [1]"
    )
    parser.add_argument(
        "--store", action="append", choices=Options().stores, help="only this store"
    )
    found = parser.parse_args(words)
    kills = SIZES[found.size] if found.size in SIZES else int(found.size)
    return Options(found.part or (), kills, found.seed, found.store or Options().stores)


OTHERS = {"worker": queue.killed, "service": service.killed, "server": cluster.killed}
"""Parts whose processes are commands of em, or PostgreSQL's."""


def figures(options: Options | None = None) -> Iterator[Figure]:
    """Print a row for each part and store, and yield the sums."""
    chosen = options or Options()
    rows: list[Row] = []
    print(HEAD, flush=True)
    with places(chosen.stores) as make:
        for row in _rows(chosen, make):
            rows.append(row)
            print(row, flush=True)
    kills, acknowledged = sum(row.kills for row in rows), sum(row.acknowledged for row in rows)
    lost, doubled = sum(row.lost for row in rows), sum(row.doubled for row in rows)
    print(Row("in all", "", kills, acknowledged, lost, doubled), flush=True)
    yield Figure("acknowledged and lost", lost, "acknowledged", acknowledged, "", lost, 0, False)
    yield Figure("doubled", doubled, "kills", kills, "", doubled, 0, False)


def _rows(chosen: Options, make: Make) -> Iterator[Row]:
    names = chosen.parts or [*ACTS, *OTHERS, *damage.FAULTS]
    killing = [
        (name, store)
        for name in names
        for store in chosen.stores
        if name in ACTS or (name in OTHERS and (name, store) != ("server", "SQLite"))
    ]
    draw = random.Random(chosen.seed)
    for number, (name, store) in enumerate(killing):
        kills = chosen.kills // len(killing) + (number < chosen.kills % len(killing))
        if not kills:
            continue
        folder, db = make(store)
        if name in ACTS:
            yield killed(ACTS[name](folder, db), store, kills, draw)
        else:
            found, verdict = OTHERS[name](folder, db, kills, draw)
            yield _row(name, store, kills, found, verdict, verified(db))
    for name in names:
        for store in chosen.stores:
            if name in damage.FAULTS:
                found, verdict = damage.FAULTS[name](store, make, draw)
                yield _row(name, store, 0, found, verdict)
