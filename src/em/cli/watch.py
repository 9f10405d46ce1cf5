"""`em watch`: transcripts come in as they are written."""

from pathlib import Path

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, printable
from em.traces.formats import importer_of
from em.traces.watch import INTERVAL, Watch


@click.command("watch")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=INTERVAL,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--format", "format_", metavar="FORMAT", help="The format.  [found by looking]")
@click.option("--subject", help="Whose traces they are.")
@click.option("--once", is_flag=True, help="Look once, and end.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    folder: Path,
    every: float,
    format_: str | None,
    subject: str | None,
    once: bool,
) -> None:
    """Bring what agents write in FOLDER into the log, until Ctrl-C.

    For Claude Code: em watch ~/.claude/projects. Started again, it goes on where it was.
    """
    if format_ is not None:
        importer_of(format_)
    memory = open_memory(ctx, create=True)
    watch = Watch(memory.store, folder, format_=format_, subject=subject)
    if not once and not ctx.obj["json"]:
        click.echo(f"watching {printable(str(folder))}; Ctrl-C ends", err=True)
    coming = watch.look() if once else watch.run(every)
    try:
        for read in coming:
            if ctx.obj["json"]:
                print_json({"path": read.path, "format": read.format, "new": read.new})
            elif read.skipped:
                click.echo(f"{printable(read.path)}: {printable(read.skipped)}", err=True)
            else:
                told = f"{count(read.new, 'event')}, {count(read.calls, 'call')} so far"
                click.echo(f"{printable(read.path)}: {read.format}, {told}")
    finally:
        watch.finish()
