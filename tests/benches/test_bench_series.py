"""What five sessions of a coding agent have in common does the sixth, with no model."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.series.kinds import KINDS
from bench.series.proposing import WRONG_WAYS, proposed, refused
from bench.series.repository import RIGHT, done
from bench.series.rotation import SERIES, Done, Series, learnt, run, sessions

from em import Memory

BUMP, IMPORT, RELEASE = SERIES


@pytest.fixture(scope="module")
def bumped() -> list[Done]:
    return sessions(BUMP)


@pytest.fixture(scope="module")
def imported() -> list[Done]:
    return sessions(IMPORT)


@pytest.fixture(scope="module")
def bump(bumped: list[Done]) -> Iterator[tuple[Memory, Any]]:
    with tempfile.TemporaryDirectory() as folder, Memory(":memory:") as memory:
        yield memory, learnt(memory, bumped, Path(folder))


@pytest.fixture(scope="module")
def fix(imported: list[Done]) -> Iterator[tuple[Memory, Any]]:
    with tempfile.TemporaryDirectory() as folder, Memory(":memory:") as memory:
        yield memory, learnt(memory, imported, Path(folder))


def sixth(series: Series, done: list[Done], number: int, tmp_path: Path) -> tuple[str, bool]:
    task = series.tasks[number]
    rest = [one for at, one in enumerate(done) if at != number]
    with Memory(":memory:") as memory:
        routine = learnt(memory, rest, tmp_path)
        status, _, files = run(memory, routine, task, task.day, series.given(task))
    return status, files == done[number].after


@pytest.mark.parametrize("number", [0, 2, 4])
def test_a_version_is_bumped_as_in_five_other_projects(
    bumped: list[Done], number: int, tmp_path: Path
) -> None:
    assert sixth(BUMP, bumped, number, tmp_path) == ("ok", True)


@pytest.mark.parametrize("number", [1, 3])
def test_an_import_is_fixed_as_in_five_other_projects(
    imported: list[Done], number: int, tmp_path: Path
) -> None:
    assert sixth(IMPORT, imported, number, tmp_path) == ("ok", True)


@pytest.mark.parametrize("task", BUMP.judgements, ids=lambda task: task.name)
def test_a_bump_that_needs_judgement_changes_nothing(bump: tuple[Memory, Any], task: Any) -> None:
    status, _, files = run(*bump, task, task.day)
    assert (status != "ok", files) == (True, task.files)


@pytest.mark.parametrize("task", IMPORT.judgements, ids=lambda task: task.name)
def test_a_failing_test_that_needs_judgement_is_handed_over(
    fix: tuple[Memory, Any], task: Any
) -> None:
    status, why, files = run(*fix, task, task.day)
    assert status != "ok"
    if task.name == "still fails afterwards":
        assert "exit code 1" in why
    else:
        assert files == task.files


@pytest.fixture(scope="module")
def released() -> list[Done]:
    return sessions(RELEASE)


@pytest.fixture(scope="module")
def release(released: list[Done]) -> Iterator[tuple[Memory, Any]]:
    with tempfile.TemporaryDirectory() as folder, Memory(":memory:") as memory:
        yield memory, learnt(memory, released, Path(folder))


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_release_is_made_though_every_request_had_other_words(
    released: list[Done], number: int, tmp_path: Path
) -> None:
    assert sixth(RELEASE, released, number, tmp_path) == ("ok", True)


@pytest.mark.parametrize("task", RELEASE.judgements, ids=lambda task: task.name)
def test_a_release_that_needs_judgement_changes_nothing(
    release: tuple[Memory, Any], task: Any
) -> None:
    status, _, files = run(*release, task, task.day, RELEASE.given(task))
    assert (status != "ok", files) == (True, task.files)


def test_a_chore_in_a_persons_own_words_is_suggested_as_one_group(
    released: list[Done], tmp_path: Path
) -> None:
    for number, one in enumerate(released):
        (tmp_path / f"{number}.jsonl").write_text(one.text)
    with Memory(":memory:") as memory:
        memory.import_files([tmp_path])
        (found,) = memory.suggest()
    assert (found.count, found.problem) == (len(released), "")
    assert found.proof is not None
    assert found.proof.wrong == 0


def test_a_routine_without_words_asks_for_what_is_not_given_by_name(
    release: tuple[Memory, Any],
) -> None:
    task = RELEASE.tasks[0]
    status, _, files = run(*release, task, task.day, {"version": "9.9.9"})
    assert (status, files) == ("needs_input", task.files)


def test_a_bump_writes_the_day_of_the_run(bump: tuple[Memory, Any]) -> None:
    task = BUMP.tasks[0]
    _, _, files = run(*bump, task, "2027-02-03")
    assert "## 1.3.0 (2027-02-03)\n" in files["CHANGELOG.md"]


def test_the_routine_says_what_it_changed_and_how_it_did_in_trials(
    bump: tuple[Memory, Any],
) -> None:
    _, routine = bump
    assert routine.trials.count("wrong") == 0
    assert routine.trials.count("right") == len(BUMP.tasks)


def test_a_routine_of_sessions_grows_with_the_next_session(
    bumped: list[Done], tmp_path: Path
) -> None:
    for name in ("first", "next"):
        (tmp_path / name).mkdir()
    (tmp_path / "next" / "session.jsonl").write_text(bumped[5].text)
    with Memory(":memory:") as memory:
        learnt(memory, bumped[:5], tmp_path / "first")
        memory.import_files([tmp_path / "next"])
        grown = memory.compile_again("learnt", allow_unlabelled=True)
    assert (grown.new, len(grown.added), grown.why_not) == ("learnt@2", 1, "")


@pytest.mark.parametrize("name", ["component with test and export", "release with a tag"])
def test_a_kind_of_chore_is_learnt_in_one_growing_repository(name: str) -> None:
    (kind,) = (one for one in KINDS if one.name == name)
    assert [verdict for verdict, _ in done(kind).verdicts] == [RIGHT] * 3


@pytest.mark.parametrize("name", ["post from a template", "release with a tag"])
def test_a_routine_that_an_agent_wrote_does_new_chores(name: str) -> None:
    (kind,) = (one for one in KINDS if one.name == name)
    told, verdicts = proposed(kind)
    assert (told["accepted"], verdicts) == (True, [RIGHT] * 3)


def test_a_routine_that_is_wrong_in_eight_ways_is_refused_in_each() -> None:
    assert dict(refused()) == dict.fromkeys(WRONG_WAYS, True)
