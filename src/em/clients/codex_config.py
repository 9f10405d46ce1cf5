"""Codex: hooks in hooks.json, and the hooks feature and the MCP server in config.toml."""

import json
import os
import re
import shlex
import tomllib
from pathlib import Path

from em.clients import hook
from em.clients.claude_plugin import TIMEOUT
from em.clients.installation import Edit, Installation
from em.clients.json_text import Insertion
from em.clients.launch import Launch
from em.errors import UsageError

NAME = "codex"
EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd")
_FEATURES = re.compile(
    r"^[ \t]*\[[ \t]*features[ \t]*\][ \t]*(?:#[^\n]*)?\r?(?:\n|$)", re.MULTILINE
)
_MARK = "# written by `em install codex`"


def config_folder() -> Path:
    """Return the folder of Codex's settings."""
    given = os.environ.get("CODEX_HOME")
    return Path(given) if given else Path.home() / ".codex"


def home_of(config: Path) -> Path:
    """Return em's own folder in Codex's settings."""
    return config / "em"


def installation(launch: Launch, config: Path) -> Installation:
    """Return the hooks and the MCP server in a user's settings."""
    launch = launch.at(home_of(config))
    made = Installation(NAME, home_of(config), launch.socket, config / "skills")
    program = home_of(config) / "em_hook.py"
    made.create(program, Path(hook.__file__).read_text(encoding="utf-8"))
    command = launch.hook_command(shlex.quote(str(program)))
    entry = {"hooks": [{"type": "command", "command": command, "timeout": TIMEOUT}]}
    edits = [Edit(("hooks", event), entry, item=True) for event in EVENTS]
    made.edit(config / "hooks.json", edits)
    file = config / "config.toml"
    made.insert(file, _config(file, made.text_of(file) or "", launch))
    return made


def _config(path: Path, text: str, launch: Launch) -> list[Insertion]:
    """Return what to insert into config.toml."""
    try:
        known = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"expected TOML: {error}", place=str(path)) from None
    if "em" in known.get("mcp_servers", {}):
        raise UsageError(
            "there is an MCP server `em` already", place=str(path), fix="remove or rename it"
        )
    made = []
    features = known.get("features", {})
    if features.get("hooks") is False:
        raise UsageError(
            "hooks are turned off", place=f"{path}, features.hooks", fix="set hooks = true"
        )
    block = ""
    if "hooks" not in features:
        header = _FEATURES.search(text)
        if header is not None:
            line = "" if header.group().endswith("\n") else "\n"
            made.append(Insertion(header.end(), f"{line}hooks = true  {_MARK}\n"))
        elif "features" in known:
            raise UsageError(
                "`features` is not a table of its own", place=str(path), fix="add hooks = true"
            )
        else:
            block = "[features]\nhooks = true\n\n"
    program, *args = launch.mcp
    server = (
        f"[mcp_servers.em]\ncommand = {_toml(program)}\nargs = [{', '.join(map(_toml, args))}]\n"
    )
    size = len(text) + sum(len(one.text) for one in made)
    ends = not text or text.endswith("\n") or bool(made and made[0].at == len(text))
    gap = ("" if ends else "\n") + ("\n" if text else "")
    return [*made, Insertion(size, f"{gap}{_MARK}\n{block}{server}")]


def _toml(text: str) -> str:
    # A JSON string is a basic string of TOML, except for DEL, which no path has.
    return json.dumps(text, ensure_ascii=False)
