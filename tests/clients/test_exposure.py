"""`em traces secrets` finds what stands in transcripts, and shows none of it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.em_command import em

from em.clients import exposure
from em.clients.exposure import look, places
from em.redaction.redactor import Redactor

KEY = f"sk-ant-api03-{'aB3dE5fG7h' * 9}xyzAA"
PASSWORD = "hunter2Xk9q"
LINES = [
    {"type": "user", "message": {"content": f"my key is {KEY}, é"}},
    {"type": "assistant", "message": {"content": f"export DB_PASSWORD={PASSWORD}"}},
    {"type": "assistant", "message": {"content": f"again {KEY} and {PASSWORD}"}, "n": 1.50},
]
CLEAN = '{"type": "user",  "n": 1.50}\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with sessions of Claude Code, of which one has secrets."""
    home = tmp_path / "home"
    sessions = home / ".claude" / "projects" / "shop"
    sessions.mkdir(parents=True)
    text = CLEAN + "".join(json.dumps(line) + "\n" for line in LINES)
    (sessions / "s1.jsonl").write_text(text)
    (sessions / "s2.jsonl").write_text(CLEAN)
    (sessions / "empty.jsonl").touch()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def test_they_are_listed_by_file_and_kind_and_not_shown(home: Path) -> None:
    before = {path: path.read_bytes() for path in home.rglob("*.jsonl")}
    shown = em("traces", "secrets")
    told = em("traces", "secrets", "--json")
    assert (shown.code, told.code, shown.err) == (0, 0, "")
    for text in (shown.out, told.out):
        assert "s1.jsonl" in text
        assert not any(secret in text for secret in (KEY, PASSWORD, KEY[:20]))
    (file,) = told.json["files"]
    assert told.json["looked_at"] == 3
    assert file["found"] == [
        {"kind": "DB_PASSWORD", "different": 1, "times": 1, "line": 3},
        {"kind": "anthropic-key", "different": 1, "times": 2, "line": 2},
    ]
    assert {path: path.read_bytes() for path in home.rglob("*.jsonl")} == before
    assert not [*Path().rglob("*.db")]  # nothing is imported


def test_what_is_not_there_or_can_not_be_read_is_said(home: Path) -> None:
    typo = em("traces", "secrets", str(home / ".claud"))
    assert (typo.code, ".claud" in typo.err) == (1, True)
    empty = em("traces", "secrets", str(home / ".claude/projects/shop/empty.jsonl"), "--json")
    assert empty.json == {"files": [], "looked_at": 1}
    packed = home / ".claude/projects/shop/packed.jsonl"
    packed.write_bytes(b"\x1f\x8b" + b"x" * 100)
    assert em("traces", "secrets", str(packed)).code == 2
    (file,) = [one for one in em("traces", "secrets", "--json").json["files"] if one["skipped"]]
    assert file["path"] == str(packed)


def test_where_no_agent_is_there_is_nothing_to_look_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert places() == []
    assert em("traces", "secrets", "--json").json == {"files": [], "looked_at": 0}


def test_a_long_line_is_read_in_pieces_with_no_secret_cut_in_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposure, "_LONGEST", 200)
    texts = [f"word {'x' * n} token={PASSWORD}{n} " for n in range(60)]
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"content": "".join(texts), "others": texts}))
    looked = look(path, Redactor(), lambda _count: None)
    assert [(one.kind, one.times, one.line) for one in looked.found] == [("token", 120, 1)]


def test_lines_that_are_no_json_and_no_text_are_looked_at_too(tmp_path: Path) -> None:
    path = tmp_path / "odd.txt"
    path.write_bytes(b'\xff{"half\n' + f"key {KEY}\xff\n".encode("latin-1") + b"\n\n")
    assert [one.line for one in look(path, Redactor(), lambda _count: None).found] == [2]


def test_the_sessions_of_a_database_are_looked_at_as_lines(home: Path) -> None:
    folder = home / ".local" / "share" / "opencode"
    folder.mkdir(parents=True)
    path = folder / "opencode.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(
            "CREATE TABLE session (id, project_id, parent_id, directory, title, version,"
            " time_created, time_updated, data);"
            "CREATE TABLE message (id, session_id, time_created, data);"
            "CREATE TABLE part (id, message_id, session_id, time_created, data);"
            "INSERT INTO session VALUES ('s', 'p', NULL, '/x', 't', '1', 1, 1, '{}');"
            """INSERT INTO message VALUES ('m', 's', 1, '{"role": "user"}');"""
        )
        database.execute(
            "INSERT INTO part VALUES ('q', 'm', 's', 1, ?)",
            [json.dumps({"type": "text", "text": f"use {KEY}"})],
        )
    assert folder in places()
    looked = look(path, Redactor(), lambda _count: None)
    assert [(one.kind, one.line) for one in looked.found] == [("anthropic-key", 1)]
