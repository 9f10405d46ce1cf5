"""A run that did everything and has no output says so: it must not be run again."""

from pathlib import Path
from typing import Any

import pytest
from tests.cli.em_command import em

from em.errors import RoutineError
from em.runner.engine import resume_run, run_routine
from em.runner.history import read_run
from em.runner.run import OutputMissing, RunResult
from em.store.sqlite import SqliteStore

HEAD = """
version: "1"
name: refund
tools: [{name: look, effect: read}, {name: refund, effect: write}, {name: notify, effect: write}]
"""
STEPS = """
steps:
  - {id: look, type: tool.call, tool: look, save_as: seen}
  - {id: refund, type: tool.call, tool: refund, save_as: refunded}
  - {id: notify, type: tool.call, tool: notify}
"""
RETURN = '  - {id: end, type: return, value: "{{ refunded.id }}"}\n'
SCHEMA = "output_schema: {type: string}"


def run(folder: Path, text: str, **options: Any) -> RunResult:
    (folder / "routine.yaml").write_text(text)
    tools = {"look": lambda: {}, "refund": lambda: {"no": 7}, "notify": lambda: 1}
    return run_routine(folder, {}, tools, **options)


@pytest.mark.parametrize(
    ("text", "step"),
    [
        (HEAD + STEPS + RETURN, "end"),
        (HEAD + SCHEMA + STEPS + RETURN.replace("refunded.id", "refunded.no"), ""),
        (HEAD + SCHEMA + STEPS, ""),
    ],
)
@pytest.mark.parametrize("journalled", [False, True])
def test_the_failure_says_that_all_was_done_and_only_the_output_is_missing(
    tmp_path: Path, text: str, step: str, journalled: bool
) -> None:
    with SqliteStore(tmp_path / "em.db") as store:
        result = run(tmp_path, text, **({"store": store} if journalled else {}))
        failure = result.failure
        assert result.status == "failed"
        assert failure is not None
        assert (failure.step_id, failure.error_type) == (step, OutputMissing.__name__)
        assert OutputMissing.code == "output_missing"
        assert "all 2 steps with an effect were done (refund, notify)" in failure.message
        assert "don't run it again" in failure.message
        assert failure.context["done"] == ["refund", "notify"]
        if journalled:
            assert read_run(store, result.run_id).failure["context"]["done"] == ["refund", "notify"]  # type: ignore[index]  # it failed
            with pytest.raises(RoutineError, match="this run is over") as refused:
                resume_run(store, result.run_id)
            assert "refund, notify" in refused.value.fix


def test_without_an_effect_it_is_a_plain_failure(tmp_path: Path) -> None:
    text = HEAD.replace("write", "read") + STEPS + RETURN
    failure = run(tmp_path, text).failure
    assert failure is not None
    assert failure.error_type == "ExpressionError"
    assert "done" not in failure.context


def test_a_step_that_fails_later_says_what_was_done_before(tmp_path: Path) -> None:
    check = '  - {id: check, type: assert, check: "refunded.no == 8", message: not eight}\n'
    failure = run(tmp_path, HEAD + STEPS + check + RETURN).failure
    assert failure is not None
    assert (failure.step_id, failure.error_type) == ("check", "CheckFailed")
    assert failure.context["done"] == ["refund", "notify"]


def test_the_command_says_so(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        "def look():\n    return {}\n"
        "def refund():\n    return {'no': 7}\n"
        "def notify():\n    return 1\n"
    )
    (tmp_path / "routine.yaml").write_text(HEAD + STEPS + RETURN)
    ended = em("run", ".", "--tools", "tools.py")
    assert ended.code == 1
    assert "all 2 steps with an effect were done (refund, notify)" in ended.err
    assert "don't run it again" in ended.err
    check = '  - {id: check, type: assert, check: "refunded.no == 8", message: not eight}\n'
    (tmp_path / "routine.yaml").write_text(HEAD + STEPS + check)
    failed = em("run", ".", "--tools", "tools.py")
    assert "done before, and not undone: refund, notify" in failed.err
