"""Learnt from five sessions, the sixth is done: in a real folder, with no model.

The files are compared byte by byte with what the scripted agent made of the same project. Tasks
that need judgement must be handed over, and must not be written wrongly.
"""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.figure import Figure
from bench.series import chores, claude, codex
from bench.series.projects import (
    Files,
    Task,
    bump_judgements,
    bumps,
    contents,
    import_judgements,
    imports,
    write,
)
from em import Memory
from em.errors import EmError
from em.runner.run import Reason
from em.settings import AllowSettings

ALLOWED = AllowSettings(
    commands=["grep", "pytest", "python", "rg", "cat", "sed", "find", "ls", "head"], folders=["."]
)
Work = Callable[[Any, Task, int], None]


class Series(NamedTuple):
    """A kind of work: its tasks, those that need judgement, and how the agent does it.

    given: what a run of a task is given; its request, unless no words are bound.
    """

    name: str
    tasks: Sequence[Task]
    judgements: Sequence[Task]
    work: Work
    agent: Callable[[Task, Path], Any] = claude.Agent
    given: Callable[[Task], dict[str, Any]] = lambda task: {"request": task.request}


SERIES = [
    Series("bump the version", bumps(), bump_judgements(), claude.bump),
    Series("fix the import", imports(), import_judgements(), claude.fix_import),
    Series(
        "release in a person's own words",
        chores.chores(),
        chores.chore_judgements(),
        chores.release,
        chores.Agent,
        chores.given,
    ),
]
HELD_BACK = [
    Series("bump the version (Codex)", bumps(), bump_judgements(), codex.bump, codex.Agent),
    Series("fix the import (Codex)", imports(), import_judgements(), codex.fix_import, codex.Agent),
]
"""Another agent's way, which em was not written for: shown without a bar.

When first measured, all twelve were refused: em did not read `sed -n` as a look at a file, nor the
argument that Codex has a patch in.
"""


class Done(NamedTuple):
    """A session: its file, and the files of its project after it."""

    text: str
    after: Files


def sessions(series: Series) -> list[Done]:
    """Let the scripted agent do all tasks of a series."""
    made = []
    for seed, task in enumerate(series.tasks):
        with tempfile.TemporaryDirectory() as folder, plain_pytest():
            write(task.files, Path(folder))
            agent = series.agent(task, Path(folder))
            series.work(agent, task, seed)
            made.append(Done(agent.text(), contents(Path(folder))))
    return made


def learnt(memory: Memory, done: Sequence[Done], folder: Path) -> Any:
    """Import sessions, and compile what they have in common."""
    for number, one in enumerate(done):
        (folder / f"session-{number}.jsonl").write_text(one.text)
    memory.import_files([folder])
    return memory.compile([trace.id for trace in memory.traces()], name="learnt")


def run(
    memory: Memory, routine: Any, task: Task, day: str, given: dict[str, Any] | None = None
) -> tuple[str, str, Files]:
    """Run a routine on a task in a folder of its own; return status, reason and files.

    given: its input; the request of the task if there is none.
    """
    with tempfile.TemporaryDirectory() as folder, inside(Path(folder)), on_day(day), plain_pytest():
        write(task.files, Path(folder))
        given = given or {"request": task.request}
        result = memory.run(routine, given, allow=ALLOWED)
        why = result.pending_prompt or result.failure or result.reason
        check = f"{why.check}: " if isinstance(why, Reason) and why.check else ""
        return result.status, f"{check}{why.message}" if why else "", contents(Path(folder))


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in a folder."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)


@contextlib.contextmanager
def on_day(day: str) -> Iterator[None]:
    """Let it be another day for the tool that tells the day."""
    from datetime import datetime

    from em.runner.tools import coding

    real = coding.now
    coding.now = lambda: datetime.fromisoformat(f"{day}T11:00:00+00:00")
    try:
        yield
    finally:
        coding.now = real


@contextlib.contextmanager
def plain_pytest() -> Iterator[None]:
    """Put a pytest without plugins first on the path, which starts in a fifth of the time."""
    path = os.environ["PATH"]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "pytest"
        program.write_text(
            f'#!/bin/sh\nPYTEST_DISABLE_PLUGIN_AUTOLOAD=1 exec {sys.executable} -P -m pytest "$@"\n'
        )
        program.chmod(0o755)
        os.environ["PATH"] = f"{folder}:{path}"
        try:
            yield
        finally:
            os.environ["PATH"] = path


class Score(NamedTuple):
    """How a series did."""

    right: int
    tasks: int
    handed: int
    judgements: int
    wrong: int


def rotated(series: Series, *, shown: bool = False) -> Score:
    """Leave each session out once, and do its task; then the tasks that need judgement."""
    done = sessions(series)
    right = handed = wrong = 0
    for number, task in enumerate(series.tasks):
        rest = [one for at, one in enumerate(done) if at != number]
        with tempfile.TemporaryDirectory() as folder, Memory(":memory:") as memory:
            try:
                routine = learnt(memory, rest, Path(folder))
                status, why, files = run(memory, routine, task, task.day, series.given(task))
            except EmError as error:
                status, why, files = "refused", error.message, task.files
        is_right = status == "ok" and files == done[number].after
        right += is_right
        wrong += not is_right and files != task.files
        if shown:
            print(f"    {task.name:<32} {'right' if is_right else status}  {why[:160]}")
    with tempfile.TemporaryDirectory() as folder, Memory(":memory:") as memory:
        routine = learnt(memory, done, Path(folder))
        for task in series.judgements:
            status, why, files = run(memory, routine, task, task.day, series.given(task))
            handed += status != "ok"
            changed = files != task.files
            wrong += status == "ok" and changed
            if shown:
                print(f"    {task.name:<32} {status}{' CHANGED' * changed}  {why[:160]}")
    return Score(right, len(series.tasks), handed, len(series.judgements), wrong)


def figures() -> Iterator[Figure]:
    """All series."""
    for series in SERIES:
        yield from _figures(series, 1.0)
    for series in HELD_BACK:
        yield from _figures(series, None)


def _figures(series: Series, bar: float | None) -> Iterator[Figure]:
    print(f"  {series.name}")
    found = rotated(series, shown=True)
    for what, ours, total in (
        ("done as the agent did", found.right, found.tasks),
        ("judgement handed over", found.handed, found.judgements),
    ):
        yield Figure(
            f"series: {series.name}, {what}", ours, "all", total, "", ours / total, bar, True
        )
    wrong = float(found.wrong)
    yield Figure(f"series: {series.name}, wrong writes", wrong, "none", 0, "", wrong, 0.0, False)


def main(args: Sequence[str]) -> None:
    """Print a series by its number."""
    parser = argparse.ArgumentParser()
    parser.add_argument("numbers", nargs="*", type=int)
    every = [*SERIES, *HELD_BACK]
    for number in parser.parse_args(args).numbers or range(len(every)):
        print(every[number].name, rotated(every[number], shown=True))


if __name__ == "__main__":
    main(sys.argv[1:])
