"""EM_ROUTINES: one switch stops all routines, through every door."""

from pathlib import Path

import pytest
from tests.cli.em_command import em

from em import Memory
from em.runner.engine import run_routine
from em.runner.package import keep_routine
from em.runner.preparation import prepare_routine
from em.runner.standing import RoutinesOff, routines_mode
from em.settings import Settings

TEXT = """
version: "1"
name: greet
tools: [{name: send, effect: write}]
steps:
  - {id: sent, type: tool.call, tool: send, args: {to: ana}, save_as: sent}
"""


@pytest.fixture
def sent() -> list[str]:
    return []


@pytest.mark.parametrize("mode", ["off", "shadow"])
def test_python_runs_no_routine(tmp_path: Path, sent: list[str], mode: str) -> None:
    settings = Settings(routines=mode)  # type: ignore[arg-type]  # one of its words
    with Memory(tmp_path / "em.db", settings=settings) as memory:
        keep_routine(memory.store, {"routine.yaml": TEXT})
        with pytest.raises(RoutinesOff) as refused:
            memory.run("greet", {}, {"send": sent.append})
        assert (refused.value.code, refused.value.place) == ("routines_off", "greet")
        assert not list(memory.log.read(kinds="run_started"))
    assert sent == []


def test_a_dry_run_is_made_in_shadow_only(tmp_path: Path) -> None:
    (tmp_path / "routine.yaml").write_text(TEXT)
    tools = {"send": lambda to: to}
    assert prepare_routine(tmp_path, {}, tools, routines="shadow").planned
    with pytest.raises(RoutinesOff):
        prepare_routine(tmp_path, {}, tools, routines="off")


def test_the_environment_counts_for_folders_and_commands(
    tmp_path: Path, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "routine.yaml").write_text(TEXT)
    monkeypatch.setenv("EM_ROUTINES", "off")
    with pytest.raises(RoutinesOff):
        run_routine(tmp_path, {}, {"send": sent.append})
    ran = em("run", str(tmp_path), "--json", "--db", str(tmp_path / "em.db"))
    assert ran.code == 1
    assert "routines_off" in ran.err
    assert sent == []


@pytest.mark.parametrize(("text", "mode"), [("off", "off"), ("on", "on"), ("shadow", "shadow")])
def test_em_yaml_has_the_switch(tmp_path: Path, text: str, mode: str) -> None:
    (tmp_path / "em.yaml").write_text(f"routines: {text}\n")
    assert routines_mode(Settings.load(tmp_path, {})) == mode
    assert routines_mode(Settings.load(tmp_path, {"EM_ROUTINES": "off"})) == "off"
