"""A script has no journal: it asks before it acts, and says what was done when it stops."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_export_python import load

from em.compiler.export.agent_tools import export_openai, export_skill
from em.compiler.export.script import export_python
from em.runner.package import Package

ROUTINE = """
version: "1"
name: refund
tools:
  - {name: look, effect: read}
  - {name: refund, effect: write}
  - {name: notify, effect: write}
steps:
  - {id: look, type: tool.call, tool: look, save_as: order}
  - id: sure
    type: prompt.user
    prompt: {message: "Refund {{ order.total }}?", fields: [{name: ok, type: confirm}]}
  - {id: refund, type: tool.call, tool: refund, save_as: refunded}
  - id: tell
    type: prompt.user
    prompt: {message: "Tell {{ refunded.name }}?", fields: [{name: ok, type: confirm}]}
    save_as: tell
  - {id: notify, type: tool.call, tool: notify, args: {ok: "{{ tell.ok }}"}}
  - {id: end, type: return, value: "{{ refunded.id }}"}
"""
SURE, TELL = {"sure": {"ok": True}}, {"tell": {"ok": True}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "routine.yaml").write_text(ROUTINE)
    return tmp_path


class Shop:
    def __init__(self, **returns: Any) -> None:
        self.done: list[str] = []
        self._returns = {"refund": {"id": 7, "name": "Ana"}, **returns}

    @property
    def tools(self) -> dict[str, Any]:
        def write(name: str) -> Any:
            def call(**_: Any) -> Any:
                self.done.append(name)
                result = self._returns.get(name)
                if isinstance(result, Exception):
                    raise result
                return result

            return call

        return {"look": lambda: {"total": 5}, "refund": write("refund"), "notify": write("notify")}


def test_what_would_be_asked_after_an_effect_must_be_answered_before_anything_is_done(
    folder: Path,
) -> None:
    module, shop = load(folder), Shop()
    with pytest.raises(module["NeedsInput"]) as asked:
        module["run"]({}, shop.tools, SURE)
    assert (asked.value.step_id, shop.done) == ("tell", [])
    assert "after a call with an effect" in str(asked.value)
    with pytest.raises(module["NeedsInput"]) as wrong:
        module["run"]({}, shop.tools, {**SURE, "tell": {"ok": "perhaps"}})
    assert (wrong.value.step_id, shop.done) == ("tell", [])
    with pytest.raises(module["NeedsInput"]) as before:
        module["run"]({}, shop.tools, TELL)
    assert (before.value.step_id, before.value.message) == ("sure", "Refund 5?"), "asked as it is"
    assert module["run"]({}, shop.tools, {**SURE, **TELL}) == 7
    assert shop.done == ["refund", "notify"]


@pytest.mark.parametrize(
    ("returns", "step", "made"),
    [
        ({"notify": ValueError("no")}, "notify", ["refund"]),
        ({"refund": {"name": "Ana"}}, "end", ["refund", "notify"]),
        ({"refund": ValueError("no")}, "refund", []),
    ],
)
def test_a_failure_says_which_effects_came_before_it(
    folder: Path, returns: Any, step: str, made: list[str]
) -> None:
    module, shop = load(folder), Shop(**returns)
    with pytest.raises(module["Failed"]) as failed:
        module["run"]({}, shop.tools, {**SURE, **TELL})
    assert (failed.value.step_id, list(failed.value.made)) == (step, made)
    assert ("don't start it again" in str(failed.value)) == bool(made)
    assert all(name in str(failed.value) for name in made)


def test_the_command_refuses_before_it_acts(folder: Path) -> None:
    (folder / "script.py").write_text(export_python(Package(folder)))
    (folder / "tools.py").write_text(
        "def look(): return {'total': 5}\n"
        "def refund():\n    open('paid', 'a').write('x')\n    return {'id': 7, 'name': 'Ana'}\n"
        "def notify(ok): return 1\n"
    )
    (folder / "a.json").write_text(json.dumps(SURE))
    run = [sys.executable, "script.py", "--tools", "tools.py", "--answers", "a.json"]
    ended = subprocess.run(run, cwd=folder, capture_output=True, text=True, check=False, stdin=-3)
    assert ended.returncode == 1
    assert "step tell" in ended.stderr
    assert not (folder / "paid").exists()


def test_agents_and_skills_are_told(folder: Path) -> None:
    module: dict[str, Any] = {"__name__": "script"}
    exec(compile(export_openai(Package(folder)), "script.py", "exec"), module)
    shop = Shop(notify=ValueError("no"))
    said = json.loads(module["handle"]("{}", shop.tools, {**SURE, **TELL}))
    assert "refund" in said["error"]
    assert "don't start it again" in said["error"]
    assert "don't run it again" in export_skill(Package(folder))["SKILL.md"]
