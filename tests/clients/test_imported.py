"""mini-swe-agent has no hooks and no MCP: em learns from its trajectories, and is a command."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.em_command import em
from tests.clients.coding_agents import MiniSweAgent, aside
from tests.clients.test_installed import ORDER

from em import Memory
from em.testing import LoopbackModel


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[MiniSweAgent]:
    with LoopbackModel(key="sk-dummy", aside=aside) as model:
        agent = MiniSweAgent(tmp_path, model)
        if not agent.is_there:
            pytest.skip(f"{agent.name} is not installed (CI leaves it out)")
        yield agent


def work(agent: MiniSweAgent, memory: Memory, task: str, *commands: str) -> None:
    """Let the agent do a task, and import its trajectory."""
    agent.run(task, *map(agent.shell, commands), agent.end("Done."))
    memory.import_files(agent.sessions())


def test_lessons_of_imported_trajectories_reach_the_next_task_as_a_briefing(
    agent: MiniSweAgent, tmp_path: Path
) -> None:
    (agent.folder / "order.sh").write_text(ORDER)
    db = tmp_path / "memory.db"
    with Memory(db) as memory:
        for name in ("ana", "bo"):
            steps = ("sh order.sh", "touch customer", "sh order.sh")
            work(agent, memory, f"place the order of {name}", *steps)
            for made in ("customer", "order"):
                (agent.folder / made).unlink()
        first, second = memory.traces()
        assert [bool(call.error) for call in first.trace.calls[:3]] == [True, False, False]
        memory.reflect([first.id, second.id])
        task = "sh order.sh: insert the customer first"
        said = em("lessons", "retrieve", task, "--text", "--db", str(db)).out
        assert "touch customer" in said
        work(agent, memory, f"place the order of eve\n\n{said}", "touch customer", "sh order.sh")
        assert "touch customer" in json.dumps(agent.model.requests[-3].body)
        assert (agent.folder / "order").exists()


def test_a_routine_of_two_trajectories_is_a_command_for_the_third_task(
    agent: MiniSweAgent, tmp_path: Path
) -> None:
    db = tmp_path / "memory.db"
    for count, name in enumerate(("orders", "sales", "returns"), 1):
        (agent.folder / f"{name}.csv").write_text("1,pending\n" * count + "2,paid\n")
    with Memory(db) as memory:
        for name in ("orders", "sales"):
            task = f"count the pending lines of {name}.csv into {name}.txt"
            work(agent, memory, task, f"grep -c pending {name}.csv > {name}.txt")
        memory.compile([one.id for one in memory.traces()], name="count_pending")
        given = {"pattern": "pending", "file": "returns.csv", "output": "returns.txt"}
        (agent.folder / "input.json").write_text(json.dumps(given))
        run = f"{sys.executable} -m em --db {db} run count_pending --input input.json"
        allowed = "--allow-command grep --allow-folder ."
        work(agent, memory, "count the pending lines of returns.csv", f"{run} {allowed}")
        assert (agent.folder / "returns.txt").read_text() == "3\n"
