"""Installations: em in the coding agents of this user, by the commands of the agents themselves.

em writes its plugin into a folder of its own beside the agent's settings, and the agent's command
adds it. opencode has no such command, and loads each program in its folder of plugins.
"""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from em.clients.plugin import FOLDER, Launch, marketplace, write
from em.clients.skill import FILE
from em.errors import NotFound, UsageError

_LAUNCH = Path("launch.json")
"""The commands of an installation, noted in em's folder."""
_HOOKS = Path(__file__).with_name("opencode_hooks.js")
_MARK = "// em in opencode."
"""How em's program for opencode begins."""


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """A coding agent. program: its command, if that adds plugins; remove: how it removes one.

    variable, usual: the variable with the folder of its settings, and the folder without it.
    below: where in that folder its settings are. after: what its user does next.
    """

    name: str
    program: str = ""
    add: str = ""
    remove: str = ""
    variable: str
    usual: str
    below: str = ""
    after: str

    @property
    def settings(self) -> Path:
        """The folder of its settings."""
        given = os.environ.get(self.variable)
        return (Path(given) if given else Path.home() / self.usual) / self.below

    @property
    def home(self) -> Path:
        """The folder that em has there."""
        return self.settings / "em"


AGENTS = {
    one.name: one
    for one in (
        Agent(
            name="claude-code",
            program="claude",
            add="install",
            remove="uninstall",
            variable="CLAUDE_CONFIG_DIR",
            usual=".claude",
            after="The next session of Claude Code has em.",
        ),
        Agent(
            name="codex",
            program="codex",
            add="add",
            remove="remove",
            variable="CODEX_HOME",
            usual=".codex",
            after="Codex runs hooks that you trust: start it, type /hooks and trust em's.",
        ),
        Agent(
            name="opencode",
            variable="XDG_CONFIG_HOME",
            usual=".config",
            below="opencode",
            after="The next session of opencode has em.",
        ),
    )
}
"""What em can be installed into, by name."""


class Installation:
    """em in one agent: its files, and the commands of the agent. `skill` is the text of the skill.

    `changed`: the files that are not there as they should be.
    """

    def __init__(self, agent: Agent, launch: Launch, skill: str) -> None:
        self._agent = agent
        home = agent.home
        files = {home / name: text for name, text in marketplace(launch).items()}
        files[home / FOLDER / FILE] = skill
        files[home / _LAUNCH] = msgspec.json.format(msgspec.json.encode(launch)).decode() + "\n"
        if not agent.program:
            files[_opencode_file(agent)] = _opencode_code(home / FOLDER, launch)
        self._files = files
        self.changed = [path for path, text in files.items() if _read(path) != text]

    @property
    def commands(self) -> list[list[str]]:
        """The commands that add the plugin."""
        agent = self._agent
        if not agent.program:
            return []
        plugin = [agent.program, "plugin"]
        return [[*plugin, "marketplace", "add", str(agent.home)], [*plugin, agent.add, "em@em"]]

    def apply(self) -> None:
        """Write the files, and let the agent add the plugin, which it does once."""
        _find(self._agent)
        theirs = _read(_opencode_file(self._agent)) if not self._agent.program else None
        if theirs is not None and not theirs.startswith(_MARK):
            place = str(_opencode_file(self._agent))
            raise UsageError("this file exists, and em did not write it", place=place)
        if self.changed and is_installed(self._agent):
            for command in removal(self._agent)[:1]:  # the agent copies a plugin when it adds it
                with suppress(UsageError):
                    _run(command)
        write(Path(), {path: self._files[path] for path in self.changed})
        for command in self.commands:
            _run(command)


def remove(agent: Agent) -> None:
    """Let the agent remove the plugin, and remove em's folder.

    Raises:
        NotFound: em is not installed there.
    """
    if not is_installed(agent):
        raise NotFound("em is not installed there", place=str(agent.home))
    _find(agent)
    for command in removal(agent):
        _run(command)
    if not agent.program:
        _opencode_file(agent).unlink(missing_ok=True)
        with suppress(OSError):
            _opencode_file(agent).parent.rmdir()
    shutil.rmtree(agent.settings / "plugins" / "cache" / "em", ignore_errors=True)  # their copy
    shutil.rmtree(agent.home)


def is_installed(agent: Agent) -> bool:
    """Return whether `em install` wrote its folder into an agent's settings."""
    return (agent.home / _LAUNCH).exists()


def launch_in(agent: Agent) -> Launch | None:
    """Return the commands of an installation; None if there is none."""
    try:
        return msgspec.json.decode((agent.home / _LAUNCH).read_bytes(), type=Launch)
    except (OSError, msgspec.DecodeError):
        return None


def removal(agent: Agent) -> list[list[str]]:
    """Return the commands that remove the plugin."""
    if not agent.program:
        return []
    plugin = [agent.program, "plugin"]
    return [[*plugin, agent.remove, "em@em"], [*plugin, "marketplace", "remove", "em"]]


def _find(agent: Agent) -> None:
    if agent.program and shutil.which(agent.program) is None:
        raise UsageError(
            f"the command `{agent.program}` is not there",
            place="PATH",
            fix=f"install {agent.name}, or add the folder of its command to PATH",
        )


def _run(command: Sequence[str]) -> None:
    """Run a command of an agent."""
    done = subprocess.run(  # noqa: S603 - the agent's own program, which its user names
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UsageError(
            "; ".join(said[:3]) or f"it ended with exit status {done.returncode}",
            place=shlex.join(command),
            fix="do what it says, and run this command of em again",
        )


def _opencode_file(agent: Agent) -> Path:
    return agent.settings / "plugins" / "em.js"


def _opencode_code(plugin: Path, launch: Launch) -> str:
    """Return the program that opencode loads."""
    code = _HOOKS.read_text(encoding="utf-8")
    for name, value in (
        ("em's hook", launch.hook(str(plugin / "hooks" / "em_hook.py"))),
        ("em's MCP server", launch.mcp),
        ("em's skills", str(plugin / "skills")),
    ):
        code = code.replace(json.dumps(name), json.dumps(value, ensure_ascii=False))
    return code


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
