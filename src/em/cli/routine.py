"""`em routine`: the routines that a memory keeps, their versions, and healing them."""

from pathlib import Path

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import print_json, print_table, printable
from em.compiler.heal import Healing
from em.runner.library import files_in, find_routine, keep_routine, kept_routines, texts_of
from em.runner.package import ROUTINE, write_files


@click.group("routine")
def command() -> None:
    """The routines that a memory keeps: list, show, keep, unpack, retire, heal."""


@command.command("list")
@everywhere
@click.pass_context
def list_(ctx: click.Context) -> None:
    """Every version of every routine that is kept."""
    rows = [
        {
            "routine": f"{found.name}@{found.version}",
            "at": found.created_at.isoformat(timespec="seconds"),
            "state": "erased" if found.body is None else "retired" if found.retired_at else "",
            "from_events": len(found.from_events),
        }
        for found in kept_routines(open_memory(ctx).store)
    ]
    if ctx.obj["json"]:
        print_json(rows)
    elif rows:
        print_table(tuple(rows[0]), [tuple(map(str, row.values())) for row in rows])
    else:
        click.echo("no routine is kept yet; `em compile TRACE --keep` keeps one", err=True)


@command.command("show")
@click.argument("ref", metavar="NAME[@VERSION]")
@everywhere
@click.pass_context
def show(ctx: click.Context, ref: str) -> None:
    """Print the routine.yaml of a routine that is kept."""
    artefact = find_routine(open_memory(ctx).store, ref)
    files = texts_of(artefact)
    if ctx.obj["json"]:
        print_json(
            {"routine": f"{artefact.name}@{artefact.version}", "files": files,
             "from_events": artefact.from_events}
        )  # fmt: skip
    else:
        click.echo(files[ROUTINE], nl=False)


@command.command("keep")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@everywhere
@click.pass_context
def keep(ctx: click.Context, folder: str) -> None:
    """Keep the routine in DIR as a new version of its name."""
    kept = keep_routine(open_memory(ctx, create=True).store, files_in(folder))
    if ctx.obj["json"]:
        print_json({"routine": kept.ref})
    else:
        click.echo(f"kept as {kept.ref}")


@command.command("unpack")
@click.argument("ref", metavar="NAME[@VERSION]")
@click.option("-o", "--output", required=True, metavar="DIR", type=click.Path(file_okay=False))
@everywhere
@click.pass_context
def unpack(ctx: click.Context, ref: str, output: str) -> None:
    """Write a routine that is kept into the folder DIR; what is no routine's is left alone."""
    artefact = find_routine(open_memory(ctx).store, ref)
    write_files(texts_of(artefact), Path(output))
    report = {"routine": f"{artefact.name}@{artefact.version}", "folder": output}
    if ctx.obj["json"]:
        print_json(report)
    else:
        click.echo(f"{report['routine']} is in {output}")


@command.command("retire")
@click.argument("ref", metavar="NAME@VERSION")
@everywhere
@click.pass_context
def retire(ctx: click.Context, ref: str) -> int:
    """Take a version out of use: its name then means the version before; it stays readable."""
    store = open_memory(ctx).store
    artefact = find_routine(store, ref)
    done = store.retire(artefact.id)
    report = {"routine": f"{artefact.name}@{artefact.version}", "retired": done}
    if ctx.obj["json"]:
        print_json(report)
    else:
        click.echo(f"{report['routine']} is {'retired' if done else 'retired already'}")
    return 0


@command.command("heal")
@click.argument("run_id", metavar="RUN")
@click.option("--dry-run", is_flag=True, help="Only show the change.")
@everywhere
@click.pass_context
def heal_(ctx: click.Context, run_id: str, dry_run: bool) -> int:
    """Write the fixes that RUN needed into its routine, as a new version.

    The run is made again with what its journal holds: the healed routine must need no fix, and give
    the same output. The old version is kept: `em routine unpack` brings it back.
    """
    healing = open_memory(ctx).heal(run_id, dry_run=dry_run)
    if ctx.obj["json"]:
        print_json(healing)
    else:
        print_healing(healing, run_id)
    return 0 if healing.changed else 1


def print_healing(healing: Healing, run_id: str) -> None:
    """What the fixes of a run change, or would change."""
    for refused in healing.refused:
        click.echo(f"can't be healed: {printable(refused)}", err=True)
    click.echo(healing.patch, nl=False)
    if healing.new:
        click.echo(f"kept as {healing.new}; the old one is {healing.old}")
    elif healing.changed:
        click.echo(f"  make this change with: em routine heal {run_id}")
