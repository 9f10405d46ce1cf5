"""Routines that a memory keeps: compiled from traces, run by name, never overwritten."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import AsyncMemory, Memory
from em.errors import NotFound, RoutineError, UsageError
from em.llm import ScriptedClient
from em.log.event import EventQuery
from em.runner.package import files_in, keep_routine
from em.runner.routine import ToolStep
from em.traces.trace import Mission, Outcome, ToolCall, Trace


def attempt(user: str, *tools: str, outcome: Outcome = "success") -> Trace:
    found = {"id": f"U-{user}", "name": user}
    calls = [
        ToolCall(tool="find_user", args={"name": user}, result=found),
        *(ToolCall(tool=tool, args={"user_id": found["id"]}, result="done") for tool in tools),
    ]
    mission = Mission("Close the account", {"name": user})
    return Trace(mission=mission, events=calls, outcome=outcome, final_output="done")


def tools(done: list[str]) -> dict[str, Any]:
    return {
        "find_user": lambda name: {"id": f"U-{name}", "name": name},
        "close_account": lambda user_id: done.append(user_id) or "done",
        "send_mail": lambda user_id: done.append(f"mail {user_id}") or "done",
    }


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def test_a_trace_of_the_log_becomes_a_routine_that_runs_by_its_name(memory: Memory) -> None:
    routine = memory.compile(memory.add_trace(attempt("anabel", "close_account")))
    assert (routine.name, routine.ref) == ("close_account", "close_account@1")
    done: list[str] = []
    for which in (routine, "close_account", "close_account@1"):
        result = memory.run(which, {"name": "bo"}, tools(done))
        assert (result.failure, result.output) == (None, "done")
    assert done == ["U-bo"] * 3


def test_the_same_again_is_the_same_version_and_another_is_a_new_one(memory: Memory) -> None:
    first = memory.add_trace(attempt("anabel", "close_account"))
    assert memory.compile(first).ref == memory.compile([first]).ref
    second = memory.add_trace(attempt("anabel", "close_account", "send_mail"))
    assert memory.compile(second, name="close_account").ref == "close_account@2"
    done: list[str] = []
    memory.run("close_account@1", {"name": "bo"}, tools(done))
    assert done == ["U-bo"], "the old version still does what it did"


def test_of_several_attempts_those_that_failed_are_left_out(memory: Memory) -> None:
    ids = [
        memory.add_trace(attempt("anabel", "send_mail", outcome="failure")),
        memory.add_trace(attempt("carlos", "close_account")),
        memory.add_trace(attempt("emilia", "close_account")),
    ]
    other = memory.add_trace(attempt("dagmar", "send_mail"))
    with pytest.raises(RoutineError):
        memory.compile([*ids, other])
    routine = memory.compile(ids)
    called = [step.tool for step in routine.steps if isinstance(step, ToolStep)]
    assert called == ["find_user", "close_account"]
    same = [kept for kept in memory.traces() if kept.id in ids[1:]]
    assert sorted(routine.from_events) == sorted(e for kept in same for e in kept.event_ids)


def test_forgetting_what_it_was_made_of_forgets_the_routine(memory: Memory) -> None:
    trace_id = memory.add_trace(attempt("anabel", "close_account"))
    memory.compile(trace_id)
    memory.forget(list(memory.traces()[0].event_ids))
    with pytest.raises(NotFound):
        memory.run("close_account", {"name": "bo"}, tools([]))
    with pytest.raises(NotFound):
        memory.compile(trace_id)
    assert b"U-anabel" not in Path(memory.store.location).read_bytes()


@pytest.mark.parametrize("ref", ["nope", "close_account@9", "close_account@x"])
def test_a_routine_that_is_not_kept_is_told(memory: Memory, ref: str) -> None:
    memory.compile(memory.add_trace(attempt("anabel", "close_account")))
    with pytest.raises((NotFound, UsageError)) as caught:
        memory.run(ref, {})
    assert "close_account" in str(caught.value)


def test_a_kept_routine_waits_and_goes_on(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "routine.yaml").write_text(
        "name: ask\nsteps:\n"
        "  - {id: a, type: prompt.user, save_as: x,"
        " prompt: {message: Sure?, fields: [{name: ok}]}}\n"
        '  - {id: b, type: return, value: "{{ x.ok }}"}\n'
    )
    keep_routine(memory.store, files_in(tmp_path / "r"))
    waiting = memory.run("ask")
    assert waiting.status == "needs_input"
    assert memory.resume(waiting.run_id, answers={"a": {"ok": "yes"}}).output == "yes"


def test_the_same_for_asyncio(tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncMemory(tmp_path / "em.db") as memory:
            trace_id = await memory.add_trace(attempt("anabel", "close_account"))
            routine = await memory.compile(trace_id)
            assert (await memory.run(routine, {"name": "bo"}, tools([]))).output == "done"

    asyncio.run(work())


def test_what_a_model_wrote_is_marked_in_the_log(memory: Memory) -> None:
    trace_id = memory.add_trace(attempt("anabel", "close_account"))
    answer = {
        "routine_yaml": "name: close\n"
        "tools: [{name: find_user, effect: read}, {name: close_account, effect: write}]\n"
        "input_schema: {type: object, properties: {name: {type: string}}}\n"
        "output_schema: {}\n"
        "steps:\n"
        '  - {id: a, type: tool.call, tool: find_user, args: {name: "{{ name }}"}, save_as: u}\n'
        "  - {id: same, type: assert, check: u.name == name}\n"
        '  - {id: b, type: udf.call, function: id_of, args: {user: "{{ u }}"}, save_as: i}\n'
        "  - {id: c, type: tool.call, tool: close_account, save_as: d,"
        ' args: {user_id: "{{ i }}"}}\n'
        '  - {id: e, type: return, value: "{{ d }}"}\n',
        "udf_py": "def id_of(user):\n    return user['id']\n",
        "notes": "",
    }
    routine = memory.compile(trace_id, client=ScriptedClient([answer]))
    assert routine.name == "close_account", "what it is called is not the model's to say"
    (written,) = memory.store.read(EventQuery(kinds=["code_written"]))
    assert written.body is not None
    assert written.body["model"] == "scripted/scripted"
    done: list[str] = []
    assert memory.run(routine, {"name": "bo"}, tools(done)).output == "done"
    assert done == ["U-bo"]
