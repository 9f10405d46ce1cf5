"""What a database holds is data until its user trusts the database."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from em_command import em

from em.errors import UntrustedDatabase
from em.store.postgres import PostgresStore
from em.store.sqlite import SqliteStore
from em.trust import Database

CODE = "def where():\n    open('ran', 'w').close()\n    return 1\n"
WITH_CODE = """
version: "1"
name: code
steps:
  - {id: s1, type: udf.call, function: where, args: {}, save_as: told}
  - {id: s2, type: return, value: "{{ told }}"}
"""
PLAIN = """
version: "1"
name: data
steps:
  - {id: s1, type: return, value: "{{ 41 + 1 }}"}
"""
THEIRS = {"XDG_DATA_HOME": "/nonexistent/theirs"}


@pytest.fixture(autouse=True)
def _nothing_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EM_TRUSTED_FOLDERS")


@pytest.fixture
def foreign(tmp_path: Path) -> str:
    """A memory that somebody else made: a state, and routines with and without Python."""
    folder = tmp_path / "cloned"
    database = ("--db", str(folder / "em.db"))
    folder.mkdir()
    em("observe", "ana", '{"type": "Trip", "city": "Porto"}', *database, **THEIRS)
    assert (
        em("state", "checkpoint", "ana", *database, **THEIRS, EM_TRUSTED_DATABASES=database[1]).code
        == 0
    )
    for name, text in (("code", WITH_CODE), ("data", PLAIN)):
        package = tmp_path / "packages" / name
        package.mkdir(parents=True)
        (package / "routine.yaml").write_text(text)
        if name == "code":
            (package / "udf.py").write_text(CODE)
        ran = em("routine", "accept", str(package), *database, **THEIRS)
        assert ran.code == 0, ran.err
    return database[1]


def test_a_database_that_em_made_here_needs_no_trust() -> None:
    em("observe", "ana", '{"type": "Trip", "city": "Porto"}')
    assert em("state", "checkpoint", "ana").code == 0
    assert "1 record" in em("state", "show", "ana").out
    assert em("trust", "--memory").out.endswith(".em/em.db: is trusted already\n")


def test_a_state_of_a_foreign_database_is_not_run_until_it_is_trusted(foreign: str) -> None:
    for command in (["state", "show", "ana"], ["state", "checkpoint", "ana", "--rebuild"]):
        refused = em(*command, "--db", foreign)
        assert refused.code == 1
        assert "this memory is not on your list of memories" in refused.err
        assert f"em trust --memory --db {foreign}" in refused.err
    assert em("log", "verify", "--db", foreign).code == 0
    assert "Porto" in em("log", "show", "--db", foreign).out
    assert em("trust", "--memory", "--db", foreign).code == 2, "nobody can be asked here"
    report = em("trust", "--memory", "--db", foreign, "--yes", "--json").json
    assert report["artefacts"] == {"routine": 2, "state": 1}
    assert "1 record" in em("state", "show", "ana", "--db", foreign).out
    assert em("trust", "--memory", "--db", foreign, "--revoke").code == 0
    assert em("state", "show", "ana", "--db", foreign, "--json").code == 1


def test_functions_of_a_foreign_database_do_not_run(foreign: str) -> None:
    refused = em("run", "code", "--db", foreign)
    assert "the functions (udf.py) of code@1 did not run" in refused.err
    assert not Path("ran").exists()
    assert "42" in em("run", "data", "--db", foreign).out
    assert em("run", "code", "--trust", "--db", foreign).code == 0
    assert Path("ran").exists()


def test_scripts_trust_by_id_path_or_folder(foreign: str, tmp_path: Path) -> None:
    with SqliteStore(foreign) as store:
        names = [store.database.id, foreign, "cloned/em.db", f"other.db,{foreign}"]
    for name in names:
        shown = em("state", "show", "ana", "--db", foreign, EM_TRUSTED_DATABASES=name)
        assert "1 record" in shown.out, name
    folder = str(tmp_path)
    assert em("state", "show", "ana", "--db", foreign, EM_TRUSTED_FOLDERS=folder).code == 0
    for name in ("other.db", "", ",", str(tmp_path)):
        shown = em("state", "show", "ana", "--db", foreign, EM_TRUSTED_DATABASES=name)
        assert shown.code == 1, name


def test_a_copy_that_comes_back_to_another_place_is_not_trusted() -> None:
    em("observe", "ana", '{"type": "Trip", "city": "Porto"}')
    em("state", "checkpoint", "ana")
    Path("copy").mkdir()
    shutil.copy(".em/em.db", "copy/em.db")
    assert em("state", "show", "ana", "--db", "copy/em.db").code == 1
    assert em("state", "show", "ana").code == 0


def test_postgres_has_an_id_and_is_trusted_where_em_made_it(
    new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address = new_database()
    with PostgresStore(address) as store:
        made = store.database
        assert made.is_trusted
    with PostgresStore(address) as store:
        assert store.database == made
    assert Database(made.id, "postgresql://ana@host/db").is_trusted is False
    monkeypatch.setenv("EM_TRUSTED_DATABASES", "postgresql://ana:secret@host/db?options=-cx")
    assert Database(made.id, "postgresql://ana@host/db").is_trusted
    with pytest.raises(UntrustedDatabase) as caught:
        Database(made.id, "postgresql://bo@host/db").refuse_code("x")
    assert caught.value.code == "untrusted_database"


def test_the_list_does_not_grow_with_databases_that_are_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("em.trust.MANY", 3)
    for n in range(6):
        with SqliteStore(tmp_path / f"{n}.db"):
            pass
        (tmp_path / f"{n}.db").unlink()
    assert len(list((Path(os.environ["XDG_DATA_HOME"]) / "em" / "trusted").iterdir())) <= 4


def test_doctor_tells_that_code_of_a_foreign_memory_does_not_run(foreign: str) -> None:
    told = em("doctor", "--db", foreign, "--json").json["trust"]["memory"]
    assert (told["state"], len(told["ignored"])) == ("not trusted", 2)
    assert f"em trust --memory --db {foreign}" in em("doctor", "--db", foreign).out
    em("trust", "--memory", "--db", foreign, "--yes")
    told = em("doctor", "--db", foreign, "--json").json["trust"]["memory"]
    assert told == {"state": "trusted", "ignored": []}
    assert em("doctor", "--json").json["trust"]["memory"]["state"] == "not made yet"
