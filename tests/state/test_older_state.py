"""A state that em stored before facts could be in doubt opens, shows and goes on as it was."""

import gzip
from pathlib import Path

import pytest

from em import Memory
from em.cli.root import run

OLDER = Path(__file__).parent / "data" / "before_doubts.db.gz"
"""Made by em at b994e18c: records, a text read by a pattern and one by a model, decisions."""


@pytest.fixture
def older(tmp_path: Path) -> Path:
    path = tmp_path / "older.db"
    path.write_bytes(gzip.decompress(OLDER.read_bytes()))
    return path


def test_an_older_state_reads_as_it_was_and_goes_on(older: Path) -> None:
    with Memory(older) as memory:
        state = memory.state("ana")
        assert state.version == 3
        assert state.as_record(state.profile) == {"city": "Porto", "employer": "Acme"}
        assert [(one.to, one.cost_usd) for one in state.trips] == [("Rome", 100), ("Lisbon", 840.5)]
        assert [one.name for one in state.persons] == ["sister"]
        why = state.why("profile.city")
        assert why is not None
        assert (why.words, why.how) == ("I moved to Porto in March.", "pattern")
        assert memory.log.verify().ok

        memory.observe("ana", {"employer": "Initech"}, type="Profile")
        memory.observe("ana", "I quit Initech.", speaker="ana")
        state = memory.checkpoint("ana")
        assert [one.mentions for one in state.unread] == [("profile.employer",)]
        again = memory.checkpoint("ana", rebuild=True)
        assert again.as_record(again.profile) == state.as_record(state.profile)
        assert again.trips == state.trips


def test_an_older_state_is_shown(older: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--db", str(older), "state", "show", "ana"]) == 0
    shown = capsys.readouterr().out
    assert "city: Porto" in shown
    assert "trips: 2 records" in shown


def test_what_patterns_read_stays_and_a_doubt_counts_for_nothing(tmp_path: Path) -> None:
    """Made by em at 8775118d: two texts that patterns read, and one that put a fact in doubt."""
    path = tmp_path / "older.db"
    older = Path(__file__).parent / "data" / "before_facts.db.gz"
    path.write_bytes(gzip.decompress(older.read_bytes()))
    with Memory(path) as memory:
        for state in (memory.state("ana"), memory.checkpoint("ana", rebuild=True)):
            assert state.as_record(state.profile) == {"employer": "Nokia", "city": "Lisbon"}
            assert [int(one.amount.amount) for one in state.expenses] == [12]
            assert [one.value for one in state.profile.history["employer"]] == ["Nokia"]
        gone = {"op": "retract", "field": "employer", "evidence": "I left Nokia"}
        memory.observe("ana", "I left Nokia.", facts=[gone])
        assert memory.checkpoint("ana").profile.employer is None
