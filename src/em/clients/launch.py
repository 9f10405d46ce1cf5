"""How a coding agent starts em: the hook, its service and the MCP server, for one memory."""

import hashlib
import os
import shlex
import sys
import tempfile
from pathlib import Path

import msgspec

from em.clients import hook
from em.errors import StoreError


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """The commands for one memory.

    folder: where em.yaml of this memory is. home: em's folder in the agent.
    """

    db: str
    folder: str
    home: str = ""
    python: str = sys.executable

    @property
    def mcp(self) -> list[str]:
        """The command of the MCP server."""
        return self._em("mcp")

    @property
    def service(self) -> list[str]:
        """The command of the service that answers hooks."""
        return [*self._em("hooks"), *(("--client", self.home) if self.home else ())]

    @property
    def proposer(self) -> list[str]:
        """The command that proposes what recurs; the traces to look at are to be added."""
        # Agents don't say whether they succeeded: those that failed are left out.
        return [*self._em("suggest"), "--allow-unlabelled", "--propose"]

    def at(self, home: Path) -> "Launch":
        """Return the commands for an agent in which em has this folder."""
        return msgspec.structs.replace(self, home=str(home))

    @property
    def socket(self) -> str:
        """Where the service of this memory listens."""
        return str(socket_of(self.db))

    def hook(self, file: str) -> list[str]:
        """Return the command of a hook; `file` is the path of the hook's program."""
        return [self.python, "-I", "-S", file, self.socket, self.folder, *self.service]

    def hook_command(self, file: str) -> str:
        """Return the shell command of a hook; `file` is the path of its program, quoted."""
        before, after = self.hook("")[:3], self.hook("")[4:]
        return f"{shlex.join(before)} {file} {shlex.join(after)}"

    def _em(self, command: str) -> list[str]:
        # -P: a folder `em` in the agent's folder must not be imported instead.
        return [self.python, "-P", "-m", "em", "--db", self.db, command]


def socket_of(db: str) -> Path:
    """Return the path of the socket for a memory. Sockets need short paths, so by a digest."""
    name = hashlib.sha256(os.fsencode(db)).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"em-{os.getuid()}" / f"{name}.sock"


def private_folder(folder: Path) -> None:
    """Make a folder that only this user can enter, or refuse one that others could have made."""
    if not hook.make_private(str(folder)):
        raise StoreError(
            "the folder belongs to somebody else, or is open to them", place=str(folder)
        )
