"""Both stores, and SQLite in memory, keep the promises of `em.testing`."""

from collections.abc import Iterator

import pytest

from em.store.postgres import PostgresStore
from em.store.sqlite import SqliteStore
from em.testing import StoreConformance


class TestSqlite(StoreConformance):
    @pytest.fixture
    def store(self, sqlite_store: SqliteStore) -> SqliteStore:
        return sqlite_store


class TestSqliteInMemory(StoreConformance):
    @pytest.fixture
    def store(self) -> Iterator[SqliteStore]:
        with SqliteStore(":memory:") as store:
            yield store


class TestPostgres(StoreConformance):
    @pytest.fixture
    def store(self, postgres_store: PostgresStore) -> PostgresStore:
        return postgres_store
