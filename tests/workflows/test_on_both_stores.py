"""The same on SQLite and on PostgreSQL."""

from collections.abc import Callable
from pathlib import Path

import psycopg

from em.llm import ScriptedClient
from em.store.postgres import PostgresStore
from em.store.protocol import Store
from em.workflows import MemoryStore, Workflows

TEXT = """
workflows:
  w:
    parallel: true
    params: [x]
    steps:
      - {name: a, inputs: {prompt: "{{params.x}}"}}
      - {name: b, gate: true, memory: {needs: [a]}, inputs: {prompt: "b {{memory.a}}"}}
      - {name: c, inputs: {prompt: "c"}}
"""


def test_a_run_waits_goes_on_is_looked_at_and_cleaned_up(store: Store, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(TEXT)
    client = ScriptedClient(lambda request: f"[{request.prompt}]")
    flow = Workflows(store, file="flow.yaml", client=client)
    waits = flow.start("w", {"x": "y"}, run_id="r")
    assert waits.status == "needs_input"
    done = flow.resume("r", answers={"b": {"approve": True}})
    assert (done.status, done.outputs["b"]) == ("ok", "[b [y]]")
    assert [step.status for step in flow.inspect("r").steps] == ["done", "done", "done"]
    assert [line.status for line in flow.runs()] == ["ok"]
    assert MemoryStore(store).cleanup_old_entries(days_old=0) > 0
    assert flow.runs() == []


def test_a_run_outlives_the_loss_of_its_database(
    new_database: Callable[[], str], tmp_path: Path
) -> None:
    address = new_database()
    made: list[str] = []

    def lose() -> str:
        made.append("an effect")
        with psycopg.connect(address, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        return "lost"

    text = "workflows: {w: {steps: [{name: a, tool: lose}, {name: b, tool: lose}]}}"
    (tmp_path / "flow.yaml").write_text(text)
    with PostgresStore(address, busy_timeout=5) as store:
        flow = Workflows(store, file="flow.yaml", tools={"lose": lose})
        result = flow.start("w", run_id="r")
        assert (result.status, result.output, len(made)) == ("ok", "lost", 2)
        assert flow.start("w", run_id="r").output == "lost"
    assert len(made) == 2
