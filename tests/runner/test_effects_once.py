"""No effect happens twice: not by a retry, a fix or a resume, and what is done is never lost."""

import threading
from pathlib import Path
from typing import Any

import pytest

from em.errors import RoutineError, RunBusy, StoreError, UsageError
from em.log.event import EventQuery
from em.runner.engine import arun_routine, resume_run, run_routine
from em.runner.history import read_run
from em.runner.run import RunResult
from em.settings import AllowSettings
from em.store.protocol import Store
from em.store.sqlite import SqliteStore
from em.values.call import Fix

END = "  - {id: end, type: return, value: ok}\n"
KEY = "sk-ant-api03-" + "Ab1" * 10


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with SqliteStore(tmp_path / "em.db") as opened:
        yield opened


def routine(tmp_path: Path, steps: str, udf: str = "") -> Path:
    (tmp_path / "routine.yaml").write_text(f"name: r\nsteps:\n{steps}{END}")
    if udf:
        (tmp_path / "udf.py").write_text(udf)
    return tmp_path


def asked(result: RunResult) -> str:
    assert result.pending_prompt is not None, result
    return result.pending_prompt.step_id


def test_a_write_that_returned_is_not_made_again_by_a_fix(tmp_path: Path, store: Store) -> None:
    folder = routine(
        tmp_path,
        "  - {id: a, type: tool.call, tool: pay, args: {n: 5}, checks: {post: [result.ok]}}\n",
    )
    paid: list[int] = []
    fix = Fix(strategy="modify_args", args={"n": 6})
    tools = {"pay": lambda n: paid.append(n) or {"ok": False}}
    for kept in (None, store):
        paid.clear()
        failure = run_routine(folder, {}, tools, lambda _context: fix, store=kept).failure
        assert paid == [5]
        assert failure is not None
        assert "happened" in failure.context["fix"]


SLOW = "  - {id: a, type: tool.call, tool: pay, timeout: 0.05, retry: {attempts: 3, backoff: 0}"


@pytest.mark.parametrize("fix", [None, Fix(strategy="modify_args", args={})])
def test_a_write_that_takes_too_long_is_not_made_again_but_asked_about(
    tmp_path: Path, store: Store, fix: Fix | None
) -> None:
    folder = routine(tmp_path, SLOW + ", save_as: x}\n")
    paid: list[int] = []
    go_on = threading.Event()
    tools = {"pay": lambda: paid.append(1) or go_on.wait(20)}
    auto_fix = None if fix is None else lambda _context: fix
    plain = run_routine(folder, {}, tools, auto_fix)
    assert (plain.status, len(paid)) == ("failed", 1)
    waiting = run_routine(folder, {}, tools, auto_fix, store=store)
    assert (asked(waiting), len(paid)) == ("a?", 2)
    done = resume_run(store, waiting.run_id, tools, answers={"a?": {"happened": True}})
    assert (done.status, len(paid)) == ("ok", 2)
    go_on.set()


def test_a_slow_write_with_a_key_is_tried_again_with_the_same_key(tmp_path: Path) -> None:
    udf = "from itertools import count\nnext_key = count().__next__\n"
    folder = routine(tmp_path, SLOW + ', idempotency_key: "{{ next_key() }}"}\n', udf)
    keys: list[Any] = []
    go_on = threading.Event()

    def pay(idempotency_key: Any) -> None:
        keys.append(idempotency_key)
        if len(keys) < 3:
            go_on.wait(20)

    assert run_routine(folder, {}, {"pay": pay}).status == "ok"
    assert len(keys) == 3
    assert len(set(keys)) == 1
    go_on.set()


def test_a_resumed_step_has_the_key_that_was_announced(tmp_path: Path, store: Store) -> None:
    udf = "from uuid import uuid4\ndef new_key(): return str(uuid4())\n"
    step = '  - {id: a, type: tool.call, tool: pay, idempotency_key: "{{ new_key() }}"}\n'
    keys: list[str] = []

    def pay(idempotency_key: str) -> None:
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_routine(routine(tmp_path, step, udf), {}, {"pay": pay}, store=store, run_id="R")
    assert resume_run(store, "R", {"pay": pay}).status == "ok"
    assert keys[0] == keys[1]


ASK = "  - {id: ask, type: prompt.user, prompt: {message: m, fields: [{name: ok}]}}\n"


@pytest.mark.parametrize("saved", ["", ", save_as: x"])
def test_of_a_write_whose_result_was_redacted_only_the_result_is_asked(
    tmp_path: Path, store: Store, saved: str
) -> None:
    folder = routine(tmp_path, f"  - {{id: a, type: tool.call, tool: pay{saved}}}\n" + ASK)
    paid: list[int] = []
    tools = {"pay": lambda: paid.append(1) or {"key": KEY}}
    run_id = run_routine(folder, {}, tools, store=store).run_id
    result = resume_run(store, run_id, tools, answers={"ask": {"ok": "y"}})
    if saved:
        assert asked(result) == "a?"
        again = resume_run(store, run_id, tools, answers={"a?": {"happened": False}})
        assert again.pending_prompt is not None
        assert "has no field 'happened'" in again.pending_prompt.problem
        result = resume_run(store, run_id, tools, answers={"a?": {"result": 1}})
    assert (result.status, paid) == ("ok", [1])


@pytest.mark.parametrize("left", [["B", "C"], ["A"], ["A", "C", "B"]])
def test_a_list_that_came_out_differently_is_refused(
    tmp_path: Path, store: Store, left: list[str]
) -> None:
    folder = routine(
        tmp_path,
        "  - {id: l, type: tool.call, tool: orders, effect: read, save_as: l}\n"
        '  - {id: s, type: tool.call, tool: ship, for_each: "{{ l.orders }}", as: o,'
        ' args: {o: "{{ o }}"}}\n' + ASK,
    )
    world, shipped = ["A", "B", "C"], list[str]()
    tools = {
        "orders": lambda: {"orders": list(world), "api_key": KEY},
        "ship": lambda o: shipped.append(o) or o,
    }
    run_id = run_routine(folder, {}, tools, store=store).run_id
    world[:] = left
    with pytest.raises(RoutineError, match="the list has changed"):
        resume_run(store, run_id, tools, answers={"ask": {"ok": "y"}})
    assert read_run(store, run_id).status == "running", "it can go on when the list is back"
    world[:] = ["A", "B", "C"]
    assert resume_run(store, run_id, tools, answers={"ask": {"ok": "y"}}).status == "ok"
    assert sorted(shipped) == ["A", "B", "C"]


@pytest.mark.parametrize(
    "rest",
    [
        '  - {id: b, type: return, value: "{{ 1e308 * 10 }}"}\n',
        '  - {id: b, type: tool.call, tool: take, idempotency_key: "{{ 1e308 * 10 }}"}\n',
    ],
)
def test_what_cannot_be_written_fails_the_run_and_loses_nothing(
    tmp_path: Path, store: Store, rest: str
) -> None:
    folder = routine(tmp_path, "  - {id: a, type: tool.call, tool: act}\n" + rest)
    tools = {"act": lambda: 1, "take": lambda idempotency_key: 1}
    result = run_routine(folder, {}, tools, store=store)
    assert result.failure is not None
    assert "can't be stored" in result.failure.message
    past = read_run(store, result.run_id)
    assert (past.status, past.restored.results) == ("failed", {("a", None): 1})


@pytest.mark.parametrize("depth", [97, 98, 99, 100, 101])
def test_a_result_as_deep_as_an_event_can_be_is_kept_or_told(
    tmp_path: Path, store: Store, depth: int
) -> None:
    deep: Any = 1
    for _ in range(depth):
        deep = [deep]
    steps = "  - {id: a, type: tool.call, tool: act}\n  - {id: b, type: tool.call, tool: act}\n"
    result = run_routine(routine(tmp_path, steps), {}, {"act": lambda: deep}, store=store)
    assert result.status == ("ok" if depth <= 98 else "failed")


class Leaving(BaseException):
    """Neither an Exception nor Ctrl-C."""


@pytest.mark.parametrize("error", [StoreError("its own"), SystemExit(0), Leaving()])
@pytest.mark.parametrize("more", ["", ", timeout: 20", ", for_each: [1, 2]"])
def test_whatever_a_tool_raises_is_a_failure_of_its_step(
    tmp_path: Path, store: Store, error: BaseException, more: str
) -> None:
    import asyncio

    def act() -> None:
        raise error

    async def aact() -> None:
        raise error

    folder = routine(tmp_path, f"  - {{id: a, type: tool.call, tool: act{more}}}\n")
    for result in (
        run_routine(folder, {}, {"act": act}),
        run_routine(folder, {}, {"act": act}, store=store),
        asyncio.run(arun_routine(folder, {}, {"act": act}, store=store)),
        asyncio.run(arun_routine(folder, {}, {"act": aact}, store=store)),
    ):
        assert result.failure is not None
        assert result.failure.step_id == "a"


def test_a_second_resume_does_not_knock_out_a_worker_that_is_alive(
    tmp_path: Path, store: Store
) -> None:
    steps = "  - {id: a, type: tool.call, tool: act}\n  - {id: b, type: tool.call, tool: act}\n"
    folder = routine(tmp_path, steps)
    began, go_on = threading.Event(), threading.Event()
    results: list[RunResult] = []

    def act() -> None:
        began.set()
        go_on.wait(20)

    def work() -> None:
        results.append(run_routine(folder, {}, {"act": act}, store=store, run_id="R"))

    worker = threading.Thread(target=work)
    worker.start()
    assert began.wait(20)
    with SqliteStore(tmp_path / "em.db") as other, pytest.raises(RunBusy):
        resume_run(other, "R", {"act": act})
    go_on.set()
    worker.join()
    assert results[0].status == "ok"


def test_what_others_did_is_kept_while_a_failed_item_is_tried_again(
    tmp_path: Path, store: Store
) -> None:
    folder = routine(
        tmp_path,
        "  - {id: s, type: tool.call, tool: act, for_each: [1, 2, 3],"
        ' retry: {attempts: 2, backoff: 0}, args: {n: "{{ item }}"}}\n',
    )
    tries: list[int] = []

    def act(n: int) -> int:
        if n == 2:
            tries.append(n)
            raise ConnectionRefusedError if len(tries) == 1 else KeyboardInterrupt
        return n

    with pytest.raises(KeyboardInterrupt):
        run_routine(folder, {}, {"act": act}, store=store, run_id="R")
    assert read_run(store, "R").restored.results == {("s", 0): 1}
    assert asked(resume_run(store, "R", {"act": act})) == "s[1]?"


def test_a_run_goes_on_with_the_input_it_began_with(tmp_path: Path, store: Store) -> None:
    folder = routine(tmp_path, ASK)
    given = {"to": "alice", "note": f"use {KEY} today", "xs": [1, {"api_key": KEY}]}
    run_id = run_routine(folder, given, store=store).run_id
    for other in (
        {**given, "to": "mallory"},
        {**given, "note": f"use {KEY} tomorrow"},
        {**given, "xs": [2, {"api_key": KEY}]},
        {**given, "more": 1},
        {"to": "alice"},
    ):
        with pytest.raises(RoutineError, match="this input differs"):
            resume_run(store, run_id, input_data=other)
    answers = {"ask": {"ok": "y"}}
    assert resume_run(store, run_id, input_data=given, answers=answers).status == "ok"


NEEDY = """  - {id: a, type: tool.call, tool: act}
  - {id: ask, type: prompt.user, prompt: {message: m, fields: [{name: n, type: integer}]}}
  - {id: f, type: tool.call, tool: later}
"""


def test_what_is_missing_is_raised_before_anything_is_journalled(
    tmp_path: Path, store: Store
) -> None:
    folder = routine(tmp_path, NEEDY)
    tools = {"act": lambda: 1, "later": lambda: 2}
    with pytest.raises(RoutineError, match="no tool 'later'"):
        run_routine(folder, {}, {"act": lambda: 1}, store=store)
    assert list(store.read(EventQuery())) == []
    run_id = run_routine(folder, {}, tools, store=store).run_id
    answers = {"ask": {"n": 3}}
    with pytest.raises(RoutineError, match="no tool 'act'"):
        resume_run(store, run_id, answers=answers)
    assert resume_run(store, run_id, tools, answers=answers).status == "ok"


def test_a_wrong_answer_leaves_the_run_waiting(tmp_path: Path, store: Store) -> None:
    folder = routine(tmp_path, NEEDY)
    tools = {"act": lambda: 1, "later": lambda: 2}
    run_id = run_routine(folder, {}, tools, store=store).run_id
    for wrong, says in (
        ({"n": "many"}, "not a number"),
        ({"m": 3}, "has no field 'm'"),
        ({"n": float("inf")}, "can't be stored"),
    ):
        if says == "can't be stored":
            with pytest.raises(RoutineError, match=says):
                resume_run(store, run_id, tools, answers={"ask": wrong})
            continue
        told = resume_run(store, run_id, tools, answers={"ask": wrong}).pending_prompt
        assert told is not None
        assert says in told.problem
    with pytest.raises(UsageError, match="aks") as slip:
        resume_run(store, run_id, tools, answers={"aks": {"n": 3}})
    assert "'ask'" in slip.value.fix
    with pytest.raises(UsageError, match="fields with values"):
        resume_run(store, run_id, tools, answers={"ask": 3})
    assert resume_run(store, run_id, tools, answers={"ask": {"n": 3}}).status == "ok"


def test_a_declared_command_that_took_too_long_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(
        "name: slow\n"
        'tools: [{name: slow, command: [sleep, "5"], effect: write, timeout: 0.2}]\n'
        "steps:\n"
        "  - {id: a, type: tool.call, tool: slow, retry: {attempts: 3, backoff: 0.01}}\n"
    )
    allow = AllowSettings(commands=["sleep"])
    result = run_routine(tmp_path, {}, allow=allow)
    assert result.status == "failed"
    assert result.steps[-1].attempts == 1, "nobody knows whether it happened"
