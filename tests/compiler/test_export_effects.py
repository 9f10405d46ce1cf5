"""A script has no journal: it says what was done when it stops, and asks nobody."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_export_python import load

from em.compiler.export.agent_tools import export_openai, export_skill
from em.compiler.export.script import export_python
from em.errors import ExportError
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
  - {id: refund, type: tool.call, tool: refund, save_as: refunded}
  - {id: notify, type: tool.call, tool: notify, args: {to: "{{ refunded.name }}"}}
  - {id: end, type: return, value: "{{ refunded.id }}"}
"""


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
        module["run"]({}, shop.tools)
    assert (failed.value.step_id, list(failed.value.made)) == (step, made)
    assert ("don't start it again" in str(failed.value)) == bool(made)
    assert all(name in str(failed.value) for name in made)


def test_agents_and_skills_are_told(folder: Path) -> None:
    module: dict[str, Any] = {"__name__": "script"}
    exec(compile(export_openai(Package(folder)), "script.py", "exec"), module)
    shop = Shop(notify=ValueError("no"))
    said = json.loads(module["handle"]("{}", shop.tools))
    assert "refund" in said["error"]
    assert "don't start it again" in said["error"]
    assert "don't run it again" in export_skill(Package(folder))["SKILL.md"]


def test_a_routine_that_asks_a_person_is_not_exported(folder: Path) -> None:
    asks = "  - {id: sure, type: prompt.user, prompt: {message: Sure?, fields: [{name: ok}]}}\n"
    text = (folder / "routine.yaml").read_text()
    (folder / "routine.yaml").write_text(text.replace("steps:\n", f"steps:\n{asks}"))
    with pytest.raises(ExportError) as refused:
        export_python(Package(folder))
    assert refused.value.place == "step sure"
