"""A process that starts or resumes a workflow run, and kills itself where it is told to.

`deadly` is `STEP:before`, `STEP:after` (around the effect itself), or `write:N:before|after`
(around the N-th time that the journal is written).
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from em import Memory
from em.runner.tools import ToolRegistry

folder, run_id, answers, deadly = sys.argv[1:5]
registry = ToolRegistry()
writes = 0


def die(where: str) -> None:
    if deadly == where:
        os.kill(os.getpid(), signal.SIGKILL)


def note(line: str) -> None:
    with Path(folder, "effects.txt").open("a") as file:
        file.write(line + "\n")


@registry.tool(effect="read")
def look(step: int, seen: Any) -> str:
    die(f"{step}:before")
    note(f"read {step}")
    die(f"{step}:after")
    return f"{seen}{step}"


@registry.tool(effect="write")
def act(step: int, seen: Any) -> str:
    die(f"{step}:before")
    note(f"write {step}")
    die(f"{step}:after")
    return f"{seen}{step}"


@registry.tool(effect="write")
def keyed(step: int, seen: Any, idempotency_key: str) -> str:
    die(f"{step}:before")
    path = Path(folder, "keyed.json")
    done = json.loads(path.read_text()) if path.exists() else {}
    if idempotency_key not in done:
        note(f"write {step}")
        done[idempotency_key] = f"{seen}{step}"
        path.write_text(json.dumps(done))
    die(f"{step}:after")
    return str(done[idempotency_key])


with Memory(str(Path(folder, "em.db"))) as memory:
    commit = memory.store.commit

    def counted(what: Any) -> Any:
        global writes  # noqa: PLW0603 - the process is the counter
        writes += 1
        die(f"write:{writes}:before")
        done = commit(what)
        die(f"write:{writes}:after")
        return done

    memory.store.commit = counted  # type: ignore[method-assign]  # to die around it
    flow = memory.workflows(str(Path(folder, "flow.yaml")), registry)
    # The same call again does no harm: that is how a queue starts it.
    result = flow.start("ten", {"x": "go"}, run_id=run_id, answers=json.loads(answers))
prompt = result.pending_prompt
print(
    json.dumps(
        {
            "status": result.status,
            "output": result.output,
            "asks": prompt.step_id if prompt else None,
            "writes": writes,
        }
    )
)
