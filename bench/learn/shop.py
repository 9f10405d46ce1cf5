"""The retail tasks: recorded runs to learn from, by kind, and other tasks to score on.

A kind is the set of tools that a task writes with. A task is learnt from runs of its kind, and
from runs whose writes are a part of it; both are drawn once, so that a larger size has the runs
of a smaller one. No scored task is one that was learnt: its instruction and its writes differ.

Requests are words. The recorded customers were simulated by a model that had an instruction and
nothing else, and an instruction is what goes into a learnt routine. So a trace's request is the
instruction of its run, not the conversation that came of it (`--words said` has that).
"""

import json
import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.learn.learner import Material
from bench.right.recording import Aim, Recording, gold_aim, recorded_aim, recordings
from bench.right.suite import synthesised
from bench.right.world import Domain

if TYPE_CHECKING:
    from em.traces.trace import Trace

SCORED = 300
"""Tasks of tau-bench's retail train split that are scored: the first so many."""
WORDS = ("instruction", "said")
RUNS = ("recorded", "made")

Kind = tuple[str, ...]


def runs_to_learn(of: Domain, how: str = RUNS[0]) -> list[Recording]:
    """The successful runs: recorded ones, or made up from gold actions that are not scored."""
    if how == "made":
        made = synthesised("made-up retail train", of, "train", None).runs
        return [run for run in made if run.task >= SCORED]
    return [run for run in recordings() if run.reward == 1.0]


class Task(NamedTuple):
    """A task to score: its request in words, and the database that it should lead to.

    refused: a tool refuses one of the gold actions (a gift card has too little on it), so that the
    right database lacks something that the request asks for. actions: the gold actions.
    """

    name: str
    request: str
    aim: Aim
    kind: Kind
    user: str
    refused: bool
    actions: Sequence[Any] = ()


class Shop:
    """Successful runs by kind, and the tasks to score."""

    def __init__(self, of: Domain, runs: Sequence[Recording], words: str = WORDS[0]) -> None:
        self.domain, self._words = of, words
        self._aims = {run.name: recorded_aim(run, of) for run in runs}
        self._asked = {str(_chat(run)["instruction"]) for run in runs}
        self.runs: dict[Kind, list[Recording]] = {}
        for run in runs:
            self.runs.setdefault(kind_of(self._aims[run.name]), []).append(run)
        for kind in sorted(self.runs):
            random.Random(f"15 {kind}").shuffle(self.runs[kind])

    def tasks(self, limit: int | None) -> list[Task]:
        """The tasks to score, without those that equal a run that may be learnt from."""
        learnt = [aim.changes for aim in self._aims.values()]
        found: list[Task] = []
        for number, task in enumerate(self.domain.tasks["train"][:SCORED]):
            aim = gold_aim(task, self.domain)
            wanted = [one.name for one in task.actions if one.name in self.domain.writes]
            refused = len(wanted) > len(aim.examples)
            if (aim.changes and aim.changes in learnt) or task.instruction in self._asked:
                continue
            kind = tuple(sorted(set(wanted)))
            user, name = task.user_id, f"train:{number}"
            found.append(Task(name, task.instruction, aim, kind, user, refused, task.actions))
        return found[:limit]

    def drawn(self, size: int | None) -> dict[str, "Trace"]:
        """So many runs of each kind, as traces; all of them without a size."""
        return {run.name: self._trace(run) for runs in self.runs.values() for run in runs[:size]}

    def material(self, kind: Kind, size: int | None) -> Material:
        parts = (
            run.name
            for other, runs in self.runs.items()
            if other and set(other) < set(kind)
            for run in runs[:size]
        )
        return Material([run.name for run in self.runs.get(kind, ())[:size]], [*parts])

    def _trace(self, run: Recording) -> "Trace":
        import msgspec

        from em.traces.trace import Message
        from em.traces.transcripts import read_traces

        (kept,) = read_traces(run.line, run.name)
        if self._words == "said":
            return kept.trace
        asked = Message(role="user", text=str(_chat(run)["instruction"]))
        return msgspec.structs.replace(kept.trace, events=[asked, *kept.trace.calls])


def _chat(run: Recording) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.line)
    return found


def kind_of(aim: Aim) -> Kind:
    """The tools that were written with. A tool that was called twice is a loop."""
    return tuple(sorted({write.tool for write in aim.examples}))


def name_of(kind: Iterable[str]) -> str:
    """A kind as the name of a routine."""
    return "-and-".join(kind).replace("_", "-") or "reads-only"
