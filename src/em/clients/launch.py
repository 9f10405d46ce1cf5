"""How a coding agent starts em: the hook, its service and the MCP server, for one memory."""

import hashlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

import em
from em.clients import hook
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
