"""A marker about a subject comes in through every entrance, and is nowhere once forgotten."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from planting import ENTRANCES, Garden

from em import Memory

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
