"""A fix is advice: whatever a user's own function does, only its step may fail."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from em import Memory
from em.cli.root import run as em
from em.runner.engine import arun_routine, run_routine
from em.values.call import Fix

STEPS = """name: r
steps:
  - {id: a, type: tool.call, tool: broken, args: {n: 1}%s}
  - {id: b, type: return, value: end}
"""


def broken(n: Any) -> Any:
    if n == 2:
        return n
    raise ValueError(f"no {n}")


def raising(_context: Any) -> Fix:
    raise KeyError("strategy")


def leaving(_context: Any) -> Fix:
    raise SystemExit("bye")


NOT_A_FIX: list[Any] = [
    raising,
    leaving,
    lambda _context: None,
    lambda _context: {"strategy": "skip", "default": 3},
    lambda _context: "skip",
    lambda _context: Fix(strategy="maybe"),  # type: ignore[arg-type]  # a user may write anything
    lambda _context: Fix(strategy="modify_args", args=[1]),  # type: ignore[arg-type]  # the same
    lambda: Fix(strategy="skip"),
]


@pytest.mark.parametrize("fix", NOT_A_FIX)
@pytest.mark.parametrize("secret", [False, True])
def test_a_function_that_gives_no_fix_ends_the_step_as_failed(
    tmp_path: Path, fix: Any, secret: bool
) -> None:
    (tmp_path / "routine.yaml").write_text(STEPS % "")
    if secret:
        text = (STEPS % "").replace("steps:", "secrets: [{name: key}]\nsteps:")
        (tmp_path / "routine.yaml").write_text(text)
    given: Any = {"secrets": {"key": "hunter2-hunter2"}} if secret else {}
    with Memory(tmp_path / "em.db") as memory:
        results = [
            run_routine(tmp_path, {}, {"broken": broken}, fix, **given),
            asyncio.run(arun_routine(tmp_path, {}, {"broken": broken}, fix, **given)),
            memory.run(tmp_path, {}, {"broken": broken}, fix, **given),
        ]
    for result in results:
        assert result.status == "failed"
        assert result.failure is not None
        assert (result.failure.step_id, result.failure.message) == ("a", "no 1")
        assert "auto_fix_fn" in result.failure.context["fix"]
        assert [step.status for step in result.steps] == ["failed"]


@pytest.mark.parametrize("fix", NOT_A_FIX)
def test_on_error_applies_after_it(tmp_path: Path, fix: Any) -> None:
    (tmp_path / "routine.yaml").write_text(STEPS % ", on_error: continue")
    result = run_routine(tmp_path, {}, {"broken": broken}, fix)
    assert (result.status, result.output) == ("ok", "end")


def test_a_fix_may_hold_values_that_are_not_json(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(STEPS % "")
    odd = object()
    fix = Fix(strategy="skip", default=odd)
    result = run_routine(tmp_path, {}, {"broken": broken}, lambda _context: fix)
    assert result.status == "ok"
    assert result.steps[0].fix is not None


ASKS = """name: r
steps:
  - {id: a, type: tool.call, tool: broken, args: {n: 1}, effect: read}
  - {id: ok, type: prompt.user, save_as: said,
     prompt: {message: Go on?, fields: [{name: ok, type: confirm}]}}
  - {id: c, type: tool.call, tool: broken, args: {n: 3}, effect: read, on_error: continue}
  - {id: b, type: return, value: "{{ said.ok }}"}
"""


@pytest.mark.parametrize("options", [[], ["--no-journal"]])
def test_the_command_prints_a_fix_also_if_the_run_asked_for_approval(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
) -> None:
    def fixing(_private: Any) -> Any:
        def fix(context: Any) -> Fix:
            if context["args"] == {"n": 1}:
                return Fix(strategy="modify_args", args={"n": 2}, reason="2 works")
            return Fix(strategy="fail", reason="nothing to do")

        return fix

    monkeypatch.setattr("em.cli.run._auto_fix", fixing)
    (tmp_path / "routine.yaml").write_text(ASKS)
    (tmp_path / "tools.py").write_text(
        "def broken(n):\n"
        "    with open('calls', 'a') as file: file.write(f'{n} ')\n"
        "    if n == 2: return n\n"
        "    raise ValueError(f'no {n}')\n"
    )
    assert em(["run", ".", "--tools", "tools.py", "--auto-fix", "--yes", *options]) == 0
    out, err = capsys.readouterr()
    assert out.strip() == "true"
    assert err.count("fixed: step a:") == 1
    assert "2 works" in err
    assert Path("calls").read_text().split() == ["1", "2", "3"], "and nothing was made twice"


def test_a_resumed_run_reports_what_was_done_before_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(
        ASKS.replace("args: {n: 1}", "args: {n: 1}, on_error: continue")
    )
    with Memory(tmp_path / "em.db") as memory:
        waiting = memory.run(tmp_path, {}, {"broken": broken})
        assert [step.status for step in waiting.steps] == ["defaulted"]
        done = memory.resume(waiting.run_id, {"broken": broken}, answers={"ok": {"ok": True}})
    assert [(step.id, step.status, step.error) for step in done.steps][:1] == [
        ("a", "defaulted", "no 1")
    ]


CHECKED = """name: refund
checks: hand_over
tools: [{name: refund, effect: write}]
steps:
  - {id: refund, type: tool.call, tool: refund, args: {order: "#W1", amount: 5}}
"""


@pytest.mark.parametrize(
    ("args", "made"),
    [({"order": "#W1", "amount": 1}, 1), ({"order_id": "#W1", "amount": 5}, 2)],
)
def test_a_fix_may_rename_the_arguments_of_a_checked_write_but_not_change_its_values(
    tmp_path: Path, args: Any, made: int
) -> None:
    (tmp_path / "routine.yaml").write_text(CHECKED)
    calls: list[Any] = []

    def refund(**given: Any) -> Any:
        calls.append(given)
        if "order" in given:
            raise ValueError("unexpected argument 'order'")
        return "done"

    fix = Fix(strategy="modify_args", args=args)
    result = run_routine(tmp_path, {}, {"refund": refund}, lambda _context: fix)
    assert (result.status, len(calls)) == ("ok" if made == 2 else "failed", made)
