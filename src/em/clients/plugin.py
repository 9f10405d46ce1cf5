"""The plugin: one folder for Claude Code and Codex, in a marketplace that both read.

`plugins/em` of em's repository is this plugin as uvx starts it. `em install` writes the same with
the commands of the Python that runs it.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import em
from em.clients import hook
from em.clients.launch import Launch
from em.clients.skill import SKILL

FOLDER = Path("plugins/em")
"""Where the plugin is in the marketplace."""
_CLAUDE_EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolUseFailure", "Stop", "SessionEnd")
"""Calls that went well need no hook: the service reads them in the session's transcript."""
_CODEX_EVENTS = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd")
"""Codex has no event of its own for calls that fail."""
_CLAUDE_UNAWAITED, _CODEX_UNAWAITED = ("SessionStart",), ("SessionStart", "Stop")
"""Events for which em has nothing to tell, so that the agent need not wait.

`claude -p` ends at once after a `Stop` that nobody waits for: the hook is killed, and `SessionEnd`
does not come.
"""
_TIMEOUT = 2
"""Seconds after which an agent ends a hook; the hook itself gives up much earlier."""
_FIRST_START = 120
"""Seconds that Codex waits for the MCP server: uv may have to fetch em."""
_ABOUT = "Executable memory: lessons and routines from earlier sessions"


def marketplace(launch: Launch) -> dict[Path, str]:
    """Return the files of the marketplace, by their paths in it."""
    author = {"name": "em"}
    about = {"name": "em", "version": em.__version__, "description": _ABOUT, "author": author}
    listed = {"name": "em", "source": f"./{FOLDER}", "description": _ABOUT}
    for_codex = {
        "name": "em",
        "source": {"source": "local", "path": f"./{FOLDER}"},
        "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
        "category": "Productivity",
    }
    paths = {"skills": "./skills/", "mcpServers": "./.mcp.json", "hooks": "./hooks/codex.json"}
    program, *args = launch.mcp
    server = {"command": program, "args": args, "startup_timeout_sec": _FIRST_START}
    return {
        Path(".claude-plugin/marketplace.json"): _json(
            {
                "name": "em",
                "owner": author,
                "metadata": {"description": _ABOUT},
                "plugins": [listed],
            }
        ),
        Path(".agents/plugins/marketplace.json"): _json(
            {"name": "em", "interface": {"displayName": "em"}, "plugins": [for_codex]}
        ),
        FOLDER / ".claude-plugin/plugin.json": _json(about),
        FOLDER / ".codex-plugin/plugin.json": _json(about | paths),
        FOLDER / ".mcp.json": _json({"mcpServers": {"em": server}}),
        FOLDER / "hooks/hooks.json": _json(_hooks(launch, _CLAUDE_EVENTS, _CLAUDE_UNAWAITED)),
        FOLDER / "hooks/codex.json": _json(_hooks(launch, _CODEX_EVENTS, _CODEX_UNAWAITED)),
        FOLDER / "hooks/em_hook.py": Path(hook.__file__).read_text(encoding="utf-8"),
        FOLDER / "skills/em/SKILL.md": SKILL,
    }


def _hooks(launch: Launch, events: Sequence[str], unawaited: Sequence[str]) -> dict[str, Any]:
    """Return a file of hooks."""
    command = launch.hook_command('"${CLAUDE_PLUGIN_ROOT}"/hooks/em_hook.py')
    entry = {"type": "command", "command": command, "timeout": _TIMEOUT}
    return {
        "hooks": {
            event: [{"hooks": [{**entry, **({"async": True} if event in unawaited else {})}]}]
            for event in events
        }
    }


def write(folder: Path, files: Mapping[Path, str]) -> None:
    """Write files into a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
