"""From a path or an address to a store, with errors that name the fix and hide the password."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from em.errors import EmError, MissingExtra, NotFound, StoreUnreachable, UsageError
from em.settings import Settings
from em.store import open_store
from em.store.postgres import PostgresStore, describe
from em.store.sqlite import SqliteStore
from em.testing import append, note
from raw import with_option


def test_a_path_is_sqlite_and_an_address_is_postgres(
    tmp_path: Path, new_database: Callable[[], str]
) -> None:
    for address, kind in (
        (str(tmp_path / "a" / "em.db"), SqliteStore),
        (new_database(), PostgresStore),
    ):
        with open_store(address) as store:
            assert isinstance(store, kind)
            append(store, note("1"))


def test_the_default_is_in_this_folder(tmp_path: Path) -> None:
    with open_store() as store:
        append(store, note("1"))
    assert (tmp_path / ".em" / "em.db").is_file()


@pytest.mark.parametrize(("address", "match"), [("mysql://x/y", "mysql"), ("", "empty")])
def test_other_addresses_are_refused(address: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        open_store(address)


def test_an_unreachable_server_is_one_clear_error_without_the_password() -> None:
    with pytest.raises(StoreUnreachable) as caught:
        open_store("postgresql://ana:hunter2@127.0.0.1:1/app", Settings(busy_timeout=2))
    assert "hunter2" not in str(caught.value)
    assert caught.value.place == "postgresql://ana@127.0.0.1:1/app"


def test_an_address_that_is_none_is_refused_without_the_password() -> None:
    with pytest.raises(EmError) as caught:
        open_store("postgresql://ana:hunter2@host:port:5/app")
    assert "hunter2" not in str(caught.value)


def test_an_address_is_shown_without_its_password() -> None:
    assert describe("postgresql://ana:pw@host:5432/db") == "postgresql://ana@host:5432/db"


def test_without_create_an_empty_server_database_is_not_found(
    new_database: Callable[[], str],
) -> None:
    with pytest.raises(NotFound):
        open_store(new_database(), create=False)


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "em.store.postgres")
    with pytest.raises(MissingExtra) as caught:
        open_store("postgresql://x/y")
    assert caught.value.fix == "pip install 'em-core[postgres]'"


def test_a_server_that_was_restarted_is_connected_to_again(
    postgres_store: PostgresStore,
) -> None:
    from raw import run_sql

    append(postgres_store, note("1"))
    run_sql(
        postgres_store,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'em' AND datname = current_database()",
    )
    with pytest.raises(StoreUnreachable):
        append(postgres_store, note("lost"))
    append(postgres_store, note("2"))


def test_a_lock_held_too_long_is_said(postgres_store: PostgresStore) -> None:
    import psycopg

    from em.errors import StoreBusy
    from em.store.lanes import WHOLE

    with (
        PostgresStore(postgres_store._url, busy_timeout=0.3) as impatient,
        psycopg.connect(postgres_store._url) as other,
    ):
        other.execute("SELECT pg_advisory_xact_lock(%s)", (WHOLE,))
        with pytest.raises(StoreBusy):
            append(impatient, note("1"))
        other.rollback()
        append(impatient, note("1"))


def test_a_read_only_server_is_one_clear_error(postgres_store: PostgresStore) -> None:
    from em.errors import StoreReadOnly

    address = with_option(postgres_store._url, "default_transaction_read_only=on")
    with PostgresStore(address) as store:
        assert store.health().events == 0
        with pytest.raises(StoreReadOnly):
            append(store, note("1"))


def test_a_password_is_never_told(new_database: Callable[[], str]) -> None:
    for address in (
        "postgresql://ana:PG%ZZSECRET@h/x",
        "postgresql://ana:PG/SECRET@127.0.0.1:1/x",
        "postgresql://ana:PG@SECRET@127.0.0.1:1/x",
    ):
        with pytest.raises(EmError) as caught:
            open_store(address, Settings(busy_timeout=2))
        assert "SECRET" not in str(caught.value)


def test_a_stricter_default_isolation_does_no_harm(postgres_store: PostgresStore) -> None:
    import threading

    address = with_option(postgres_store._url, "default_transaction_isolation=serializable")
    with PostgresStore(address) as store:
        failures: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(20):
                    append(store, note("1"))
            except EmError as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


def test_logs_in_two_schemas_of_one_database_are_apart(new_database: Callable[[], str]) -> None:
    one, other = new_database(), new_database()
    schema = other.rpartition("em_test_")[2].partition("%2C")[0]
    with PostgresStore(one) as store, PostgresStore(other) as apart:
        append(store, note("1"))
        assert apart.health().events == 0
        # The other one's schema is on the path too, behind its own.
        both = one.replace("%2Cpublic", f"%2Cem_test_{schema}%2Cpublic")
        append(apart, note("2"), note("3"))
        with PostgresStore(both) as again:
            assert again.health().events == 1


def test_a_server_that_is_not_there_is_reported_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnreachable):
        PostgresStore("postgresql://ana@127.0.0.1:1/x")
    assert time.monotonic() - began < 10


def test_a_forked_process_opens_connections_of_its_own(postgres_store: PostgresStore) -> None:
    append(postgres_store, note("1"))
    child = os.fork()
    if not child:
        status = 1
        try:
            append(postgres_store, note("2"))
            postgres_store.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    append(postgres_store, note("3"))
    assert postgres_store.health().events == 3
