"""`em install`, `em uninstall`, `em hooks`: em in coding agents."""

import shlex
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import click

from em.cli.command import command
from em.cli.options import address, open_memory
from em.cli.output import emit, note, printable, wants_json
from em.clients.installation import AGENTS, Installation, launch_in, removal, remove
from em.clients.plugin import launch_of
from em.clients.skill import SKILL, Skill
from em.errors import EmError, UsageError
from em.memory import Memory
from em.settings import Settings
from em.values.files import is_unicode

_client = click.argument("client", type=click.Choice([*AGENTS]))
_dry = click.option("--dry-run", is_flag=True, help="Show what is done, and do nothing.")


@command("install")
@_client
@_dry
def install(client: str, dry_run: bool) -> int:
    """Install em into a coding agent: a plugin with hooks, the MCP server and a skill.

    The plugin is written into a folder of em's own beside the agent's settings, and the agent's
    own command adds it. The agent then uses the memory that em uses in this folder, wherever it
    works. Where em is installed already, only what differs is changed.
    """
    launch = launch_of(_memory(), str(Path.cwd()))
    for path in (*launch.em, launch.folder):
        if not is_unicode(path):
            raise UsageError(
                "the settings of an agent can't hold this path, which is not UTF-8",
                place=path,
                fix="use a folder and a memory whose paths are UTF-8",
            )
    agent = AGENTS[client]
    memory = _existing_memory()
    made = Installation(agent, launch, SKILL if memory is None else Skill(memory.store).text())
    earlier = launch_in(agent)
    if not dry_run:
        made.apply()
    _show(client, made.changed, made.commands, done=not dry_run)
    if not dry_run and earlier is not None and earlier.socket != launch.socket:
        _end_service(earlier.socket)
    if not dry_run and not wants_json():
        note(f"The memory is {_memory()}. {agent.after}")
    return 0


@command("uninstall")
@_client
@_dry
def uninstall(client: str, dry_run: bool) -> int:
    """Undo `em install`: the agent removes the plugin, and em its folder. The memory stays."""
    agent = AGENTS[client]
    launch = launch_in(agent)
    if not dry_run:
        remove(agent)
        if launch is not None:
            _end_service(launch.socket)
    _show(client, [agent.home], removal(agent), done=not dry_run)
    return 0


def _show(
    client: str, paths: Sequence[Path], commands: Sequence[Sequence[str]], *, done: bool
) -> None:
    """Print what was done, or would be done."""
    lines = [*map(str, paths), *map(shlex.join, commands)]
    shown = {"client": client, "changed": done, "files": [*map(str, paths)], "commands": commands}
    emit(shown, lambda: click.echo("\n".join(map(printable, lines))))


def _end_service(socket: str) -> None:
    """End the service of hooks that nobody calls any more."""
    from em.clients.hook_service import end_service

    end_service(Path(socket))


def _existing_memory() -> Memory | None:
    """Open the memory, if it is there; the first session makes it otherwise."""
    try:
        return open_memory()
    except EmError:
        return None


def _memory() -> str:
    """Return the memory's address as it is written into settings: without a password."""
    db = address()
    if "://" in db and urlsplit(db).password:
        raise UsageError(
            "the database's password would be written into the agent's settings",
            place="--db",
            fix="leave it out, and put it into ~/.pgpass",
        )
    return db


@command("hooks")
@click.option(
    "--socket",
    metavar="PATH",
    help="Where to listen; a name is one in the folder of this user's sockets.  [the memory's]",
)
def hooks(socket: str | None) -> int:
    """Answer the hooks of coding agents. `em install` lets the first hook start this.

    It listens on a socket that only this user can open, records sessions, and ends when idle. A
    second one for the same memory ends at once.
    """
    from em.clients.hook import address_of
    from em.clients.hook_service import HookService

    # As when idle: what was recorded is stored, and the socket is removed.
    signal.signal(signal.SIGTERM, _end)
    launch = launch_of(_memory())
    memory = open_memory(create=True)
    with suppress(_Ended):
        HookService(
            memory,
            Path(address_of(socket or launch.socket)),
            proposer=launch.proposer,
            keep_days=Settings.load().recordings.keep_days,
        ).run()
    return 0


class _Ended(Exception):
    """Somebody asked the service to end."""


def _end(_signal: int, _frame: object) -> None:
    # Who ends it asks again and again; a second time would stop what is being stored.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Ended
