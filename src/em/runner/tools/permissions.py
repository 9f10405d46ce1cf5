"""Permissions: which commands, folders, hosts and environment variables tools may use.

A routine is data that anyone may have sent: only the user's own settings and command-line options
allow anything.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

import msgspec

from em.errors import EmError, NotAllowed
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
        raise refused("command", name)
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
    raise refused("folder", str(found if found.is_dir() else found.parent))


def check_host(address: SplitResult, allow: AllowSettings) -> None:
    """Raise NotAllowed for a host that is not allowed. Ports count unless they are the default."""
    host = host_of(address)
    if host not in (entry.lower() for entry in allow.hosts):
        raise refused("host", host)


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
            raise refused("variable", name)
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


FIELDS = {"command": "commands", "folder": "folders", "host": "hosts", "variable": "env"}
"""The lists of `allow` by what an error names."""


def refused(what: str, name: str) -> NotAllowed:
    """Return the error for something not allowed, with how to allow it. what: a key of FIELDS."""
    error = all_refused(msgspec.convert({FIELDS[what]: [name]}, AllowSettings))
    error.data[what] = name
    return error


def all_refused(lacking: AllowSettings) -> NotAllowed:
    """Return one error for all that is not allowed, with how to allow it."""
    lists = {what: list(getattr(lacking, field)) for what, field in FIELDS.items()}
    named = [f"the {what} {name!r}" for what, names in lists.items() for name in names]
    allow = [f"{FIELDS[what]}: [{', '.join(names)}]" for what, names in lists.items() if names]
    options = [
        f"--allow-{'env' if what == 'variable' else what} {name}"
        for what, names in lists.items()
        for name in names
    ]
    one = len(named) == 1
    return NotAllowed(
        f"{' and '.join(named)} {'is' if one else 'are'} not allowed",
        fix=f"if you trust the routine with {'it' if one else 'them'}, add"
        f" `allow: {{{', '.join(allow)}}}` to {FILE} and run `em trust --folder .`, or run with"
        f" {' '.join(options)}",
    )


def enough(check: Callable[[AllowSettings], object], allow: AllowSettings) -> AllowSettings:
    """Return what is allowed, and what a check needs beyond that."""
    while True:
        try:
            check(allow)
        except NotAllowed as error:
            what = next((one for one in FIELDS if one in error.data), None)
            if what is None:
                return allow  # a program that is not installed, for example: a run says so
            allow += msgspec.convert({FIELDS[what]: [error.data[what]]}, AllowSettings)
        except EmError:
            return allow
        else:
            return allow


def beyond(allow: AllowSettings, given: AllowSettings) -> AllowSettings:
    """Return what is allowed, without what was allowed before."""
    new = {
        field: [one for one in dict.fromkeys(getattr(allow, field)) if one not in known]
        for field, known in msgspec.structs.asdict(given).items()
        if field in FIELDS.values()
    }
    return msgspec.convert(new, AllowSettings)
