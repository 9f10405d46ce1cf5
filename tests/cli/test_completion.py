"""The TAB key: names of commands, options, routines, subjects and workflows, and no error."""

import subprocess
import sys
from pathlib import Path

import pytest
from em_command import em

from em import Memory

ROUTINE = """
version: "1"
name: water_plants
steps: [{id: r, type: return, value: 1}]
"""
FLOW = "workflows: {weekly: {steps: [{name: a, inputs: {prompt: x}}]}}"


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plants").mkdir()
    (tmp_path / "plants" / "routine.yaml").write_text(ROUTINE)
    (tmp_path / "em.yaml").write_text(FLOW)
    assert em("routine", "accept", "plants").code == 0
    with Memory() as memory:
        for subject in ("ana", "anton", "bo"):
            memory.observe(subject, "likes tea")


def offered(words: str, **env: str) -> list[str]:
    """What bash is offered for the last of some words."""
    count = len(words.split(" ")) - 1
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(count), "_EM_COMPLETE": "bash_complete"}
    ran = em(**asked, **env)
    assert (ran.code, ran.err) == (0, "")
    return [line.partition(",")[2] for line in ran.out.splitlines() if line]


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize(("words", "names"), [
    ("em ru", ["run", "runs"]),
    ("em state ru", ["rules"]),
    ("em state wh", ["why"]),
    ("em run --dry", ["--dry-run"]),
    ("em run wa", ["water_plants"]),
    ("em routine show w", ["water_plants"]),
    ("em state show an", ["ana", "anton"]),
    ("em recall tea --subject b", ["bo"]),
    ("em workflow run w", ["weekly"]),
    ("em compile --name ", []),
    ("em state show nobody", []),
])  # fmt: skip
def test_names_are_offered_that_begin_as_typed(words: str, names: list[str]) -> None:
    assert sorted(offered(words)) == sorted(names)


@pytest.mark.usefixtures("_folder")
def test_a_memory_that_is_not_there_is_neither_made_nor_told_about(tmp_path: Path) -> None:
    assert offered("em --db other.db state show a") == []
    assert not (tmp_path / "other.db").exists()
    (tmp_path / "broken.db").write_text("this is no database")
    assert offered("em state show a", EM_DB="broken.db") == []


@pytest.mark.usefixtures("_folder")
def test_bash_completes_with_the_printed_script(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "em").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m em "$@"\n')
    (folder / "em").chmod(0o755)
    script = f"""
PATH={folder}:$PATH
eval "$(em completion bash)"
COMP_WORDS=(em state show an) COMP_CWORD=3
_em_completion em
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert (ran.stdout.split(), ran.stderr) == (["ana", "anton"], "")
