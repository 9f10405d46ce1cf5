"""A run is cancelled before its next step, and taken up again only where nothing is done twice."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from em import AsyncMemory, Memory
from em.errors import Cancelled, Conflict, RoutineError, UsageError
from em.runner.engine import resume_run, run_routine
from em.runner.history import cancel_run, find_runs, read_run, retry_problem
from em.runner.run import RunResult
from em.store.protocol import Store
from em.store.sqlite import SqliteStore

ASK = "  - {id: ask, type: prompt.user, prompt: {message: Go on?, fields: [{name: ok}]}}\n"
YES = {"ask": {"ok": "yes"}}


def step(name: str, more: str = "") -> str:
    return f"  - {{id: {name}, type: tool.call, tool: {name}, save_as: {name}{more}}}\n"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with SqliteStore(tmp_path / "em.db") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def routine(folder: Path, *steps: str) -> Path:
    (folder / "routine.yaml").write_text("name: r\nsteps:\n" + "".join(steps))
    return folder


def listed(store: Store) -> tuple[str, str]:
    """The status of the one run, in the list and by its journal."""
    (one,) = find_runs(store).runs
    return one.status, read_run(store, one.run_id).status


class Tools:
    """Tools that note what they did; `pay` fails with the errors it is given, one after another."""

    def __init__(self, *errors: Exception) -> None:
        self.done: list[str] = []
        self.errors = [*errors]
        self.keys: list[str] = []
        self.world = {"order": "open"}

    def look(self) -> str:
        self.done.append("look")
        return self.world["order"]

    def note(self) -> int:
        self.done.append("note")
        return len(self.done)

    def pay(self, idempotency_key: str = "") -> str:
        self.keys.append(idempotency_key)
        if self.errors:
            raise self.errors.pop(0)
        self.done.append("pay")
        return "paid"

    @property
    def functions(self) -> dict[str, Any]:
        return {"look": self.look, "note": self.note, "pay": self.pay}


def test_a_run_that_was_answered_is_running_until_it_ends(folder: Path, store: Store) -> None:
    tools = Tools()
    seen: list[tuple[str, str]] = []
    tools.look = lambda: seen.append(listed(store)) or "seen"  # type: ignore[func-returns-value, method-assign]
    steps = (ASK, step("note"), step("look", ", effect: read"))
    run_id = run_routine(routine(folder, *steps), {}, tools.functions, store=store).run_id
    assert listed(store) == ("needs_input", "needs_input")
    assert resume_run(store, run_id, tools.functions, answers=YES).status == "ok"
    assert seen == [("running", "running")]
    assert listed(store) == ("ok", "ok")


def test_a_cancelled_run_stops_before_its_next_step_and_keeps_what_it_did(
    folder: Path, store: Store
) -> None:
    tools = Tools()
    tools.note = lambda: cancel_run(store, "r1", by="ana") and "noted"  # type: ignore[method-assign]
    with pytest.raises(Cancelled, match="this run was cancelled by ana") as stopped:
        run_routine(
            routine(folder, step("note"), step("pay")),
            {},
            tools.functions,
            store=store,
            run_id="r1",
        )
    assert isinstance(stopped.value, Conflict)
    assert tools.done == []
    past = read_run(store, "r1")
    assert [(one.step, one.result) for one in past.timeline] == [("note", "noted")]
    assert (past.cancelled, past.is_over, past.ended is not None) == ({"by": "ana"}, True, True)
    assert listed(store) == ("cancelled", "cancelled")
    store.summaries.rebuild()
    assert listed(store) == ("cancelled", "cancelled")
    with pytest.raises(RoutineError, match="this run is over: cancelled by ana"):
        resume_run(store, "r1", tools.functions)
    with pytest.raises(UsageError, match="the run is over: cancelled"):
        cancel_run(store, "r1", by="bo")
    assert resume_run(store, "r1", tools.functions, retry=True, by="bo").status == "ok"
    assert tools.done == ["pay"], "what was done is not done again"
    assert listed(store) == ("ok", "ok")


def test_a_waiting_run_is_cancelled_and_no_answer_wakes_it(folder: Path) -> None:
    tools = Tools()
    with Memory(folder / "em.db") as memory:
        waiting = memory.run(routine(folder, ASK, step("pay")), {}, tools.functions)
        memory.cancel(waiting.run_id, by="ana")
        assert listed(memory.store) == ("cancelled", "cancelled")
        with pytest.raises(RoutineError, match="over: cancelled"):
            memory.resume(waiting.run_id, tools.functions, answers=YES)
        (event,) = memory.log.read(kinds="run_cancelled")
        assert event.body == {"by": "ana"}
        assert memory.log.verify().ok
    assert tools.done == []


def test_a_cancelled_task_stops_its_run_before_the_next_write(folder: Path) -> None:
    """The run is in a thread, which goes on when the task that waits for it is cancelled."""
    tools = Tools()
    looking, looked = threading.Event(), threading.Event()

    def look() -> str:
        looking.set()
        looked.wait(10)
        return "seen"

    tools.look = look  # type: ignore[method-assign]
    pays = routine(folder, step("look", ", effect: read"), step("pay"))
    memory = AsyncMemory(folder / "em.db")

    async def cancel() -> None:
        task = asyncio.create_task(memory.run(pays, {}, tools.functions, run_id="r1"))
        await asyncio.to_thread(looking.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        looked.set()

    asyncio.run(cancel())  # it waits for its threads
    assert tools.done == []
    assert asyncio.run(memory.resume("r1", tools.functions)).status == "ok"
    assert tools.done == ["pay"]
    asyncio.run(memory.close())


def failed(folder: Path, store: Store, tools: Tools, *steps: str) -> RunResult:
    result = run_routine(routine(folder, *steps), {}, tools.functions, store=store)
    assert result.status == "failed"
    return result


def test_a_failed_step_that_had_no_effect_is_done_once_more(folder: Path, store: Store) -> None:
    tools = Tools(ConnectionRefusedError("nobody listens"))
    run_id = failed(folder, store, tools, step("note"), step("pay")).run_id
    with pytest.raises(RoutineError, match="this run is over: failed"):
        resume_run(store, run_id, tools.functions)
    assert resume_run(store, run_id, tools.functions, retry=True, by="ana").status == "ok"
    assert tools.done == ["note", "pay"], "each once"
    assert listed(store) == ("ok", "ok")
    with pytest.raises(RoutineError, match="can't be retried: it has neither failed nor"):
        resume_run(store, run_id, tools.functions, retry=True)


def test_a_failed_step_with_a_key_is_done_again_with_the_same_key(
    folder: Path, store: Store
) -> None:
    tools = Tools(ValueError("odd"))
    keyed = step("pay", ', idempotency_key: "{{ note }}"')
    run_id = failed(folder, store, tools, step("note"), keyed).run_id
    assert resume_run(store, run_id, tools.functions, retry=True).status == "ok"
    assert tools.keys == [1, 1]
    assert tools.done == ["note", "pay"]


@pytest.mark.parametrize(
    ("error", "more"),
    [
        (ValueError("odd"), ""),
        # One of its attempts may have come through, although the last one did not.
        (ValueError("odd"), ", retry: {attempts: 2, backoff: 0}"),
    ],
)
def test_a_step_that_may_have_happened_is_not_done_again(
    folder: Path, store: Store, error: Exception, more: str
) -> None:
    tools = Tools(error, ConnectionRefusedError("nobody listens"))
    run_id = failed(folder, store, tools, step("note"), step("pay", more)).run_id
    problem = retry_problem(read_run(store, run_id))
    assert problem == "pay may have happened, has no idempotency key, and must not be done twice"
    with pytest.raises(RoutineError, match="pay may have happened"):
        resume_run(store, run_id, tools.functions, retry=True)
    assert tools.done == ["note"]
    assert listed(store) == ("failed", "failed")


def test_before_the_first_effect_a_retry_reads_the_world_anew(folder: Path, store: Store) -> None:
    tools = Tools()
    open_ = "  - {id: is_open, type: assert, check: look == 'open', message: it is closed}\n"
    tools.world["order"] = "closed"
    look = step("look", ", effect: read")
    run_id = failed(folder, store, tools, look, open_, step("pay")).run_id
    tools.world["order"] = "open"
    assert resume_run(store, run_id, tools.functions, retry=True).status == "ok"
    assert tools.done == ["look", "look", "pay"]


def test_what_can_not_be_retried_says_why(folder: Path, store: Store) -> None:
    def problem(*steps: str, **given: Any) -> str:
        tools = Tools()
        result = run_routine(routine(folder, *steps), given, tools.functions, store=store)
        return retry_problem(read_run(store, result.run_id))

    late = '  - {id: end, type: return, value: "{{ nothing }}"}\n'
    assert "only the output is missing" in problem(step("pay"), late)
    odd = step("pay", ", expect: {const: 1}")
    assert "pay was made and returned something unexpected" in problem(odd, step("note"))
    assert "it has neither failed nor been cancelled: needs_input" in problem(ASK)
