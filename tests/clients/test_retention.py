"""Recordings are forgotten when they are too old, with what came of them; routines in use stay."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.em_command import em
from tests.clients.test_hooks import event, lines_of_a_session
from tests.clients.test_proposals import FILES, count_lines, found

from em import Memory
from em.clients.hook_service import HookService
from em.clients.retention import forget_recordings
from em.compiler.proposals import open_proposals, propose

DAY = timedelta(days=1)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "em.db") as memory:
        yield memory


def goals(memory: Memory) -> list[str]:
    return [one.trace.mission.goal for one in memory.traces() if one.trace.calls]


def later(days: float) -> datetime:
    return datetime.now(UTC) + timedelta(days=days)


def test_a_dry_run_names_what_would_go_and_erases_nothing(memory: Memory) -> None:
    ids = count_lines(memory, *FILES)
    would = forget_recordings(memory, 30 * DAY, dry_run=True, now=later(31))
    assert sorted(would.traces) == sorted(ids)
    assert (would.events > 0, would.is_dry_run) == (True, True)
    assert len(goals(memory)) == 4
    assert forget_recordings(memory, 30 * DAY, dry_run=True, now=later(29)).traces == []


def test_what_is_forgotten_is_gone_from_the_files_and_does_not_come_back(
    memory: Memory, tmp_path: Path
) -> None:
    transcript = tmp_path / "s1.jsonl"
    lines = "".join(lines_of_a_session(tmp_path)).replace("a.txt", "s3cretword.txt")
    transcript.write_text(lines)
    memory.import_files(transcript)
    propose(memory.store, found(memory))
    forgotten = forget_recordings(memory, 30 * DAY, now=later(31))
    assert len(forgotten.traces) == 1
    assert goals(memory) == []
    assert found(memory) == []
    assert not any("s3cretword" in json.dumps(one.body) for one in memory.log.read())
    transcript.write_text(lines + "\n")  # the agent has it still, and it is imported again
    memory.import_files(transcript)
    assert not any("s3cretword" in json.dumps(one.body) for one in memory.log.read())
    memory.close()
    for path in tmp_path.glob("em.db*"):
        assert b"s3cretword" not in path.read_bytes(), path


def test_a_session_that_goes_on_is_not_old(memory: Memory, tmp_path: Path) -> None:
    ids = count_lines(memory, *FILES)
    memory.label(ids[0], "success")
    newest = max(one.recorded_at for one in memory.log.read(stream=f"trace/{ids[0]}"))
    assert (
        ids[0]
        not in forget_recordings(memory, 30 * DAY, dry_run=True, now=newest + 30 * DAY).traces
    )


def test_what_a_routine_in_use_was_learnt_from_stays(memory: Memory) -> None:
    ids = count_lines(memory, *FILES)
    (other,) = count_lines(memory, "extra")
    propose(memory.store, found(memory))
    memory.compile(ids, name="count_lines")
    forgotten = forget_recordings(memory, DAY, now=later(2))
    assert (forgotten.traces, sorted(forgotten.kept)) == ([other], sorted(ids))
    assert memory.store.artefact("routine", "count_lines") is not None
    assert len(goals(memory)) == 4
    assert open_proposals(memory.store) == []


def test_lines_that_no_format_understood_are_recordings_too(memory: Memory, tmp_path: Path) -> None:
    transcript = tmp_path / "s1.jsonl"
    lines = lines_of_a_session(tmp_path)
    transcript.write_text("".join(lines) + '["s3cretword"]\n')
    memory.import_files(transcript)
    assert any("s3cretword" in json.dumps(one.body) for one in memory.log.read())
    forget_recordings(memory, DAY, now=later(2))
    assert not any("s3cretword" in json.dumps(one.body) for one in memory.log.read())


def test_the_command_asks_and_takes_the_age_of_em_yaml(memory: Memory, tmp_path: Path) -> None:
    count_lines(memory, *FILES)
    db = ("--db", str(tmp_path / "em.db"))
    ran = em("forget", "--recordings", *db)
    assert (ran.code, "keep_days" in ran.err) == (2, True)
    Path("em.yaml").write_text("recordings: {keep_days: 30}\n")
    # A folder of a stranger must not say what is erased.
    ran = em("forget", "--recordings", "--dry-run", *db, EM_TRUSTED_FOLDERS="")
    assert (ran.code, "ignored until you trust this folder" in ran.err) == (2, True)
    trusted = {"EM_TRUSTED_FOLDERS": str(Path.cwd())}
    ran = em("forget", "--recordings", "--dry-run", *db, **trusted)
    assert (ran.code, "would be erased: 0 traces" in ran.out) == (0, True)
    ran = em("forget", "--older-than", "0.000001s", "--dry-run", *db)
    assert (ran.code, "would be erased: 4 traces" in ran.out) == (0, True), ran.err
    assert len(goals(memory)) == 4
    assert em("forget", "--older-than", "0.000001s", "--yes", *db).code == 0
    assert goals(memory) == []
    ran = em("forget", "--dry-run", "--event", "x", *db)
    assert (ran.code, "no event has the id" in ran.err) == (1, True)


def test_the_service_forgets_by_itself(memory: Memory, tmp_path: Path) -> None:
    count_lines(memory, *FILES)
    HookService(memory, tmp_path / "s").sweep()
    HookService(memory, tmp_path / "s", keep_days=1).sweep()
    assert len(goals(memory)) == 4
    service = HookService(memory, tmp_path / "s", keep_days=1e-9)
    service.sweep()
    assert goals(memory) == []
    count_lines(memory, "new")
    service.sweep()  # not again so soon
    assert len(goals(memory)) == 1
    assert service.answer(event("Stop")) is None
