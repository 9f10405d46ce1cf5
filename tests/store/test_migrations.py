"""Older databases are brought up to date on opening; newer ones are refused."""

import pytest

from em.errors import NewerDatabase
from em.log.event import EventQuery
from em.store import migrations
from em.store.migrations import MIGRATIONS, Migration
from em.store.postgres import PostgresStore
from em.store.sqlite import SqliteStore
from em.testing import append, note
from raw import run_sql

AnyStore = SqliteStore | PostgresStore
NEXT = Migration(
    len(MIGRATIONS) + 1,
    "a step for this test",
    sqlite="CREATE TABLE extra(x INTEGER);\nINSERT INTO extra VALUES (1);",
    postgres="CREATE TABLE extra(x INTEGER);\nINSERT INTO extra VALUES (1);",
)


def reopen(store: AnyStore) -> AnyStore:
    store.close()
    address = store._path if isinstance(store, SqliteStore) else store._url
    return type(store)(address)


def test_migrations_are_numbered_from_one_without_a_gap() -> None:
    assert [step.number for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))
    assert all(step.why for step in MIGRATIONS)


def test_an_older_database_is_migrated_once_and_keeps_its_events(
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


def test_a_migration_that_fails_leaves_the_database_as_it_was(
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


def test_a_newer_database_is_refused(store: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "NEWEST", 0)
    with pytest.raises(NewerDatabase) as caught:
        reopen(store)
    assert caught.value.fix == "upgrade em-core"
