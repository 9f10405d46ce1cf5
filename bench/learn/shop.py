"""The retail tasks: recorded runs to learn from, and other tasks to score on.

No scored task is one that was learnt: its instruction and its writes differ.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.right.recording import Aim, Recording, gold_aim, recorded_aim, recordings
from bench.right.suite import synthesised
from bench.right.world import Domain

SCORED = 300
"""Tasks of tau-bench's retail train split that are scored: the first so many."""
RUNS = ("recorded", "made")
SIZES: dict[str, int | None] = {"1": 1, "2": 2, "5": 5, "20": 20, "all": None}
"""How many recordings of a kind are learnt from."""


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
    user: str
    refused: bool
    actions: Sequence[Any] = ()


class Shop:
    """Successful runs, and the tasks to score."""

    def __init__(self, of: Domain, runs: Sequence[Recording]) -> None:
        self.domain, self.runs = of, runs
        self._aims = {run.name: recorded_aim(run, of) for run in runs}
        self._asked = {str(json.loads(run.line)["instruction"]) for run in runs}

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
            user, name = task.user_id, f"train:{number}"
            found.append(Task(name, task.instruction, aim, user, refused, task.actions))
        return found[:limit]
