"""A process that runs or resumes a routine, and kills itself where it is told to."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from em.runner.engine import resume_run, run_routine
from em.runner.tools import ToolRegistry
from em.store import open_store

database, folder, run_id, answers, deadly = sys.argv[1:6]
registry = ToolRegistry()


def die(step: int, when: str) -> None:
    if deadly == f"{step}:{when}":
        os.kill(os.getpid(), signal.SIGKILL)


def note(line: str) -> None:
    with Path(folder, "effects.txt").open("a") as file:
        file.write(line + "\n")


@registry.tool(effect="read")
def look(step: int, x: int) -> int:
    die(step, "before")
    note(f"read {step}")
    die(step, "after")
    return x + 1


@registry.tool(effect="write")
def act(step: int, x: int) -> Any:
    die(step, "before")
    note(f"write {step}")
    die(step, "after")
    return x + 1


with open_store(database) as store:
    if run_id == "new":
        result = run_routine(folder, {"x0": 0}, registry, store=store)
    else:
        result = resume_run(store, run_id, registry, answers=json.loads(answers))
prompt = result.pending_prompt
print(
    json.dumps(
        {
            "run_id": result.run_id,
            "status": result.status,
            "output": result.output,
            "step": prompt.step_id if prompt else None,
            "failure": result.failure.message if result.failure else None,
        }
    )
)
