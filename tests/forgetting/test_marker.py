"""A marker about a subject comes in through every entrance, and is nowhere once forgotten."""

import gzip
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from planting import ENTRANCES, Garden

from em import Memory
from em.errors import NotFound

ANA, BOB = "quokkaana", "wombatbob"


def embed(texts: list[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0, 0.5] for text in texts]


def found_in(text: str) -> set[str]:
    return set(re.findall(f"(?:{ANA}|{BOB})[a-z]*", text.lower()))


def in_files(folder: Path) -> set[str]:
    """Every marker in every byte of every file: database, write-ahead log, queue, vectors."""
    # Read by another process: closing a file here would end this process's locks on it.
    files = sorted(str(path) for path in folder.rglob("*") if path.is_file())
    raw = subprocess.run(["cat", *files], capture_output=True, check=True).stdout
    return found_in(raw.decode("latin-1"))


def in_tables(address: str) -> set[str]:
    """Every marker in every row of every table of the database's schemas."""
    found: set[str] = set()
    with psycopg.connect(address) as connection:
        tables = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables"
            " WHERE table_type = 'BASE TABLE' AND table_schema IN (current_schema(), 'em_queue')"
        ).fetchall()
        assert ("events",) in [row[1:] for row in tables]
        for schema, table in tables:
            rows = connection.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall()
            found |= found_in(repr(rows))
    return found


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_forgotten_marker_is_nowhere_and_another_subjects_is_untouched(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = tmp_path / "database"
    folder.mkdir()
    db = str(folder / "em.db")
    if backend == "postgres":
        new_database: Callable[[], str] = request.getfixturevalue("new_database")
        db = new_database()

    def held() -> set[str]:
        return in_files(folder) if backend == "sqlite" else in_tables(db)

    with Memory(db, embedder=embed) as memory:
        for entrance in ENTRANCES:
            for stem, who in ((ANA, "ana"), (BOB, "bob")):
                garden = Garden(memory, tmp_path, stem, who, db)
                entrance(garden)
                assert garden.markers <= held(), entrance
        planted = held()
        listed = memory.forget(subject="ana", dry_run=True)
        assert held() == planted
        erasure = memory.forget(subject="ana")
        assert erasure.gone == listed.gone
        assert erasure.scrubbed, erasure.scrub_problem
        left = held()
        assert {one for one in left if one.startswith(ANA)} == set()
        assert left == {one for one in planted if one.startswith(BOB)}
        assert memory.log.verify().ok
        assert memory.recall("lives", subject="bob")[0].text


def test_a_marker_of_an_older_database_is_found_and_forgotten(tmp_path: Path) -> None:
    """The database was written by em of schema 4, whose runs had no subjects and stated no edges.

    It has observations, records, states, traces, lessons, a compiled routine with its runs,
    workflows that recalled one subject and read each other's runs, with an inner run and a call
    with an effect, and responses of the service, about ana and about bob.
    """
    folder = tmp_path / "database"
    folder.mkdir()
    packed = Path(__file__).with_name("schema_4.db.gz").read_bytes()
    (folder / "em.db").write_bytes(gzip.decompress(packed))
    planted = in_files(folder)
    assert len({one for one in planted if one.startswith(ANA)}) > 15
    with Memory(folder / "em.db") as memory:
        assert memory.log.verify().ok
        runs = {event.stream for event in memory.log.read(kinds="workflow_started")}
        erasure = memory.forget(subject="ana")
        assert erasure.scrubbed
        left = in_files(folder)
        assert {one for one in left if one.startswith(ANA)} == set()
        assert left == {one for one in planted if one.startswith(BOB)}
        assert memory.log.verify().ok
        # What the call with an effect did is not known any more: it is not made again.
        cut = {event.stream for event in memory.log.read() if event.erased} & runs
        flow = memory.workflows()
        for stream in cut:
            run_id = stream.removeprefix("run/")
            with suppress(NotFound):
                assert flow.result(run_id).status in ("ok", "forgotten")
