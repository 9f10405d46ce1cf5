"""The plugin: one folder for Claude Code and Codex, and the commands with which it starts em.

`plugins/em` of em's repository is this plugin as uvx starts it, in a marketplace that both agents
read. `em install` writes the same with the commands of the Python that runs it.
"""

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import em
from em.clients import hook
from em.clients.skill import SKILL
from em.errors import StoreError


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """The commands for one memory.

    em: the command of em with its memory. python: the command that runs the hook's program.
    socket: where the service listens: a path, or a name in the folder of the user's sockets.
    folder: where em.yaml of this memory is.
    """

    em: Sequence[str]
    python: Sequence[str]
    socket: str
    folder: str

    @property
    def mcp(self) -> list[str]:
        """The command of the MCP server."""
        return [*self.em, "mcp", "--beside-hooks"]

    @property
    def service(self) -> list[str]:
        """The command of the service that answers hooks."""
        return [*self.em, "hooks", "--socket", self.socket]

    @property
    def proposer(self) -> list[str]:
        """The command that proposes what recurs; the traces to look at are to be added."""
        # Agents don't say whether they succeeded: those that failed are left out.
        return [*self.em, "routine", "suggest", "--allow-unlabelled", "--propose"]

    def hook(self, file: str) -> list[str]:
        """Return the command of a hook; `file` is the path of the hook's program."""
        return [*self.python, file, self.socket, self.folder, *self.service]

    def hook_command(self, file: str) -> str:
        """Return the shell command of a hook; `file` is the path of its program, quoted."""
        before, after = self.hook("")[: len(self.python)], self.hook("")[len(self.python) + 1 :]
        return f"{shlex.join(before)} {file} {shlex.join(after)}"


def launch_of(db: str, folder: str = "") -> Launch:
    """Return the commands with which this Python starts em for a memory."""
    return Launch(
        # -P: a folder `em` in the agent's folder must not be imported instead.
        em=[sys.executable, "-P", "-m", "em", "--db", db],
        python=[sys.executable, "-I", "-S"],
        socket=str(socket_of(db)),
        folder=folder,
    )


def published() -> Launch:
    """Return the commands for who has only uv: it fetches em, and Python, at their first use."""
    package = f"em-core[mcp,sandbox,shell]=={em.__version__}"
    return Launch(
        em=["uvx", "--from", package, "em", "--db", "~/.local/share/em/memory.db"],
        python=["uv", "run", "--no-project", "--quiet", "python", "-I", "-S"],
        socket="memory.sock",
        folder="~/.local/share/em",
    )


def socket_of(db: str) -> Path:
    """Return the path of the socket for a memory. Sockets need short paths, so by a digest."""
    return Path(hook.address_of(hashlib.sha256(os.fsencode(db)).hexdigest()[:16] + ".sock"))


def private_folder(folder: Path) -> None:
    """Make a folder that only this user can enter, or refuse one that others could have made."""
    if not hook.make_private(str(folder)):
        raise StoreError(
            "the folder belongs to somebody else, or is open to them", place=str(folder)
        )


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
