"""`em traces secrets` finds what stands in transcripts, and shows none of it."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.em_command import em

from em.clients import exposure
from em.clients.exposure import look, place_of_copy, places, write_copy
from em.redaction.masker import Echoes
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


def test_copies_have_none_of_them_also_where_nothing_tells_that_it_is_one(home: Path) -> None:
    original = home / ".claude/projects/shop/s1.jsonl"
    before = original.read_bytes()
    done = em("traces", "secrets", "--redact", "-o", "clean", "--json")
    (file,) = done.json["files"]
    copy = Path("clean/.claude/projects/shop/s1.jsonl")
    assert (file["copy"], original.read_bytes()) == (str(copy), before)
    assert [path for path in Path("clean").rglob("*") if path.is_file()] == [copy]
    assert copy.stat().st_mode & 0o077 == 0
    text = copy.read_text()
    assert not any(secret in text for secret in (KEY, PASSWORD))
    first, *others = text.splitlines(keepends=True)
    assert first == CLEAN  # byte for byte
    assert [json.loads(line)["type"] for line in others] == ["user", "assistant", "assistant"]
    assert "[redacted:anthropic-key], é" in others[0]
    assert em("traces", "secrets", str(copy), "--json").json["files"] == []
    again = em("traces", "secrets", "--redact", "-o", "clean")
    assert (again.code, copy.read_text()) == (2, text)


def test_a_copy_never_replaces_a_file(home: Path, tmp_path: Path) -> None:
    path = home / ".claude/projects/shop/s1.jsonl"
    with pytest.raises(exposure.UsageError):
        write_copy(path, path, Redactor(), Echoes())
    refused = em("traces", "secrets", "--redact", "-o", str(home))
    assert (refused.code, KEY in path.read_text()) == (2, True)
    assert em("traces", "secrets", "-o", "clean").code == 2


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
    echoes = Echoes()
    looked = look(path, Redactor(), echoes, lambda _count: None)
    assert [(one.kind, one.times, one.line) for one in looked.found] == [("token", 120, 1)]
    write_copy(path, tmp_path / "copy.json", Redactor(), echoes)
    copied: Any = json.loads((tmp_path / "copy.json").read_text())
    assert PASSWORD not in str(copied)
    assert len(copied["others"]) == 60


def test_lines_that_are_no_json_and_no_text_are_looked_at_too(tmp_path: Path) -> None:
    path = tmp_path / "odd.txt"
    path.write_bytes(b'\xff{"half\n' + f"key {KEY}\xff\n".encode("latin-1") + b"\n\n")
    echoes = Echoes()
    assert [one.line for one in look(path, Redactor(), echoes, lambda _count: None).found] == [2]
    write_copy(path, tmp_path / "copy", Redactor(), echoes)
    assert (tmp_path / "copy").read_bytes() == path.read_bytes().replace(
        KEY.encode(), b"[redacted:anthropic-key]"
    )


def test_who_interrupts_a_copy_finds_no_half_of_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_args: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(exposure, "_without_secrets", interrupted)
    path = home / ".claude/projects/shop/s1.jsonl"
    with pytest.raises(KeyboardInterrupt):
        write_copy(path, home / "clean" / "s1.jsonl", Redactor(), Echoes())
    assert [*(home / "clean").iterdir()] == []


def test_the_sessions_of_a_database_are_looked_at_and_copied_as_lines(home: Path) -> None:
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
    echoes = Echoes()
    looked = look(path, Redactor(), echoes, lambda _count: None)
    assert [(one.kind, one.line) for one in looked.found] == [("anthropic-key", 1)]
    copy = place_of_copy(path, home / "clean")
    assert copy == home / "clean/.local/share/opencode/opencode.db.jsonl"
    write_copy(path, copy, Redactor(), echoes)
    (line,) = copy.read_text().splitlines()
    assert "[redacted:anthropic-key]" in line
