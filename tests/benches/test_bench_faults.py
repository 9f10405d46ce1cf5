"""The bench of faults kills in the middle of writing, and sees what is lost or doubled."""

import random
from pathlib import Path

import pytest
from bench.faults import damage, table
from bench.faults.act import ACTS, Append, Import, Run

from em import Memory


@pytest.mark.parametrize("name", [*ACTS])
def test_a_process_that_is_killed_while_it_writes_loses_and_doubles_nothing(
    name: str, tmp_path: Path
) -> None:
    act = ACTS[name](tmp_path, str(tmp_path / "em.db"))
    row = table.killed(act, "SQLite", 2, random.Random(3))
    assert (row.lost, row.doubled) == (0, 0), row.said


def test_what_is_missing_halved_or_there_twice_is_seen(tmp_path: Path) -> None:
    act = Append(tmp_path, str(tmp_path / "em.db"))
    with Memory(act.db) as memory:
        memory.observe_many([("s", "0-0 0/2"), ("s", "0-0 1/2")])
        memory.observe_many([("s", "0-1 0/2"), ("s", "0-2 0/1"), ("s", "0-2 0/1")])
    verdict = act.judge(["0-0", "0-7"])
    assert (verdict.lost, verdict.doubled) == (2, 1)  # 0-7 is missing, 0-1 is half there
    assert "0-7" in verdict.said


def test_an_effect_that_was_made_twice_or_not_at_all_is_seen(tmp_path: Path) -> None:
    act = Run(tmp_path, str(tmp_path / "em.db"))
    act.prepare()
    with Memory(act.db) as memory:
        act.run(memory, "r0x0")
    assert act.judge(["r0x0"])[:2] == (0, 0)
    act.world.plain("r0x0", 2)
    assert act.judge(["r0x0"]).doubled == 1
    (tmp_path / "effects" / "r0x0-1").unlink()
    assert act.judge(["r0x0", "r0x9"]).lost == 2


def test_a_session_that_is_not_in_the_log_is_seen(tmp_path: Path) -> None:
    act = Import(tmp_path, str(tmp_path / "em.db"))
    assert act.judge(["0-0"]).lost == 1


@pytest.mark.parametrize("fault", ["full disk", "read-only", "damaged files", "threads"])
def test_other_faults_lose_and_double_nothing(fault: str) -> None:
    with table.places(["SQLite"]) as make:
        acknowledged, verdict = damage.FAULTS[fault]("SQLite", make, random.Random(3))
    assert acknowledged
    assert (verdict.lost, verdict.doubled) == (0, 0), verdict.said
