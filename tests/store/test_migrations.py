"""Databases of the same schema open; older and newer ones are refused; a step runs once."""

import gzip
from pathlib import Path

import pytest

from em import Memory
from em.errors import NewerDatabase, OlderDatabase
from em.log.event import Draft, EventQuery
from em.log.verify import verify
from em.recall.search import Recall
from em.store import migrations
from em.store.migrations import MIGRATIONS, OLDEST, Migration
from em.store.postgres import PostgresStore
from em.store.protocol import Within
from em.store.sqlite import SqliteStore
from em.testing import append, note
from raw import run_sql

AnyStore = SqliteStore | PostgresStore
NEXT = Migration(
    MIGRATIONS[-1].number + 1,
    "a step for this test",
    shared="CREATE TABLE extra(x NUMBER);\n",
    sqlite="INSERT INTO extra VALUES (1);",
    postgres="INSERT INTO extra VALUES (1);",
)


def reopen(store: AnyStore) -> AnyStore:
    store.close()
    address = store._path if isinstance(store, SqliteStore) else store._url
    return type(store)(address)


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [step.number for step in MIGRATIONS] == [*range(OLDEST, OLDEST + len(MIGRATIONS))]
    assert all(step.why for step in MIGRATIONS)


def test_a_database_of_schema_12_opens_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made by em at 0ffa1e2d: a state, a lesson, a trace, and a text that was forgotten."""
    path = tmp_path / "before.db"
    packed = Path(__file__).parent / "data" / "schema_12.db.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    monkeypatch.setenv("EM_TRUSTED_DATABASES", str(path))
    with Memory(path) as memory:
        report = memory.log.verify()
        assert (report.findings, report.events, report.erased) == ([], 10, 1)
        state = memory.state("ana")
        assert [one.to for one in state.trips] == ["Rome"]
        assert state.as_record(state.profile) == {"city": "Porto", "country": "Porto"}
        assert memory.recall("Where does ana live?")[0].text == "I live in Porto."
        assert memory.brief("debug an insert that fails on a foreign key").ids
        assert [one.trace.mission.goal for one in memory.traces()] == ["buy tea"]
        memory.observe("ana", {"to": "Lisbon", "cost": 90}, type="Trip")
        assert [one.to for one in memory.checkpoint("ana").trips] == ["Rome", "Lisbon"]
        again = memory.checkpoint("ana", rebuild=True)
        assert [one.to for one in again.trips] == ["Rome", "Lisbon"]
        assert memory.log.verify().ok
        with SqliteStore(tmp_path / "new.db") as new:
            tables = "SELECT name, type FROM sqlite_master ORDER BY 1"
            store = memory.store
            assert isinstance(store, SqliteStore)
            assert run_sql(store, tables) == run_sql(new, tables)


def test_a_step_runs_once_and_keeps_the_events(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = append(store, note("from before"))
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, NEXT))
    monkeypatch.setattr(migrations, "NEWEST", NEXT.number)
    for _ in range(2):
        store = reopen(store)
        assert list(store.read(EventQuery())) == written
        assert store.health().schema == NEXT.number
        assert run_sql(store, "SELECT x FROM extra") == [(1,)]
    store.close()


def test_a_step_that_fails_leaves_the_database_as_it_was(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = append(store, note("from before"))
    broken = NEXT._replace(sqlite=NEXT.sqlite + "\nBROKEN;", postgres=NEXT.postgres + "\nBROKEN;")
    monkeypatch.setattr(migrations, "MIGRATIONS", (*MIGRATIONS, broken))
    monkeypatch.setattr(migrations, "NEWEST", broken.number)
    with pytest.raises(Exception, match="says"):
        reopen(store)
    monkeypatch.undo()
    again = reopen(store)
    assert list(again.read(EventQuery())) == written
    assert again.health().schema == MIGRATIONS[-1].number
    again.close()


@pytest.mark.parametrize("is_older", [True, False])
def test_an_older_or_newer_database_is_refused_untouched(store: AnyStore, is_older: bool) -> None:
    expected = OlderDatabase if is_older else NewerDatabase
    number = OLDEST - 1 if is_older else MIGRATIONS[-1].number + 1
    append(store, note("there"))
    if isinstance(store, SqliteStore):
        run_sql(store, f"PRAGMA user_version={number}")
    else:
        run_sql(store, "DELETE FROM em_schema", f"INSERT INTO em_schema VALUES ({number})")
    with pytest.raises(expected) as caught:
        reopen(store)
    assert caught.value.code == ("older_database" if is_older else "newer_database")
    assert ("em log import" if is_older else "upgrade em-core") in caught.value.fix
    assert run_sql(store, "SELECT count(*) FROM events") == [(1,)]


def test_what_another_analysis_indexed_is_indexed_again(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr("em.store.preparation.field_tags", lambda _given: ())
        for number in range(3):
            said = {"text": f"a key {number}", "speaker": f"S{number}", "session": f"s{number}"}
            append(store, Draft(stream="s", subject="ana", kind="observation", body=said))
    run_sql(store, "UPDATE flags SET value = '1' WHERE name = 'analysis'")
    store = reopen(store)
    recall = Recall(store)
    assert len(recall.recall("key", Within("ana"))) == 3
    for narrowed in (Within("ana", speaker="s1"), Within("ana", session="s1")):
        assert [one.text for one in recall.recall("key", narrowed)] == ["a key 1"]
    assert verify(store).ok
    store.close()
