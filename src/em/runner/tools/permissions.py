"""What the user allows: a routine is data that anyone may have sent.

Commands and hosts that a routine declares are used only if the user's own settings, or the options
of a command, name them; the same goes for variables of the environment.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import SplitResult

from em.errors import NotAllowed
from em.settings import FILE, AllowSettings, Settings

_PORTS = {"http": 80, "https": 443}


def settings_for(folder: Path, given: AllowSettings | None) -> AllowSettings:
    """What is given, else what em.yaml allows; one that came with the routine allows nothing."""
    if given is not None:
        return given
    if Path.cwd().resolve() == folder.resolve() and Path(FILE).exists():
        return AllowSettings()
    return Settings.load().allow


def find_program(name: str, allow: AllowSettings) -> str:
    """The program of an allowed command: by its name on the PATH, or by its whole path."""
    if name not in allow.commands:
        raise refused("command", name, "commands")
    if os.sep in name:
        if not os.path.isabs(name):
            raise NotAllowed(f"the command {name!r} is a relative path", fix="name the program")
        return name
    # A folder without an absolute path is wherever somebody stands.
    folders = [part for part in os.get_exec_path() if os.path.isabs(part)]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise NotAllowed(f"there is no program {name!r} on the PATH", fix="install it")
    return found


def check_host(address: SplitResult, allow: AllowSettings) -> None:
    """Refuse a host that is not allowed; a port counts unless it is the usual one."""
    host = host_of(address)
    if host not in (entry.lower() for entry in allow.hosts):
        raise refused("host", host, "hosts")


def host_of(address: SplitResult) -> str:
    """The host as it is allowed: with its port unless that is the usual one."""
    name = (address.hostname or "").lower()
    shown = f"[{name}]" if ":" in name else name
    port = address.port
    return shown if port in (None, _PORTS.get(address.scheme)) else f"{shown}:{port}"


class Environment(Mapping[str, str]):
    """The variables of the environment that are allowed; whoever must know is told what is read."""

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
        # So that asking for one that is not there says why.
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(name for name in self._allowed if name in os.environ))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def refused(what: str, name: str, field: str) -> NotAllowed:
    """The error for what is not allowed: it says how to allow it."""
    option = {"commands": "--allow-command", "hosts": "--allow-host", "env": "--allow-env"}[field]
    return NotAllowed(
        f"the {what} {name!r} is not allowed",
        fix=f"if you trust the routine with it, add `allow: {{{field}: [{name}]}}` to {FILE},"
        f" or run with {option} {name}",
        **{what: name},
    )
