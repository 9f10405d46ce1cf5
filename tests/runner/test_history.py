"""One projection of a run: whoever looks at a run reads its stream once."""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from em import Memory
from em.cli.root import run as em_command
from em.log.event import Event, EventQuery, run_stream
from em.runner.history import read_run, savings
from em.store.sqlite import SqliteStore

ROUTINE = """
name: greet
steps:
  - {id: look, type: tool.call, tool: look, save_as: found}
  - {id: end, type: return, value: "{{ found }}"}
"""
FLOWS = "workflows: {w: {steps: [{name: a, tool: echo, inputs: {text: x}}]}}"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    (tmp_path / "greet").mkdir()
    (tmp_path / "greet" / "routine.yaml").write_text(ROUTINE)
    (tmp_path / "w.yaml").write_text(FLOWS)
    with Memory(tmp_path / "em.db") as memory:
        memory.run(tmp_path / "greet", {}, {"look": lambda: "u-12"}, run_id="R")
        flows = memory.workflows(tmp_path / "w.yaml", {"echo": lambda text: text})
        flows.start("w", run_id="W")
        yield memory


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The streams that are read from now on."""
    seen: list[str] = []
    read = SqliteStore.read

    def counted(store: SqliteStore, query: EventQuery) -> Iterable[Event]:
        if query.stream is not None:
            seen.append(query.stream)
        return read(store, query)

    monkeypatch.setattr(SqliteStore, "read", counted)
    return seen


async def get(memory: Memory, path: str) -> Any:
    pytest.importorskip("litestar")
    from em.serve.app import make_app
    from em.settings import Settings

    app: Any = make_app(memory, Settings())
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("path", "run"),
    [
        ("/ui/run?id=R", "R"),
        ("/runs/R", "R"),
        ("/workflow-runs/W", "W"),
        ("/workflow-runs/W/steps", "W"),
    ],
)
def test_a_page_reads_the_stream_of_its_run_once(
    memory: Memory, reads: list[str], path: str, run: str
) -> None:
    asyncio.run(get(memory, path))
    assert reads.count(run_stream(run)) == 1


@pytest.mark.parametrize(
    ("args", "run"),
    [
        (["runs", "show", "R"], "R"),
        (["runs", "show", "R", "--json"], "R"),
        (["workflow", "inspect", "W"], "W"),
    ],
)
def test_a_command_reads_the_stream_of_its_run_once(
    memory: Memory, reads: list[str], tmp_path: Path, args: list[str], run: str
) -> None:
    assert em_command(["--db", str(tmp_path / "em.db"), *args]) == 0
    assert reads.count(run_stream(run)) == 1


def test_a_list_of_runs_reads_no_stream(memory: Memory, reads: list[str], tmp_path: Path) -> None:
    assert em_command(["--db", str(tmp_path / "em.db"), "runs", "list"]) == 0
    assert reads == []


def test_a_run_is_shown_with_its_steps_its_end_and_what_it_saved(memory: Memory) -> None:
    past = read_run(memory.store, "R")
    assert [(step.step, step.status, step.result) for step in past.steps] == [
        ("look", "done", "u-12")
    ]
    assert (past.status, past.output, past.is_over) == ("ok", "u-12", True)
    assert past.ended is not None
    assert past.began <= past.ended
    assert [row.run for row in savings(memory.store, past)][:2] == [1, 0]
    assert past.result().output == "u-12"
