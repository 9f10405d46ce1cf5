"""A call that returns something else than it must stops the run, and is not repeated."""

from pathlib import Path
from typing import Any

import pytest

from em.errors import RoutineError
from em.runner.engine import resume_run, run_routine
from em.runner.history import read_run
from em.runner.package import Package
from em.runner.preparation import prepare_routine
from em.runner.run import RunResult, UnexpectedResult
from em.store.sqlite import SqliteStore
from em.values.call import Fix

ROUTINE = """
version: "1"
name: refund
tools:
  - {name: refund, effect: write}
  - {name: notify, effect: write}
steps:
  - id: refund
    type: tool.call
    tool: refund
    args: {order: "{{ order }}"}
    save_as: refunded
    retry: {attempts: 3, backoff: 0}
    expect:
      type: object
      required: [id, status, ok]
      properties:
        error: {type: "null"}
        ok: {const: true}
        status: {const: done}
  - {id: notify, type: tool.call, tool: notify, args: {order: "{{ order }}"}}
  - {id: return, type: return, value: "{{ refunded.id }}"}
"""
GOOD = {"id": "R-77", "ok": True, "status": "done"}
BAD = [
    {**GOOD, "ok": False},
    {**GOOD, "status": "rejected"},
    {**GOOD, "error": "card expired"},
    {"error": "order not found"},
    {"ok": True, "status": "done"},
    "Error: order not found",
    [],
    None,
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "routine.yaml").write_text(ROUTINE)
    return tmp_path


class Shop:
    def __init__(self, result: Any) -> None:
        self.result = result
        self.calls: list[str] = []

    def run(self, folder: Path, **options: Any) -> RunResult:
        return run_routine(folder, {"order": "#W1001"}, self.tools(), **options)

    def tools(self) -> dict[str, Any]:
        def refund(order: str) -> Any:
            self.calls.append(f"refund {order}")
            return self.result

        return {"refund": refund, "notify": lambda order: self.calls.append(f"notify {order}")}


def test_a_result_as_expected_runs_on(folder: Path) -> None:
    shop = Shop(GOOD)
    assert shop.run(folder).output == "R-77"
    assert shop.calls == ["refund #W1001", "notify #W1001"]


@pytest.mark.parametrize("result", BAD)
def test_an_unexpected_result_stops_the_run_before_the_next_effect(
    folder: Path, result: Any
) -> None:
    shop = Shop(result)
    ended = shop.run(folder)
    assert (ended.status, shop.calls) == ("failed", ["refund #W1001"]), "and it is not retried"
    assert ended.failure is not None
    assert ended.failure.error_type == UnexpectedResult.__name__
    assert UnexpectedResult.code == "unexpected_result"
    assert ended.steps[-1].status == "failed"


def test_the_failure_says_what_was_done_what_came_back_and_what_was_expected(folder: Path) -> None:
    ended = Shop({**GOOD, "status": "waiting"}).run(folder)
    assert ended.failure is not None
    context = ended.failure.context
    assert context["result"] == {**GOOD, "status": "waiting"}
    assert (context["check"], context["recorded"]) == ("refunded.status", {"const": "done"})
    assert (context["now"], context["done"]) == ("waiting", ["refund"])


@pytest.mark.parametrize("on_error", ["continue", "{default: {id: none}}"])
def test_on_error_is_for_calls_that_failed_not_for_what_they_returned(
    folder: Path, on_error: str
) -> None:
    text = ROUTINE.replace(
        "    save_as: refunded", f"    save_as: refunded\n    on_error: {on_error}"
    )
    (folder / "routine.yaml").write_text(text)
    shop = Shop({"ok": False})
    assert (shop.run(folder).status, shop.calls) == ("failed", ["refund #W1001"])


@pytest.mark.parametrize("strategy", ["skip", "modify_args"])
def test_no_fix_is_asked_for_a_call_that_was_made(folder: Path, strategy: Any) -> None:
    shop = Shop({"ok": False})
    fix = Fix(strategy=strategy, args={"order": "#W1001"}, default=GOOD)
    assert shop.run(folder, auto_fix_fn=lambda _context: fix).status == "failed"
    assert shop.calls == ["refund #W1001"]


def test_the_journal_has_the_call_as_made_and_a_resume_does_not_make_it_again(
    folder: Path, tmp_path: Path
) -> None:
    shop = Shop({**GOOD, "ok": False})
    with SqliteStore(tmp_path / "em.db") as store:
        ended = shop.run(folder, store=store)
        past = read_run(store, ended.run_id)
        assert past.status == "failed"
        (step,) = past.timeline
        assert (step.step, step.status, step.result) == ("refund", "failed", {**GOOD, "ok": False})
        with pytest.raises(RoutineError, match="this run is over"):
            resume_run(store, ended.run_id, shop.tools())
    assert shop.calls == ["refund #W1001"]


def test_what_a_person_says_about_an_interrupted_call_is_looked_at_as_well(
    folder: Path, tmp_path: Path
) -> None:
    shop = Shop(GOOD)

    def interrupted(order: str) -> Any:
        shop.calls.append(f"refund {order}")
        raise TimeoutError

    with SqliteStore(tmp_path / "em.db") as store:
        tools = {**shop.tools(), "refund": interrupted}
        asked = run_routine(folder, {"order": "#W1001"}, tools, store=store)
        assert asked.pending_prompt is not None
        question = asked.pending_prompt.step_id
        answers = {question: {"happened": True, "result": {"ok": False}}}
        ended = resume_run(store, asked.run_id, tools, answers=answers)
    assert ended.failure is not None
    assert ended.failure.error_type == UnexpectedResult.__name__
    assert shop.calls == ["refund #W1001"]


def test_each_item_of_a_for_each_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text("""
version: "1"
name: all
tools: [{name: pay, effect: write}, {name: notify, effect: write}]
steps:
  - {id: pay, type: tool.call, tool: pay, args: {n: "{{ item }}"}, for_each: [1, 2, 3],
     expect: {properties: {ok: {const: true}}}}
  - {id: notify, type: tool.call, tool: notify}
""")
    told: list[int] = []
    tools = {"pay": lambda n: {"ok": n != 2}, "notify": lambda: told.append(1)}
    with SqliteStore(tmp_path / "em.db") as store:
        ended = run_routine(tmp_path, {}, tools, store=store)
        steps = {one.item: one.status for one in read_run(store, ended.run_id).timeline}
    assert (ended.status, told) == ("failed", [])
    assert steps == {0: "done", 1: "failed"}


def test_a_dry_run_shows_what_a_call_must_return(folder: Path) -> None:
    shop = Shop(GOOD)
    planned = prepare_routine(folder, {"order": "#W1001"}, shop.tools()).planned
    assert shop.calls == []
    assert '`refunded.status` is "done"' in planned[0].expects


def test_a_step_that_calls_nothing_expects_nothing(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(
        'version: "1"\nname: x\nsteps:\n'
        '  - {id: a, type: assert, check: "true", expect: {const: 1}}\n'
    )
    with pytest.raises(RoutineError, match="can't have `expect`"):
        Package(tmp_path).program  # noqa: B018 - it is compiled when it is looked at
