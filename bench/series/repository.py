"""Six chores of a kind in one growing repository are learnt from, and three new ones are done.

The requests are filled in by the templates of recorded wordings, without a model. What a routine
did is compared with what the scripted agent did in a copy: files, commits and tags.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from bench.figure import Figure
from bench.series.claude import Agent
from bench.series.kinds import KINDS, LEARNT, Kind
from bench.series.operations import OPERATIONS
from bench.series.projects import Task, write
from bench.series.rotation import inside, on_day
from em import Memory
from em.errors import EmError
from em.settings import AllowSettings

ALLOWED = AllowSettings(
    commands=["bash", "cat", "find", "git", "grep", "head", "ls", "make", "python3"], folders=["."]
)
RIGHT, HANDED, WRONG = "right", "handed over", "WRONG"


class Done(NamedTuple):
    """What became of new chores of a kind: by chore its verdict and why."""

    kind: Kind
    verdicts: list[tuple[str, str]]

    def count(self, verdict: str) -> int:
        """Return how many chores ended so."""
        return sum(one == verdict for one, _ in self.verdicts)

    @property
    def is_learnt(self) -> bool:
        """Whether new chores are done, and none wrongly."""
        return self.count(RIGHT) > len(self.verdicts) / 2 and not self.count(WRONG)


def done(kind: Kind) -> Done:
    """Learn a kind, and let its routine do new chores."""
    with learnt_from(kind) as (memory, repository, ids):
        try:
            routine = memory.compile(ids, name="learnt")
        except EmError as error:
            rest = len(kind.chores) - LEARNT
            return Done(kind, [(HANDED, f"not compiled: {error.message}")] * rest)
        return judged(kind, memory, routine, repository, lambda n: {"request": request_of(kind, n)})


@contextmanager
def learnt_from(kind: Kind) -> Iterator[tuple[Memory, Path, list[str]]]:
    """Let the agent do the chores to learn from; give memory, repository and traces."""
    with tempfile.TemporaryDirectory() as folder, Memory(":memory:") as memory:
        repository, sessions = Path(folder) / "repository", Path(folder) / "sessions"
        sessions.mkdir()
        _start(kind, repository)
        for number in range(LEARNT):
            text = _worked(kind, number, repository)
            (sessions / f"{number}.jsonl").write_text(text)
        memory.import_files([sessions])
        yield memory, repository, [trace.id for trace in memory.traces()]


def judged(
    kind: Kind,
    memory: Memory,
    routine: Any,
    repository: Path,
    given: Callable[[int], dict[str, Any]],
) -> Done:
    """Let a routine do new chores, and compare what it did with what the agent does."""
    verdicts = []
    for number in range(LEARNT, len(kind.chores)):
        copy = repository.parent / f"copy-{number}"
        shutil.copytree(repository, copy)
        before = _state(copy)
        _worked(kind, number, repository)
        with inside(copy), on_day(_day(number)):
            found = memory.run(routine, given(number), allow=ALLOWED)
        after = _state(copy)
        why = found.pending_prompt or found.failure or found.reason
        if found.status == "ok":
            verdict = RIGHT if after == _state(repository) else WRONG
        else:
            verdict = HANDED if after == before else f"{HANDED} after a change"
        verdicts.append((verdict, why.message if why else ""))
    return Done(kind, verdicts)


def _start(kind: Kind, folder: Path) -> None:
    write(kind.files, folder)
    for command in ("init -q -b main", "config user.name Ana", "config user.email ana@example.org",
                    "add -A", "commit -q -m Start"):  # fmt: skip
        subprocess.run(["git", *command.split()], cwd=folder, check=True)


def _worked(kind: Kind, number: int, folder: Path) -> str:
    """Let the agent do a chore; return its session."""
    task = Task(
        f"{number}-{kind.name.replace(' ', '-')}", _day(number), request_of(kind, number), {}
    )
    agent = Agent(task, folder)
    kind.do(agent, kind.chores[number], number)
    agent.say("Done.")
    return agent.text()


def request_of(kind: Kind, number: int) -> str:
    """Return how a chore was asked for."""
    return kind.wordings[number % len(kind.wordings)].format(**kind.chores[number])


def _day(number: int) -> str:
    return f"2026-{3 + number % 7:02}-{5 + number * 2:02}"


def _state(folder: Path) -> tuple[dict[str, str], str, str]:
    """Return the files of a repository, its commits and its tags."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, check=True)
        return done.stdout.decode()

    files = {
        str(path.relative_to(folder)): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }
    return files, git("log", "--format=%s"), git("tag")


def figures() -> Iterator[Figure]:
    """Kinds learnt, right of what runs, and wrong, over all kinds."""
    every = [*map(done, KINDS)]
    for one in every:
        print(f"    {one.kind.name:<40} {one.count(RIGHT)} of {len(one.verdicts)} right")
        for verdict, why in dict.fromkeys(one.verdicts):
            if verdict != RIGHT:
                print(f"        {verdict}: {why[:150]}")
    right, wrong = (sum(one.count(verdict) for one in every) for verdict in (RIGHT, WRONG))
    learnt, share = sum(one.is_learnt for one in every), right / max(1, right + wrong)
    yield Figure("series: kinds learnt of 12", learnt, "bar", 9, "", learnt / 9, 1.0, True)
    yield Figure("series: right of what runs", right, "runs", right + wrong, "", share, 0.95, True)
    yield Figure("series: wrong in 12 kinds", wrong, "none", 0, "", wrong, 0.0, False)
    more = [*map(done, OPERATIONS)]
    right, wrong = (sum(one.count(verdict) for one in more) for verdict in (RIGHT, WRONG))
    count = sum(len(one.verdicts) for one in more)
    yield Figure("series: right in 6 kinds of operations", right, "of", count, "", right / count,
                 None, True)  # fmt: skip
    yield Figure("series: wrong in 6 kinds of operations", wrong, "none", 0, "", wrong, 0.0, False)


def main(args: Sequence[str]) -> None:
    """Print kinds by their numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("numbers", nargs="*", type=int)
    for number in parser.parse_args(args).numbers or range(len(KINDS)):
        found = done(KINDS[number])
        print(number, found.kind.name, f"{found.count(RIGHT)} of {len(found.verdicts)}")
        for verdict, why in found.verdicts:
            print("   ", verdict, why[:300])


if __name__ == "__main__":
    main(sys.argv[1:])
