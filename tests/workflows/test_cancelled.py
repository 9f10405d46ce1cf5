"""A workflow is cancelled with the routine that a step is running, and no worker takes it up."""

from pathlib import Path
from typing import Any

import pytest
from flows import Write

from em import Memory
from em.errors import Cancelled, EmError
from em.runner.history import find_runs
from em.settings import Settings
from em.work.job import Item, Job, Queued
from em.work.worker import Equipment, run_items

FLOW = """
workflows:
  w:
    steps:
      - {name: a, tool: first}
      - {name: b, tool: run_routine, inputs: {routine: ./pack}}
      - {name: c, tool: last}
"""
ROUTINE = """
name: pack
steps:
  - {id: one, type: tool.call, tool: one}
  - {id: two, type: tool.call, tool: two}
"""


class Flow:
    """A workflow whose routine is cancelled, with the workflow, in its first step."""

    def __init__(self, memory: Memory, write: Write, folder: Path) -> None:
        (folder / "pack").mkdir()
        (folder / "pack" / "routine.yaml").write_text(ROUTINE)
        self.memory = memory
        self.done: list[str] = []
        self.is_cancelled = False
        names = ("first", "one", "two", "last")
        self.tools = {name: self._tool(name) for name in names}
        self.flows = write(FLOW, self.tools)

    def _tool(self, name: str) -> Any:
        def tool() -> str:
            self.done.append(name)
            if name == "one" and not self.is_cancelled:
                self.is_cancelled = True
                self.memory.cancel("w1", by="ana")
            return name

        return tool

    def statuses(self) -> tuple[str, str]:
        """The status of the workflow's run, and of the routine's inside it."""
        (outer,) = find_runs(self.memory.store, "workflow").runs
        (inner,) = find_runs(self.memory.store).runs
        return outer.status, inner.status


@pytest.fixture
def flow(memory: Memory, write: Write, tmp_path: Path) -> Flow:
    made = Flow(memory, write, tmp_path)
    with pytest.raises(Cancelled, match="cancelled by ana"):
        made.flows.start("w", run_id="w1")
    return made


def test_the_routine_of_a_step_stops_with_its_workflow_and_goes_on_with_it(flow: Flow) -> None:
    assert flow.done == ["first", "one"]
    assert flow.statuses() == ("cancelled", "cancelled")
    assert flow.flows.resume("w1").status == "cancelled", "told again, and nothing done"
    with pytest.raises(EmError, match="this run is over: cancelled"):
        flow.flows.resume("w1", answers={"c": {"approve": True}})
    assert flow.flows.resume("w1", retry=True, by="bo").status == "ok"
    assert flow.done == ["first", "one", "two", "last"], "each once"
    assert flow.statuses() == ("ok", "ok")


def test_no_worker_takes_up_a_cancelled_run(flow: Flow) -> None:
    (inner,) = find_runs(flow.memory.store).runs
    equipment = Equipment(flow.memory, flow.tools, Settings())
    for kind, run_id in (("workflow", "w1"), ("routine", inner.run_id)):
        job = Job(kind=kind, name="w", items=[Item(id=run_id)], how={"retry": True})  # type: ignore[arg-type]
        (result,) = run_items(equipment, Queued(job, "e", None), job.items)
        assert result == ("failed", "the run was cancelled")
    assert flow.done == ["first", "one"]
