"""`em install` shows each change, makes only those, and `em uninstall` restores every byte."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.em_command import em, on_terminal

from em.cli.install import refresh_skills
from em.cli.root import root

SETTINGS = (
    '{\n\t"model": "opus",   "env": {"TOKEN": "s3cret"},\r\n\t"enabledPlugins": {"a@b": true}\n}'
)
HOOKS = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}\n'
CONFIG = 'model = "gpt-5" # mine\n\n[features] # these\nweb = true\n[projects."/x"]\ntrust = "é"'

OPENCODE = '{\n  // mine\n  "model": "a/b", // é\n\t"mcp": {"x": {"type": "remote",},},\r\n}'
CLIENTS = ["claude-code", "codex", "opencode"]


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
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(params=["bare", "used"])
def used(request: pytest.FixtureRequest, home: Path) -> Path:
    """A home in which the programs never ran, and one with settings of a person."""
    if request.param == "used":
        for name, text in (
            (".claude/settings.json", SETTINGS),
            (".claude/plugins/installed_plugins.json", '{"version": 2, "plugins": {"a@b": []}}'),
            (".codex/hooks.json", HOOKS),
            (".codex/config.toml", CONFIG),
            (".config/opencode/opencode.jsonc", OPENCODE),
        ):
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
            path.chmod(0o640)
    return home


@pytest.mark.parametrize("client", CLIENTS)
def test_installing_and_uninstalling_leaves_every_byte_as_it_was(used: Path, client: str) -> None:
    before = contents(used)
    assert em("install", client, "--dry-run").code == 0
    assert contents(used) == before
    assert em("install", client, "--yes").code == 0
    installed = contents(used)
    assert installed != before
    again = em("install", client)  # there is nothing to ask
    assert (again.code, "already installed" in again.out) == (0, True), again
    assert em("install", client, "--yes", "--json").json["files"] == []
    assert contents(used) == installed
    assert em("uninstall", client, "--yes").code == 0
    assert contents(used) == before


def ems_files(home: Path, *, own: bool = False) -> list[Path]:
    """The files that em changed; only those that are its own."""
    note = json.loads(next(home.rglob("installed-by-em.json")).read_text())
    files = note["files"]
    return [
        Path(file["path"])
        for file in files
        if not own or not (file.get("edits") or file.get("insertions"))
    ]


@pytest.mark.parametrize("client", CLIENTS)
def test_installing_again_mends_what_was_changed_or_deleted(used: Path, client: str) -> None:
    before = contents(used)
    em("install", client, "--yes")
    installed = contents(used)
    for path in ems_files(used, own=True):
        path.write_bytes(b"changed" + path.read_bytes())
        assert em("install", client, "--yes").code == 0
        assert contents(used) == installed, path
        path.unlink()
        assert em("install", client, "--yes").code == 0
        assert contents(used) == installed, path
    assert em("uninstall", client, "--yes").code == 0
    assert contents(used) == before


@pytest.mark.parametrize("client", CLIENTS)
def test_installing_for_another_memory_changes_only_that(used: Path, client: str) -> None:
    before = contents(used)
    em("install", client, "--yes")
    shown = em("install", client, "--db", "other.db", "--dry-run")
    assert (shown.code, "other.db" in shown.out) == (0, True)
    assert em("install", client, "--db", "other.db", "--yes").code == 0
    texts = [path.read_text() for path in ems_files(used)]
    assert any("other.db" in text for text in texts)
    assert not any("/.em/em.db" in text for text in texts)
    assert em("install", client, "--db", "other.db").code == 0
    assert em("uninstall", client, "--yes").code == 0
    assert contents(used) == before


def test_installing_again_brings_a_persons_settings_back_to_what_em_needs(used: Path) -> None:
    em("install", "claude-code", "--yes")
    path = used / ".claude/settings.json"
    settings = json.loads(path.read_text()) | {"theme": "dark"}
    del settings["enabledPlugins"]["em@em"]
    path.write_text(json.dumps(settings))
    assert em("install", "claude-code", "--yes").code == 0
    mended = json.loads(path.read_text())
    assert (mended["enabledPlugins"]["em@em"], mended["theme"]) == (True, "dark")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_person_sees_every_change_and_may_decline(used: Path, client: str) -> None:
    before = contents(used)
    shown = on_terminal("install", client, typed="n\n")
    assert contents(used) == before
    assert em("install", client, "--yes").code == 0
    for name in contents(used).keys() - before.keys():
        path = used / name
        if path.is_file() and path.name != "installed-by-em.json":
            assert f"+++ {path}" in shown, name


def test_the_settings_have_what_they_had_and_ems_part(used: Path) -> None:
    had = {} if not (used / ".claude").exists() else json.loads(SETTINGS)
    em("install", "claude-code", "--yes")
    em("install", "codex", "--yes")
    settings = json.loads((used / ".claude/settings.json").read_text())
    assert settings["enabledPlugins"].pop("em@em") is True
    assert settings.pop("extraKnownMarketplaces")["em"]["source"]["source"] == "directory"
    assert settings == {"enabledPlugins": {}, **had}
    config = tomllib.loads((used / ".codex/config.toml").read_text())
    assert config["features"]["hooks"] is True
    server = config["mcp_servers"]["em"]
    assert server["args"][-1] == "mcp"
    hooks = json.loads((used / ".codex/hooks.json").read_text())["hooks"]
    assert "em_hook.py" in hooks["Stop"][-1]["hooks"][0]["command"]
    assert len(hooks["Stop"]) == (2 if had else 1)


def test_what_a_person_changed_since_stays(used: Path) -> None:
    em("install", "claude-code", "--yes")
    em("install", "codex", "--yes")
    settings = used / ".claude/settings.json"
    changed = json.loads(settings.read_text()) | {"theme": "dark"}
    settings.write_text(json.dumps(changed, indent=4))
    config = used / ".codex/config.toml"
    config.write_text("# a new line\n" + config.read_text())
    assert em("uninstall", "claude-code", "--yes").code == 0
    assert em("uninstall", "codex", "--yes").code == 0
    left = json.loads(settings.read_text())
    assert left.pop("theme") == "dark"
    assert "em" not in str(left).replace("model", "")
    text = config.read_text()
    assert text.startswith("# a new line\n")
    assert "mcp_servers" not in text
    assert "hooks" not in text


def test_a_file_that_cannot_be_undone_is_named_and_left(used: Path) -> None:
    em("install", "codex", "--yes")
    config = used / ".codex/config.toml"
    config.write_text(config.read_text().replace("command =", "command  ="))
    text = config.read_text()
    ran = em("uninstall", "codex", "--yes")
    assert (ran.code, str(config) in ran.err) == (1, True)
    assert config.read_text() == text


@pytest.mark.parametrize(
    ("name", "text", "client", "why"),
    [
        (".claude/settings.json", "{ // mine\n}", "claude-code", "expected JSON"),
        (".claude/settings.json", "", "claude-code", "the file is empty"),
        (".codex/config.toml", "model = ", "codex", "expected TOML"),
        (".codex/config.toml", "[features]\nhooks = false\n", "codex", "hooks are turned off"),
        (".codex/config.toml", "features.web = true\n", "codex", "not a table of its own"),
        (".codex/config.toml", "[mcp_servers.em]\ncommand='x'\n", "codex", "MCP server `em`"),
    ],
)
def test_settings_that_cannot_be_edited_safely_are_refused_untouched(
    home: Path, name: str, text: str, client: str, why: str
) -> None:
    path = home / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    before = contents(home)
    ran = em("install", client, "--yes")
    assert (ran.code, why in ran.err, str(path) in ran.err) == (2, True, True), ran.err
    assert contents(home) == before


def test_a_plugin_folder_of_its_own(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    assert em("install", "claude-code", "--to", str(folder), "--yes").code == 0
    assert not (home / ".claude").exists()
    assert (folder / ".claude-plugin/plugin.json").exists()
    assert (folder / "skills/em/SKILL.md").exists()
    server = json.loads((folder / ".mcp.json").read_text())["mcpServers"]["em"]
    assert str(tmp_path / ".em" / "em.db") in server["args"]
    assert em("uninstall", "claude-code", "--from", str(folder), "--yes").code == 0
    assert not folder.exists()


def test_no_password_is_written_and_what_is_not_installed_is_not_found(home: Path) -> None:
    ran = em("install", "codex", "--yes", "--db", "postgresql://u:pw@host/db")
    assert (ran.code, "pw" in ran.out + ran.err.replace("password", "")) == (2, False)
    assert em("uninstall", "codex", "--yes").code == 1
    assert contents(home) == {}


GOAL = "count the pending orders"


def keep(name: str, customer: str = "ana@example.org") -> None:
    """Keep a routine of a recording in the memory of this folder."""
    path = Path("trace.json")
    calls = [
        ("list_orders", {"shop": customer}, [customer]),
        ("save_count", {"of": customer}, "ok"),
    ]
    events = [
        {"type": "tool_call", "tool": tool, "args": args, "result": result}
        for tool, args, result in calls
    ]
    trace = {
        "version": "1",
        "mission": {"goal": f"{GOAL} of {customer}"},
        "input": {"customer": customer},
        "events": events,
        "outcome": "success",
    }
    path.write_text(json.dumps(trace))
    ran = em("compile", str(path), "--keep", "--name", name)
    assert ran.code == 0, ran.err


SKILLS = {
    "claude-code": ".claude/plugins/em/skills",
    "codex": ".codex/skills",
    "opencode": ".config/opencode/skills",
}


@pytest.mark.parametrize("client", CLIENTS)
def test_skills_follow_the_routines_and_leave_with_em(used: Path, client: str) -> None:
    before = contents(used)
    folder = used / SKILLS[client]
    keep("count_orders")
    shown = em("install", client, "--dry-run").out
    assert "em-count-orders/SKILL.md" in shown
    em("install", client, "--yes")
    text = (folder / "em-count-orders/SKILL.md").read_text()
    assert text.startswith("---\nname: em-count-orders\ndescription: ")
    assert "the tool `count_orders` of the MCP server `em`" in text
    assert "ana" not in text
    keep("list_all")
    assert (folder / "em-list-all/SKILL.md").exists()
    assert em("routine", "retire", "count_orders").code == 0
    assert not (folder / "em-count-orders").exists()
    assert em("uninstall", client, "--yes").code == 0
    assert contents(used) == before


def test_a_skill_of_somebody_else_and_a_changed_one_stay(used: Path) -> None:
    mine = used / ".codex/skills/em-mine/SKILL.md"
    mine.parent.mkdir(parents=True)
    mine.write_text("my own")
    keep("mine")
    keep("theirs")
    em("install", "codex", "--yes")
    assert mine.read_text() == "my own"
    changed = used / ".codex/skills/em-theirs/SKILL.md"
    changed.write_text(changed.read_text() + "\nAsk Bo first.\n")
    keep("theirs", "bo@example.org")
    assert "Ask Bo first." in changed.read_text()
    ran = em("uninstall", "codex", "--yes")
    assert (ran.code, str(changed) in ran.err) == (1, True)
    assert mine.read_text() == "my own"


def test_a_skill_that_cannot_be_written_does_not_undo_the_command(home: Path) -> None:
    em("install", "codex", "--yes")
    (home / ".codex/skills").write_text("a file where a folder should be")
    keep("count_orders")
    assert "count_orders" in em("routine", "list").out


def test_a_password_in_the_address_of_a_memory_stops_no_other_command() -> None:
    with root.make_context("em", ["--db", "postgresql://u:pw@host/db", "routine"]) as context:
        context.obj = {"db": "postgresql://u:pw@host/db", "json": False}
        refresh_skills()
