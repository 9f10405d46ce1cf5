"""`em doctor` finds what is wrong with an installation, and says how to mend it."""

import json
import shutil
import sqlite3
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from em import Memory
from em.cli import doctor
from em.cli.root import run
from em.clients.installation import AGENTS
from em.clients.plugin import launch_of, write
from em.runner.sandbox import sandbox
from em.store import migrations
from em.store.sqlite import SqliteStore


@pytest.fixture
def report(capfd: pytest.CaptureFixture[str]) -> Any:
    """Return what doctor finds, as JSON."""

    def ask(*arguments: str) -> Any:
        capfd.readouterr()
        code = run(["doctor", "--json", *arguments])
        found = json.loads(capfd.readouterr().out)
        assert code == (1 if found["problems"] else 0)
        assert found["ok"] is not bool(found["problems"])
        return found

    return ask


def problem(found: Any) -> str:
    (only,) = found["problems"]
    return str(only)


@pytest.mark.parametrize(
    ("settings", "extra"),
    [
        ("embed: {use: local}", "embed"),
        ("llm: {provider: openai}", "openai"),
        ("llm: {provider: mine}\nproviders: {mine: {protocol: anthropic}}", "anthropic"),
    ],
)
def test_an_extra_that_the_settings_need_is_named(
    settings: str, extra: str, report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("em.yaml").write_text(settings + "\n")
    assert report()["problems"] == []
    there = doctor._has
    monkeypatch.setattr(doctor, "_has", lambda name: name != doctor.EXTRAS[extra] and there(name))
    assert f"pip install 'em-core[{extra}]'" in problem(report())
    Path("em.yaml").write_text("record: false\n")
    assert report()["problems"] == []


def test_a_memory_that_can_only_be_read_is_a_problem(
    report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Memory().close()
    health = SqliteStore.health

    def read_only(self: SqliteStore, *, deep: bool = False) -> Any:
        self._read_only = True  # as the store finds it in a folder of somebody else
        return health(self, deep=deep)

    monkeypatch.setattr(SqliteStore, "health", read_only)
    assert "can only be read: give yourself the right" in problem(report())


def test_a_folder_in_which_no_memory_can_be_made_is_a_problem(
    report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert report("--db", "made/later/em.db")["problems"] == []
    monkeypatch.setattr(doctor.os, "access", lambda _path, _how: False)
    told = problem(report("--db", "made/later/em.db"))
    assert f"no memory can be made in {Path.cwd()}" in told
    assert "EM_DB" in told


def test_a_newer_schema_needs_a_newer_em(report: Any) -> None:
    Memory("em.db").close()
    with closing(sqlite3.connect("em.db")) as connection, connection:
        connection.execute(f"PRAGMA user_version = {migrations.NEWEST + 1}")
    told = problem(report("--db", "em.db"))
    assert f"schema {migrations.NEWEST + 1}" in told
    assert "upgrade em-core" in told


def test_hooks_that_start_a_program_that_is_gone_are_found(
    report: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    (tmp_path / "codex").mkdir()
    assert report()["clients"] == {}
    launch = launch_of(str(tmp_path / "em.db"))

    def installed(program: str) -> None:
        noted = msgspec.structs.replace(launch, em=[program, *launch.em[1:]])
        text = msgspec.json.encode(noted).decode()
        write(AGENTS["codex"].home, {Path("launch.json"): text})

    installed(sys.executable)
    assert report()["clients"] == {"codex": "works"}
    gone = str(tmp_path / "old venv" / "bin" / "python")
    installed(gone)
    told = problem(report())
    assert f"codex starts em by {gone}, which is not there" in told
    assert "run `em install codex` again" in told
    bare = tmp_path / "bare"
    bare.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S -c 'import em'\n")
    bare.chmod(0o755)
    installed(str(bare))
    assert f"starts em by {bare}, which has no em" in problem(report())


def test_a_missing_sandbox_is_a_note(report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing(NamedTuple):
        name: str

        def missing(self) -> str:
            return "bwrap is not installed (Debian: apt install bubblewrap)"

    monkeypatch.setattr(sandbox, "backends", lambda: [Missing("monty"), Missing("bubblewrap")])
    found = report()
    assert found["problems"] == []
    assert "apt install bubblewrap" in found["notes"][0]
    assert "pip install 'em-core[sandbox]'" in found["notes"][1]


def test_a_clock_that_is_behind_and_a_full_disk_are_problems(
    report: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memory() as memory:
        memory.observe("ana", "I moved")
    assert report()["problems"] == []
    with monkeypatch.context() as patch:
        patch.setattr(doctor, "CLOCKS_DIFFER", timedelta(days=-1))
        assert "set the clock of this machine" in problem(report())
    full = shutil.disk_usage(".")._replace(free=1_000)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _path: full)
    assert "1,000 bytes free: delete something" in problem(report())
