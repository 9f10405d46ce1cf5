"""`em install` writes the plugin and lets the agent add it; `em uninstall` removes both."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.em_command import em

from em.clients.plugin import marketplace, published

CLIENTS = ["claude-code", "codex", "opencode"]
PROGRAMS = {"claude-code": "claude", "codex": "codex", "opencode": ""}
HOMES = {"claude-code": ".claude/em", "codex": ".codex/em", "opencode": ".config/opencode/em"}
PROGRAM = """#!/bin/sh
echo "$@" >> "$HOME/asked"
test ! -e "$HOME/refuses" || { cat "$HOME/refuses" >&2; exit 3; }
"""


def contents(folder: Path) -> dict[str, Any]:
    """Every file and folder below a folder, with its bytes and permissions."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the programs of the agents, which note how they are called."""
    home = tmp_path / "home"
    programs = tmp_path / "programs"
    for folder in (home, programs):
        folder.mkdir()
    for name in filter(None, PROGRAMS.values()):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def asked(home: Path) -> list[str]:
    """How the agent's program was called since the last look."""
    file = home / "asked"
    lines = file.read_text().splitlines() if file.exists() else []
    file.unlink(missing_ok=True)
    return lines


ADDED = {
    "claude-code": ["plugin marketplace add {}", "plugin install em@em"],
    "codex": ["plugin marketplace add {}", "plugin add em@em"],
    "opencode": [],
}
REMOVED = {
    "claude-code": ["plugin uninstall em@em", "plugin marketplace remove em"],
    "codex": ["plugin remove em@em", "plugin marketplace remove em"],
    "opencode": [],
}


@pytest.mark.parametrize("client", CLIENTS)
def test_the_agent_adds_the_plugin_and_removes_it(home: Path, client: str) -> None:
    before = contents(home)
    folder = home / HOMES[client]
    added = [line.format(folder) for line in ADDED[client]]
    planned = em("install", client, "--dry-run")
    assert (planned.code, contents(home)) == (0, before)
    assert all(line in planned.out for line in [*added, str(folder / "launch.json")])
    done = em("install", client, "--json").json  # nothing is asked
    assert str(folder / "launch.json") in done["files"]
    assert asked(home) == added
    installed = contents(home)
    assert em("install", client, "--json").json["files"] == []
    assert (asked(home), contents(home)) == (added, installed)
    assert em("uninstall", client).code == 0
    assert asked(home) == REMOVED[client]
    assert [path for path in home.rglob("*") if path.is_file()] == []
    again = em("uninstall", client)
    assert (again.code, asked(home)) == (1, [])


@pytest.mark.parametrize("client", CLIENTS)
def test_installing_again_mends_what_was_changed_or_deleted(home: Path, client: str) -> None:
    em("install", client)
    installed, files = contents(home), em("install", client, "--db", "other.db", "--dry-run")
    assert "launch.json" in files.out
    for path in [path for path in home.rglob("*") if path.is_file() and path.name != "asked"]:
        if path.name == "em.js":
            path.write_text(path.read_text() + "changed")
        else:
            path.write_bytes(b"changed" + path.read_bytes())
        asked(home)
        assert em("install", client).code == 0
        path.unlink()
        assert em("install", client).code == 0
    asked(home)
    assert contents(home) == {k: v for k, v in installed.items() if k != "asked"}


def test_a_changed_plugin_is_added_anew_since_the_agent_has_a_copy(home: Path) -> None:
    em("install", "codex")
    asked(home)
    assert em("install", "codex", "--db", "other.db").code == 0
    folder = home / HOMES["codex"]
    assert asked(home) == [REMOVED["codex"][0], *(line.format(folder) for line in ADDED["codex"])]
    files = [path.read_text() for path in folder.rglob("*.json")]
    assert any("other.db" in text for text in files)
    assert not any("/.em/em.db" in text for text in files)


def test_what_the_agent_says_against_it_is_shown(home: Path) -> None:
    (home / "refuses").write_text("marketplace 'em' is already added from a different source\n")
    ran = em("install", "codex")
    assert (ran.code, "already added from a different source" in ran.err) == (2, True)
    assert "codex plugin marketplace add" in ran.err
    (home / "refuses").unlink()
    assert em("install", "codex").code == 0


def test_an_agent_that_is_not_there_is_not_installed_into(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for client in ("claude-code", "codex"):
        ran = em("install", client)
        assert (ran.code, f"`{PROGRAMS[client]}`" in ran.err) == (2, True)
    assert contents(home) == {}


def test_a_program_of_somebody_else_in_opencodes_folder_stays(home: Path) -> None:
    theirs = home / ".config/opencode/plugins/em.js"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("export const Mine = 1\n")
    before = contents(home)
    ran = em("install", "opencode")
    assert (ran.code, str(theirs) in ran.err) == (2, True)
    assert contents(home) == before


def test_no_password_is_written_and_what_is_not_installed_is_not_found(home: Path) -> None:
    ran = em("install", "codex", "--db", "postgresql://u:pw@host/db")
    assert (ran.code, "pw" in ran.out + ran.err.replace("password", "")) == (2, False)
    assert em("uninstall", "codex").code == 1
    assert contents(home) == {}


def test_the_plugin_of_the_repository_is_the_one_that_uv_starts() -> None:
    root = Path(__file__).parents[2]
    for name, text in marketplace(published()).items():
        assert (root / name).read_text() == text, f"run `make plugin`: {name} differs"


def test_the_hooks_of_both_agents_are_events_that_they_have() -> None:
    files = marketplace(published())
    hooks = {
        path.name: json.loads(text)["hooks"]
        for path, text in files.items()
        if path.parent.name == "hooks" and path.suffix == ".json"
    }
    assert "PostToolUseFailure" in hooks["hooks.json"]
    assert "PostToolUseFailure" not in hooks["codex.json"]
