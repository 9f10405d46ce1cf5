"""The memory of a folder is that of the nearest folder upwards, as git finds its own."""

import os
from pathlib import Path

import pytest
from tests.cli.em_command import em

from em import Memory, Settings
from em.runner.tools.permissions import settings_for
from em.settings import Untrusted, memory_folder
from em.workflows.definition import WorkflowFile


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, in a folder of which the test works."""
    root = tmp_path / "repository"
    (root / "src" / "deep").mkdir(parents=True)
    (root / ".git").mkdir()
    monkeypatch.chdir(root / "src" / "deep")
    return root


def test_a_memory_above_is_found(repository: Path) -> None:
    (repository / ".em").mkdir()
    with Memory(str(repository / ".em" / "em.db")) as memory:
        memory.observe("ana", "likes tea")
    with Memory(create=False) as memory:
        assert Path(memory.address) == repository / ".em" / "em.db"
    assert not Path(".em").exists()


def test_the_nearest_one_counts(repository: Path) -> None:
    (repository / ".em").mkdir()
    (repository / "src" / "em.yaml").write_text("synchronous: full\n")
    assert memory_folder() == repository / "src"
    Path(".em").mkdir()
    assert memory_folder() == Path()
    assert Settings.load().db == ".em/em.db"


def test_a_new_memory_is_made_in_the_repositorys_root(repository: Path) -> None:
    with Memory() as memory:
        memory.observe("ana", "likes tea")
    assert (repository / ".em" / "em.db").is_file()


def test_nothing_above_the_repository_counts(repository: Path) -> None:
    (repository.parent / "em.yaml").write_text("db: other.db\n")
    (repository.parent / ".em").mkdir()
    assert memory_folder() == repository


def test_outside_of_a_repository_a_new_memory_is_made_here(tmp_path: Path) -> None:
    assert memory_folder() == Path()
    assert Settings.load().db == ".em/em.db"


def test_paths_of_an_em_yaml_above_are_those_from_its_folder(repository: Path) -> None:
    (repository / "em.yaml").write_text(
        "db: data/own.db\nallow: {folders: [., /opt, ~/x]}\nstate: {rules: rules.py}\n"
    )
    settings = Settings.load()
    assert settings.db == str(repository / "data" / "own.db")
    assert settings.allow.folders == [str(repository), "/opt", "~/x"]
    assert settings.state.rules == str(repository / "rules.py")
    assert Settings.load(environ={"EM_DB": "mine.db"}).db == "mine.db"
    assert Settings.load(environ={"EM_DB": ":memory:"}).db == ":memory:"


def test_an_em_yaml_above_names_nothing_until_its_folder_is_trusted(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EM_TRUSTED_FOLDERS")
    (repository / "em.yaml").write_text("db: own.db\nallow: {commands: [sh]}\n")
    with pytest.warns(Untrusted, match=str(repository)):
        settings = Settings.load()
    assert settings.db == str(repository / ".em" / "em.db")
    assert settings.allow.commands == []
    assert em("trust", "--folder", str(repository), "--yes").code == 0
    assert Settings.load().allow.commands == ["sh"]


def test_what_others_could_have_put_above_does_not_count(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / ".em").mkdir(parents=True)
    (shared / "mine").mkdir()
    shared.chmod(0o1777)
    os.chdir(shared / "mine")
    assert memory_folder() == Path()
    shared.chmod(0o755)
    assert memory_folder() == shared


def test_an_em_yaml_that_came_with_a_routine_allows_nothing_from_a_folder_of_it(
    repository: Path,
) -> None:
    (repository / "em.yaml").write_text("allow: {commands: [sh]}\n")
    assert settings_for(repository, None).commands == []
    assert settings_for(repository / "routines" / "own", None).commands == ["sh"]


def test_workflows_of_an_em_yaml_above_are_found(repository: Path) -> None:
    (repository / "em.yaml").write_text("workflows: {tidy: {steps: []}}\n")
    assert [*WorkflowFile().values()] == ["tidy"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("", "the repository's root: {}"),
        (".em", "the nearest folder with .em or em.yaml: {}"),
        ("em.yaml", "em.yaml in {}"),
    ],
)
def test_doctor_says_which_memory_is_used_and_why(repository: Path, made: str, said: str) -> None:
    if made == ".em":
        (repository / made).mkdir()
    elif made:
        (repository / made).write_text("db: own.db\n")
    shown = em("doctor", "--json").json["database"]
    assert shown["chosen_by"] == said.format(repository)
    assert str(repository) in shown["location"]
    assert em("doctor", "--json", "--db", "x.db").json["database"]["chosen_by"] == "--db"
