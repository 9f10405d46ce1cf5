"""Accepting a proposal is the one step to use: it gets just the permissions of its recordings."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.em_command import em, pressing
from tests.clients.test_proposals import FILES, session

from em import Memory
from em.compiler.proposals import propose
from em.compiler.suggestions import suggest

RUN = ("run", "count_lines", "request=count the pending lines of fresh.csv into fresh.txt")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in which the sessions worked, as somebody's whose home is another folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_DATA_HOME", "EM_TRUSTED_FOLDERS"):
        monkeypatch.setenv(name, "")
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "fresh.csv").write_text("1,pending\n2,paid\n3,pending\n")
    monkeypatch.chdir(project)
    monkeypatch.setenv("EM_DB", str(tmp_path / "em.db"))
    return project


def proposed(project: Path, *, outside: str = "") -> str:
    """The key of a proposal to count lines, from sessions in the project."""
    with Memory() as memory:
        for name in FILES:
            output = os.path.join(outside, f"{name}.txt")
            said = f"count the pending lines of {name}.csv into {output}"
            command = f"grep -c pending {name}.csv | tee {output}"
            app = {"name": "claude-code", "cwd": str(project / "src")}
            (project / "src").mkdir(exist_ok=True)
            memory.add_trace(session(said, command, app=app))
        (made,) = propose(memory.store, suggest(memory.store, allow_unlabelled=True))
    return made.key


def allowed(project: Path) -> Any:
    return yaml.safe_load((project / "em.yaml").read_text())["allow"]


def test_one_question_leads_from_a_proposal_to_a_routine_that_runs(project: Path) -> None:
    key = proposed(project)
    code, shown = pressing(
        "routine", "accept", key, "--name", "count_lines", keys=[("allow it this?", "y\n")]
    )
    assert code == 0
    asked = shown.partition("allow it this?")[0]
    for part in ("count_lines", "right in", str(project / "em.yaml"), "grep, tee", "folders: ."):
        assert part in asked
    assert shown.count("?") == 1
    assert allowed(project) == {"commands": ["grep", "tee"], "folders": ["."]}
    ran = em(*RUN)
    assert (ran.code, (project / "fresh.txt").read_text()) == (0, "2\n"), ran.err


def test_a_no_leaves_everything_as_it_was(project: Path) -> None:
    key = proposed(project)
    code, _ = pressing("routine", "accept", key, keys=[("allow it this?", "n\n")])
    assert (code, (project / "em.yaml").exists()) == (1, False)
    assert em("routine", "list", "--json").json["routines"] == []
    assert key in em("routine", "suggest", "--allow-unlabelled").out


def test_where_nobody_can_be_asked_it_says_what_is_needed_and_does_nothing(project: Path) -> None:
    key = proposed(project)
    refused = em("routine", "accept", key, "--name", "count_lines")
    assert (refused.code, "grep, tee" in refused.err) == (2, True)
    assert em("routine", "list", "--json").json["routines"] == []
    done = em("routine", "accept", key, "--name", "count_lines", "--yes", "--json")
    assert done.json["allowed"] == {"commands": ["grep", "tee"], "folders": ["."]}
    assert em(*RUN).code == 0


def test_em_yaml_can_be_left_as_it_is(project: Path) -> None:
    key = proposed(project)
    assert em("routine", "accept", key, "--name", "count_lines", "--no-allow").code == 0
    assert not (project / "em.yaml").exists()
    refused = em(*RUN)
    assert (refused.code, "commands: [grep, tee], folders: " in refused.err) == (1, True), (
        refused.err
    )
    assert em("routine", "accept", "count_lines", "--yes").code == 0  # once more, with them
    assert em(*RUN).code == 0


def test_only_what_is_missing_is_added_and_nothing_is_asked_without_it(project: Path) -> None:
    (project / "em.yaml").write_text("# mine\nallow:\n  commands: [git, grep]\n")
    assert em("trust", "--folder", ".", "--yes").code == 0
    key = proposed(project)
    done = em("routine", "accept", key, "--name", "count_lines", "--yes", "--json")
    assert done.json["allowed"] == {"commands": ["tee"], "folders": ["."]}
    assert allowed(project) == {"commands": ["git", "grep", "tee"], "folders": ["."]}
    assert (project / "em.yaml").read_text().startswith("# mine\n")
    assert em(*RUN).code == 0
    again = em("routine", "accept", "count_lines")
    assert (again.code, "already" in again.out) == (0, True)


def test_what_somebody_else_wrote_into_em_yaml_is_not_trusted_with_it(project: Path) -> None:
    key = proposed(project)
    (project / "em.yaml").write_text("allow: {commands: [curl]}\n")
    refused = em("routine", "accept", key, "--yes")
    assert (refused.code, "em trust --folder" in refused.err) == (2, True)
    assert (project / "em.yaml").read_text() == "allow: {commands: [curl]}\n"
    assert em("routine", "list", "--json").json["routines"] == []


def test_it_is_written_where_the_sessions_worked_wherever_it_is_accepted(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = proposed(project)
    monkeypatch.chdir(tmp_path)
    assert em("routine", "accept", key, "--name", "count_lines", "--yes").code == 0
    assert allowed(project) == {"commands": ["grep", "tee"], "folders": ["."]}
    assert not (tmp_path / "em.yaml").exists()


def test_a_folder_outside_of_the_project_is_named(project: Path, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    key = proposed(project, outside=str(tmp_path / "reports"))
    done = em("routine", "accept", key, "--name", "count_lines", "--yes", "--json")
    assert done.json["allowed"]["folders"] == [".", str(tmp_path / "reports")]
