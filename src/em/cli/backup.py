"""`em log backup`: copy the memory while it is used."""

from pathlib import Path

import click
import msgspec

from em.cli.command import command
from em.cli.options import open_memory, writing
from em.cli.output import count, emit, progress


@command("backup")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--save-head",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Also save the heads to FILE, for `em log verify --head` after a restore.",
)
def backup(file: str, save_head: str | None) -> None:
    """Copy the memory to FILE while others read and write it. SQLite only.

    The copy shows one moment, and is verified before it takes the place of an older FILE. To
    restore it, stop what uses the memory, put FILE in its place, and run `em log verify --head`.
    For PostgreSQL use pg_dump; see docs/deployment.md. A backup keeps what is forgotten later:
    delete the backups from before.
    """
    from em.store.sqlite import back_up

    memory = open_memory()
    with progress("copying pages") as bar:
        report = back_up(memory.store, Path(file), bar.at)
    if save_head is not None:
        with writing(save_head, memory.store.location) as out:
            out.write(msgspec.json.format(msgspec.json.encode(report.heads), indent=1) + b"\n")
    shown = {"file": file, "events": report.events, "streams": report.streams}
    emit(shown, f"{count(report.events, 'event')} in {file}, verified")
