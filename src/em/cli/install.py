"""`em install`, `em uninstall`, `em hooks`: em in coding agents."""

import signal
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import click

from em.cli.options import address, everywhere, open_memory
from em.cli.output import emit, note, printable, wants_json
from em.clients import claude_plugin, codex_config, opencode_config
from em.clients.installation import Change, Installation, Removal
from em.clients.launch import Launch
from em.clients.skills import CLIENTS, Skills, homes_of
from em.errors import EmError, UsageError
from em.memory import Memory
from em.settings import Settings
from em.values.paths import is_unicode

_NEXT = {
    claude_plugin.NAME: "The next session of Claude Code has em.",
    codex_config.NAME: "Codex runs hooks that you trust: start it, type /hooks and trust em's.",
    opencode_config.NAME: "The next session of opencode has em.",
}

_client = click.argument("client", type=click.Choice([*CLIENTS]))
_yes = click.option("--yes", is_flag=True, help="Don't ask.")
_dry = click.option("--dry-run", is_flag=True, help="Show the changes, and make none.")


@click.command("install")
@_client
@click.option(
    "--to",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write only the plugin into DIR, for `claude --plugin-dir DIR`.",
)
@_yes
@_dry
@everywhere
def install(client: str, to: Path | None, yes: bool, dry_run: bool) -> int:
    """Install em into a coding agent: hooks, the MCP server and skills.

    Every change is shown as a diff before it is made. The agent then uses the memory that em uses
    in this folder, wherever it works. Each routine in use has a skill, written again when routines
    are kept, changed or retired. `em uninstall` restores each file. Where em is installed already,
    only what differs is changed.
    """
    launch = Launch(db=_memory(), folder=str(Path.cwd()))
    for path in (launch.db, launch.folder, str(to or "")):
        if not is_unicode(path):
            raise UsageError(
                "the settings of an agent can't hold this path, which is not UTF-8",
                place=path,
                fix="use a folder and a memory whose paths are UTF-8",
            )
    program: Any = CLIENTS[client]
    if to is not None:
        if client != claude_plugin.NAME:
            raise UsageError("--to is for claude-code", place="--to")
        made = claude_plugin.plugin(launch, to.resolve())
    else:
        made = program.installation(launch, program.config_folder())
    memory = _existing_memory()
    if memory is not None:
        made.create_skills(Skills(memory.store).files())
    if made.earlier is not None and not made.changes:
        text = f"em is already installed in {printable(str(made.home))}: nothing to change"
        emit({"client": client, "changed": False, "files": []}, lambda: click.echo(text))
        return 0
    done = _carry_out(made, client, yes=yes, dry_run=dry_run)
    if done and made.earlier is not None and made.earlier.socket != made.socket:
        _end_service(made.earlier.socket)
    if done and not wants_json():
        note(f"The memory is {launch.db}. {_NEXT[client] if to is None else ''}".rstrip())
    return 0


@click.command("uninstall")
@_client
@click.option(
    "--from",
    "from_",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Remove the plugin that `em install --to DIR` wrote.",
)
@_yes
@_dry
@everywhere
def uninstall(client: str, from_: Path | None, yes: bool, dry_run: bool) -> int:
    """Undo `em install`: restore every file that it changed, and remove its own.

    The memory stays. Of a file that was changed since, only em's part is removed.
    """
    program: ModuleType = CLIENTS[client]
    home = from_.resolve() if from_ is not None else program.home_of(program.config_folder())
    removal = Removal(home)
    done = _carry_out(removal, client, yes=yes, dry_run=dry_run)
    if done:
        _end_service(removal.socket)
        for path in removal.left:
            note(f"{path} was changed since: remove em's part by hand")
    return 1 if done and removal.left else 0


def _carry_out(planned: Installation | Removal, client: str, *, yes: bool, dry_run: bool) -> bool:
    """Show the changes, ask, and make them. Return whether they were made."""
    shown: list[Change] = planned.changes
    if not wants_json():
        for change in shown:
            click.echo("\n".join(map(printable, change.diff().splitlines())))
    go = not dry_run and (yes or click.confirm(f"Change these {len(shown)} files?", err=True))
    if go:
        planned.apply()
    files = [{"path": str(change.path), "diff": change.diff()} for change in shown]
    emit({"client": client, "changed": go, "files": files}, lambda: None)
    return go


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


def refresh_skills() -> None:
    """Let the agents that use this memory have its routines as skills."""
    try:
        homes = homes_of(Launch(db=address(), folder="").socket)
        memory = _existing_memory() if homes else None
        if memory is not None:
            Skills(memory.store).refresh(homes)
    except (EmError, OSError) as error:  # the command itself has done its work
        note(f"the skills of a coding agent could not be written: {error}")


@click.command("hooks")
@click.option(
    "--idle", metavar="SECONDS", type=float, default=1800.0, show_default=True,
    help="End after so long without a hook.",
)  # fmt: skip
@click.option(
    "--client",
    "clients",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path),
    help="em's folder in an agent, whose skills are written. Repeatable.  [the usual ones]",
)
@everywhere
def hooks(idle: float, clients: tuple[Path, ...]) -> int:
    """Answer the hooks of coding agents. `em install` lets the first hook start this.

    It listens on a socket that only this user can open, records sessions, and ends when idle. A
    second one for the same memory ends at once.
    """
    from em.clients.hook_service import HookService
    from em.clients.launch import socket_of

    # As when idle: what was recorded is stored, and the socket is removed.
    signal.signal(signal.SIGTERM, _end)
    db = _memory()
    memory = open_memory(create=True)
    with suppress(_Ended):
        HookService(
            memory,
            socket_of(db),
            idle=idle,
            homes=clients,
            proposer=Launch(db=db, folder="").proposer,
            keep_days=Settings.load().recordings.keep_days,
        ).run()
    return 0


class _Ended(Exception):
    """Somebody asked the service to end."""


def _end(_signal: int, _frame: object) -> None:
    # Who ends it asks again and again; a second time would stop what is being stored.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Ended
