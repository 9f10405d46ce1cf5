"""`em import`: traces that agents left on disk."""

from collections.abc import Iterator

import click

from em.capture.importers import IMPORTERS
from em.cli.files import reading
from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json
from em.models.trace import Trace


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, allow_dash=True))
@click.option(
    "--format",
    "format_",
    required=True,
    type=click.Choice(sorted(IMPORTERS)),
    help="openai: chat transcripts, one object or JSONL. native: one trace.",
)
@everywhere
@click.pass_context
def command(ctx: click.Context, files: tuple[str, ...], format_: str) -> int:
    """Keep the traces of FILES in the log. The same trace again changes nothing."""

    def traces() -> Iterator[Trace]:
        for file in files:
            with reading(file) as (source, name):
                yield from IMPORTERS[format_](source.read(), name)

    new, known = open_memory(ctx, create=True).import_traces(traces())
    if ctx.obj["json"]:
        print_json({"imported": new, "already_there": known})
    else:
        if not new and not known:
            click.echo("there was no trace in it", err=True)
            return 1
        already = f", {known:,} already there" if known else ""
        click.echo(f"{count(new, 'trace')} imported{already}")
    return 0
