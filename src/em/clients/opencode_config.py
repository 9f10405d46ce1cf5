"""opencode: a plugin that passes events to em's hook, and the MCP server in opencode.json."""

import json
import os
from pathlib import Path

from em.clients import hook
from em.clients.installation import Edit, Installation
from em.clients.launch import Launch

NAME = "opencode"
_SCHEMA = {"$schema": "https://opencode.ai/config.json"}
_HOOKS = Path(__file__).with_name("opencode_hooks.js")
_COMMAND = '"em\'s hook"'
"""What stands in the plugin for the command of the hook."""


def config_folder() -> Path:
    """Return the folder of opencode's settings."""
    given = os.environ.get("XDG_CONFIG_HOME")
    return (Path(given) if given else Path.home() / ".config") / "opencode"


def home_of(config: Path) -> Path:
    """Return em's own folder in opencode's settings."""
    return config / "em"


def installation(launch: Launch, config: Path) -> Installation:
    """Return the plugin and the MCP server in a user's settings."""
    launch = launch.at(home_of(config))
    made = Installation(NAME, home_of(config), launch.socket, config / "skills")
    program = home_of(config) / "em_hook.py"
    made.create(program, Path(hook.__file__).read_text(encoding="utf-8"))
    command = json.dumps(launch.hook(str(program)), ensure_ascii=False)
    code = _HOOKS.read_text(encoding="utf-8")
    made.create(config / "plugins" / "em.js", code.replace(_COMMAND, command))
    server = {"type": "local", "command": launch.mcp, "enabled": True}
    made.edit(_settings(config), [Edit(("mcp", "em"), server)], skeleton=_SCHEMA, comments=True)
    return made


def _settings(config: Path) -> Path:
    """Return the file of settings: opencode reads both, and both may have comments."""
    with_comments = config / "opencode.jsonc"
    return with_comments if with_comments.exists() else config / "opencode.json"
