"""What a call may rely on: its time, its context, and that its end is told once."""

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.runner.engine import arun_routine, run_routine
from em.runner.run import RunResult
from em.runner.tools import declarations
from em.settings import AllowSettings
from em.store.protocol import Store
from em.store.sqlite import SqliteStore

Run = Callable[..., RunResult]
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with SqliteStore(tmp_path / "em.db") as opened:
        yield opened


@pytest.fixture(params=["plain", "asyncio"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Run a routine of these steps: with both drivers."""

    def go(steps: str, tools: Any = None, head: str = "", **options: Any) -> RunResult:
        (tmp_path / "routine.yaml").write_text(f"name: r\n{head}steps:\n{steps}")
        if request.param == "plain":
            return run_routine(tmp_path, {}, tools, **options)
        return asyncio.run(arun_routine(tmp_path, {}, tools, **options))

    return go


def test_a_tools_own_timeout_counts_also_above_the_usual_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declarations, "TIMEOUT", 0.01)
    head = 'tools: [{name: t, command: [sh, -c, "sleep 0.2; echo done"], timeout: 90}]\n'
    step = "  - {id: a, type: tool.call, tool: t%s}\n"
    allow = AllowSettings(commands=["sh"])
    assert run(step % "", head=head, allow=allow).status == "ok"
    assert run(step % ", timeout: 60", head=head, allow=allow).status == "ok"
    late = run(step % ", timeout: 0.05", head=head, allow=allow).failure
    assert late is not None
    assert "0.05 s" in late.message, "the shorter of the two"


CALLS = ["", ", timeout: 30", ", for_each: [1, 2]"]


@pytest.mark.parametrize("more", [*CALLS, CALLS[2] + ", timeout: 30"])
@pytest.mark.parametrize("is_async", [True, False])
def test_a_tool_sees_the_context_variables_of_its_caller(
    run: Run, more: str, is_async: bool
) -> None:
    seen: list[str] = []

    def tool() -> None:
        seen.append(WHO.get())

    async def coroutine() -> None:
        seen.append(WHO.get())

    token = WHO.set("ana")
    try:
        result = run(
            f"  - {{id: a, type: tool.call, tool: t{more}}}\n",
            {"t": coroutine if is_async else tool},
        )
    finally:
        WHO.reset(token)
    assert result.status == "ok"
    assert set(seen) == {"ana"}


@pytest.mark.parametrize("more", ["", ", timeout: 30"])
def test_a_later_tool_sees_what_an_earlier_one_set(run: Run, more: str) -> None:
    steps = (
        f"  - {{id: a, type: tool.call, tool: login{more}}}\n"
        f"  - {{id: b, type: tool.call, tool: who{more}, save_as: r}}\n"
        '  - {id: c, type: return, value: "{{ r }}"}\n'
    )
    result = contextvars.copy_context().run(
        run, steps, {"login": lambda: WHO.set("bo") and None, "who": WHO.get}
    )
    assert result.output == "bo"


def test_the_steps_of_a_workflow_see_it_side_by_side(tmp_path: Path) -> None:
    seen: list[str] = []
    (tmp_path / "w.yaml").write_text(
        "workflows:\n  w:\n    parallel: 2\n    steps:\n"
        "      - {name: a, tool: t, effect: read}\n      - {name: b, tool: t, effect: read}\n"
    )
    token = WHO.set("ana")
    try:
        with Memory(tmp_path / "em.db") as memory:
            tools = {"t": lambda: seen.append(WHO.get())}
            result = memory.workflow("w", file=tmp_path / "w.yaml", tools=tools)
    finally:
        WHO.reset(token)
    assert result.status == "ok"
    assert seen == ["ana", "ana"]


def test_a_call_that_was_left_behind_does_not_keep_the_run(run: Run) -> None:
    """Under asyncio the end of the loop waits for threads of its pool."""
    over = threading.Event()
    ended: list[str] = []

    def slow() -> None:
        over.wait(60)
        ended.append("slow")

    result = run("  - {id: a, type: tool.call, tool: slow, timeout: 0.05}\n", {"slow": slow})
    ended.append("run")
    over.set()
    assert result.status == "failed"
    assert ended == ["run"]


def test_a_retry_makes_as_many_attempts_as_it_says(run: Run) -> None:
    calls: list[int] = []

    def broken() -> None:
        calls.append(1)
        raise ValueError

    retry = ", effect: read, retry: {attempts: 2, backoff: 0}, on_error: continue, for_each: [1]"
    run(f"  - {{id: a, type: tool.call, tool: t{retry}}}\n", {"t": broken})
    assert len(calls) == 2


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"


@pytest.mark.parametrize(
    "script",
    [
        "sleep 600 & echo $! > pid; wait",  # its child holds the pipe
        "sleep 600 >&- 2>&- & echo $! > pid; exec >&- 2>&-; wait",  # it has closed its output
        "setsid sleep 600 & echo $! > pid; wait",  # its child has left the group, with the pipe
    ],
)
@pytest.mark.parametrize("where", ["tool", "step"])
def test_a_commands_time_is_up_whatever_holds_its_output(
    run: Run, tmp_path: Path, script: str, where: str
) -> None:
    own, steps = (", timeout: 1", "") if where == "tool" else ("", ", timeout: 1")
    head = f'tools: [{{name: t, command: [sh, -c, "cd {tmp_path}; {script}"]{own}}}]\n'
    result = run(
        f"  - {{id: a, type: tool.call, tool: t{steps}}}\n",
        head=head,
        allow=AllowSettings(commands=["sh"]),
    )
    assert result.failure is not None
    assert result.failure.error_type == "CommandTimeout"
    pid = int((tmp_path / "pid").read_text())
    if "setsid" in script:
        os.kill(pid, 9)  # nobody can know of it
    else:
        while alive(pid):
            os.sched_yield()
