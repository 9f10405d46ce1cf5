"""Permissions: which commands, folders, hosts and environment variables tools may use.

A routine is data that anyone may have sent: only the user's own settings and command-line options
allow anything.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from em.errors import NotAllowed
from em.settings import FILE, AllowSettings, Settings, memory_folder, tool_sources

if TYPE_CHECKING:
    from em.runner.tools import Tool

_PORTS = {"http": 80, "https": 443}


def settings_for(folder: Path, given: AllowSettings | None) -> AllowSettings:
    """Return what is allowed: as given, else by em.yaml, unless that came with the routine."""
    if given is not None:
        return given
    return AllowSettings() if _brings_settings(folder) else Settings.load().allow


def _brings_settings(folder: Path) -> bool:
    """Return whether the em.yaml that counts here came with the routine of a folder."""
    base = memory_folder()
    return base.resolve().is_relative_to(folder.resolve()) and (base / FILE).exists()


def default_tools(folder: Path) -> "Mapping[str, Tool]":
    """Return the tools that em.yaml names, unless it came with the routine of this folder."""
    from em.runner.tools import ToolRegistry

    if _brings_settings(folder):
        return {}
    sources = tool_sources(Settings.load().tools)
    return {name: tool for one in sources for name, tool in ToolRegistry.load(one).items()}


def find_program(name: str, allow: AllowSettings) -> str:
    """Find the program of an allowed command, by its name on the PATH or its absolute path."""
    if name not in allow.commands:
        raise refused("command", name, "commands")
    if os.sep in name:
        if not os.path.isabs(name):
            raise NotAllowed(f"the command {name!r} is a relative path", fix="name the program")
        return name
    import shutil

    # Relative folders of the PATH depend on the current folder: skip them.
    folders = [part for part in os.get_exec_path() if os.path.isabs(part)]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise NotAllowed(f"the program {name!r} is not on the PATH", fix="install it")
    return found


def check_path(path: str | Path, allow: AllowSettings, base: Path | None = None) -> Path:
    """Return a path without links; raise NotAllowed unless it lies in an allowed folder.

    base: the folder that a relative path is in; the current one without it.
    """
    found = ((base or Path.cwd()) / Path(path).expanduser()).resolve()
    for folder in allow.folders:
        if found.is_relative_to(Path(folder).expanduser().resolve()):
            return found
    raise refused("folder", str(found if found.is_dir() else found.parent), "folders")


def check_host(address: SplitResult, allow: AllowSettings) -> None:
    """Raise NotAllowed for a host that is not allowed. Ports count unless they are the default."""
    host = host_of(address)
    if host not in (entry.lower() for entry in allow.hosts):
        raise refused("host", host, "hosts")


def host_of(address: SplitResult) -> str:
    """Return the host, with its port unless it is the default one."""
    name = (address.hostname or "").lower()
    shown = f"[{name}]" if ":" in name else name
    port = address.port
    return shown if port in (None, _PORTS.get(address.scheme)) else f"{shown}:{port}"


class Environment(Mapping[str, str]):
    """The allowed environment variables. `on_read` is called with each one that is read."""

    def __init__(self, allow: AllowSettings, on_read: Callable[[str, str], None]) -> None:
        self._allowed = frozenset(allow.env)
        self._on_read = on_read

    def __getitem__(self, name: str) -> str:
        if name not in self._allowed:
            raise refused("variable", name, "env")
        try:
            value = os.environ[name]
        except KeyError:
            raise NotAllowed(f"the variable {name!r} is not set", fix=f"export {name}=…") from None
        self._on_read(name, value)
        return value

    def __contains__(self, _name: object) -> bool:
        # So that asking for any name gets an error that explains.
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(name for name in self._allowed if name in os.environ))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def refused(what: str, name: str, field: str) -> NotAllowed:
    """Return the error for something not allowed, with how to allow it."""
    option = {
        "commands": "--allow-command",
        "folders": "--allow-folder",
        "hosts": "--allow-host",
        "env": "--allow-env",
    }[field]
    return NotAllowed(
        f"the {what} {name!r} is not allowed",
        fix=f"if you trust the routine with it, add `allow: {{{field}: [{name}]}}` to {FILE} and"
        f" run `em trust --folder .`, or run with {option} {name}",
        **{what: name},
    )
