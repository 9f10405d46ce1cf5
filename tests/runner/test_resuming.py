"""A resumed run is the run that began: the same code, and one process at a time."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em.errors import Conflict, RoutineError, RunBusy
from em.runner.engine import resume_run, run_routine
from em.runner.history import read_run
from em.runner.run import RunResult
from em.runner.tools import ToolRegistry
from em.settings import AllowSettings, McpServer
from em.store.protocol import Store
from em.store.sqlite import SqliteStore

ASK = "  - {id: ask, type: prompt.user, prompt: {message: Go on?, fields: [{name: ok}]}}\n"
YES = {"ask": {"ok": "yes"}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with SqliteStore(tmp_path / "em.db") as opened:
        yield opened


def routine(folder: Path, steps: str) -> Path:
    (folder / "routine.yaml").write_text(f"name: r\nsteps:\n{steps}")
    return folder


def test_a_run_is_not_resumed_with_other_functions(tmp_path: Path, store: Store) -> None:
    folder = routine(tmp_path, ASK + "  - {id: f, type: udf.call, function: price}\n")
    (tmp_path / "udf.py").write_text("def price(): return 100\n")
    run_id = run_routine(folder, {}, store=store).run_id
    (tmp_path / "udf.py").write_text("def price(): return 500\n")
    with pytest.raises(RoutineError, match=r"udf\.py was changed since this run began") as refused:
        resume_run(store, run_id, answers=YES)
    assert "start a new run" in refused.value.fix
    assert read_run(store, run_id).status == "needs_input", "it can still go on"
    (tmp_path / "udf.py").write_text("def price(): return 100\n")
    assert resume_run(store, run_id, answers=YES).status == "ok"


@pytest.mark.parametrize("steps", [ASK + "  - {id: f, type: udf.call, function: price}\n", ASK])
def test_functions_that_came_later_are_other_functions(
    tmp_path: Path, store: Store, steps: str
) -> None:
    given = {"price": lambda: 1}
    run_id = run_routine(routine(tmp_path, steps), {}, store=store, udfs=given).run_id
    (tmp_path / "udf.py").write_text("def price(): return 500\n")
    with pytest.raises(RoutineError, match="changed since this run began"):
        resume_run(store, run_id, answers=YES, udfs=given)


PAY = ASK + "  - {id: p, type: tool.call, tool: pay}\n"


def test_a_run_is_not_resumed_with_other_tools(tmp_path: Path, store: Store) -> None:
    folder, file = routine(tmp_path, PAY), tmp_path / "tools.py"
    file.write_text("def pay(): return 100\n")
    run_id = run_routine(folder, {}, ToolRegistry.load(str(file)), store=store).run_id
    file.write_text("LIMIT = 5\ndef pay(): return 100\n")
    with pytest.raises(RoutineError, match="the tool 'pay' was changed since this run began"):
        resume_run(store, run_id, ToolRegistry.load(str(file)), answers=YES)
    file.write_text("def pay(): return 100\n")
    assert resume_run(store, run_id, ToolRegistry.load(str(file)), answers=YES).status == "ok"


def test_the_code_that_counts_is_the_code_that_was_loaded(tmp_path: Path, store: Store) -> None:
    folder, file = routine(tmp_path, PAY), tmp_path / "tools.py"
    file.write_text("def pay(): return 100\n")
    tools = ToolRegistry.load(str(file))
    run_id = run_routine(folder, {}, tools, store=store).run_id
    file.write_text("def pay(): return 500\n")
    assert resume_run(store, run_id, tools, answers=YES).status == "ok"


def test_a_tool_that_is_not_called_may_change(tmp_path: Path, store: Store) -> None:
    folder, file = routine(tmp_path, PAY), tmp_path / "tools.py"
    file.write_text("def other(): return 1\n")
    tools = {"pay": lambda: 1, "other": ToolRegistry.load(str(file))["other"].function}
    run_id = run_routine(folder, {}, tools, store=store).run_id
    file.write_text("def other(): return 2\n")
    tools["other"] = ToolRegistry.load(str(file))["other"].function
    assert resume_run(store, run_id, tools, answers=YES).status == "ok"


def test_tools_without_a_file_are_compared_by_their_code(tmp_path: Path, store: Store) -> None:
    def made(code: str) -> dict[str, Any]:
        scope: dict[str, Any] = {}
        exec(code, scope)
        return {"pay": scope["pay"]}

    run_id = run_routine(
        routine(tmp_path, PAY), {}, made("def pay(n=1): return n + 100"), store=store
    ).run_id
    with pytest.raises(RoutineError, match="the tool 'pay' was changed"):
        resume_run(store, run_id, made("def pay(n=1): return n + 500"), answers=YES)
    again = made("\n# A comment.\ndef pay(n=1):\n    return n + 100")
    assert resume_run(store, run_id, again, answers=YES).status == "ok"


def test_callables_of_every_kind_can_be_tools_of_a_resumed_run(
    tmp_path: Path, store: Store
) -> None:
    from functools import partial

    class Till:
        def __call__(self) -> int:
            return 1

        def pay(self) -> int:
            return 2

    for tool in (Till(), Till().pay, partial(max, 1, 2), dict, str.upper, print):
        tools: Any = {"pay": tool}
        run_id = run_routine(routine(tmp_path, PAY), {}, tools, store=store).run_id
        assert read_run(store, run_id).status == "needs_input"
        resume_run(store, run_id, tools, answers=YES)


def test_a_run_is_not_resumed_with_another_server(tmp_path: Path, store: Store) -> None:
    folder = routine(tmp_path, ASK + "  - {id: p, type: tool.call, tool: mcp__shop__pay}\n")

    def allow(program: str) -> AllowSettings:
        server = McpServer(command=[sys.executable, program])
        return AllowSettings(commands=[sys.executable], mcp={"shop": server})

    run_id = run_routine(folder, {}, store=store, allow=allow("a.py")).run_id
    with pytest.raises(RoutineError, match="the tool 'mcp__shop__pay' was changed"):
        resume_run(store, run_id, answers=YES, allow=allow("b.py"))


SLOW = ASK + (
    "  - {id: look, type: tool.call, tool: look, effect: read}\n"
    "  - {id: pay, type: tool.call, tool: pay}\n"
)


@pytest.mark.parametrize("again", [YES, {}])
def test_a_second_resume_stops_and_the_first_goes_on_to_the_end(
    tmp_path: Path, store: Store, again: dict[str, Any]
) -> None:
    began, go_on, paid = threading.Event(), threading.Event(), list[int]()
    results: list[RunResult] = []
    tools = {"look": lambda: (began.set(), go_on.wait(60))[1], "pay": lambda: paid.append(1)}
    run_id = run_routine(routine(tmp_path, SLOW), {}, tools, store=store).run_id

    def work() -> None:
        results.append(resume_run(store, run_id, tools, answers=YES))

    first = threading.Thread(target=work)
    first.start()
    assert began.wait(60)
    with SqliteStore(tmp_path / "em.db") as other, pytest.raises(RunBusy) as stopped:
        resume_run(other, run_id, tools, answers=again)
    assert run_id in stopped.value.place
    go_on.set()
    first.join()
    assert results[0].status == "ok"
    assert paid == [1]
    with pytest.raises(RoutineError, match="is over"):
        resume_run(store, run_id, tools, answers=YES)


PROCESS = """
import sys, time
from pathlib import Path
from em.errors import EmError
from em.runner.engine import resume_run, run_routine
from em.store import open_store

def look():
    print("began", flush=True)
    while not Path("go").exists():
        time.sleep(0.01)

def pay():
    with open("paid", "a") as file:
        file.write("paid\\n")

tools = {"look": look, "pay": pay}
with open_store("em.db") as store:
    try:
        if sys.argv[1] == "new":
            print(run_routine(".", {}, tools, store=store).run_id)
        else:
            yes = {"ask": {"ok": "yes"}}
            print(resume_run(store, sys.argv[1], tools, answers=yes).status)
    except EmError as error:
        print(error.code)
"""


def process(folder: Path, run_id: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "worker.py", run_id]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def waiting(folder: Path) -> str:
    """Begin a run in a process of its own, up to its question."""
    routine(folder, SLOW)
    (folder / "worker.py").write_text(PROCESS)
    with process(folder, "new") as first:
        return said(first)


def test_of_two_processes_the_second_stops_and_the_first_goes_on(tmp_path: Path) -> None:
    run_id = waiting(tmp_path)
    with process(tmp_path, run_id) as first:
        assert said(first) == "began"
        with process(tmp_path, run_id) as second:
            assert said(second) == "run_busy"
        (tmp_path / "go").touch()
        assert said(first) == "ok"
    assert (tmp_path / "paid").read_text() == "paid\n"


def test_a_process_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    run_id = waiting(tmp_path)
    with process(tmp_path, run_id) as first:
        assert said(first) == "began"
        first.kill()
    (tmp_path / "go").touch()
    with process(tmp_path, run_id) as second:
        assert [said(second), said(second)] == ["began", "ok"]


def test_a_run_that_was_continued_elsewhere_stops_with_a_clear_error(
    tmp_path: Path, store: Store
) -> None:
    """Between machines nothing but the journal can tell."""
    from em.log.event import run_stream
    from em.store.log import Log

    tools: dict[str, Any] = {"look": lambda: None, "pay": lambda: None}
    run_id = run_routine(routine(tmp_path, SLOW), {}, tools, store=store).run_id
    elsewhere = {"answers": {"ask": {"ok": "y"}}}
    tools["look"] = lambda: Log(store).append(run_stream(run_id), "run_answered", elsewhere)
    with pytest.raises(RunBusy, match="continued elsewhere") as stopped:
        resume_run(store, run_id, tools, answers=YES)
    assert isinstance(stopped.value, Conflict)
    json.dumps(stopped.value.as_dict())
