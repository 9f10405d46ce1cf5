"""`em forget`: erase on a person's request."""

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import print_json
from em.errors import UsageError
from em.store.protocol import Erasure


@click.command("forget")
@click.option("--event", "event_ids", multiple=True, metavar="ID", help="An event; repeatable.")
@click.option("--subject", metavar="NAME", help="Everything about this subject.")
@click.option("--reason", default="", help="Kept with the fact of the erasure.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--finish", is_flag=True, help="Only remove what an earlier forget left on the disk.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context,
    event_ids: tuple[str, ...],
    subject: str | None,
    reason: str,
    yes: bool,
    finish: bool,
) -> int:
    """Erase events, and everything derived from them: artefacts, records, texts, responses.

    The rows, their hashes and the fact of the erasure stay, so the log still verifies. It can't be
    undone.
    """
    if not finish and not event_ids and subject is None:
        raise UsageError("nothing to forget", fix="name --event ID or --subject NAME")
    memory = open_memory(ctx)
    if finish:
        memory.store.scrub()
        if ctx.obj["json"]:
            print_json({"scrubbed": True})
        else:
            click.echo("scrubbed: nothing of what was erased is left in the files")
        return 0
    for event_id in event_ids:
        memory.log.get(event_id)
    if not yes:
        what = [f"{len(event_ids)} event(s)"] if event_ids else []
        if subject is not None:
            count = sum(not event.erased for event in memory.log.read(subject=subject))
            what.append(f"all {count:,} events about {subject!r}")
        click.confirm(f"Erase {' and '.join(what)}, for good?", abort=True, err=True)
    erasure = memory.forget(event_ids, subject=subject, reason=reason)
    _print(erasure, as_json=ctx.obj["json"])
    return 0 if erasure.scrubbed else 1


def _print(erasure: Erasure, *, as_json: bool) -> None:
    if as_json:
        print_json(erasure)
        return
    counts = {
        "events": len(erasure.events),
        "artefacts": erasure.artefacts,
        "records": erasure.records,
        "documents": erasure.documents,
        "stored responses": erasure.responses,
    }
    parts = ", ".join(f"{count:,} {noun}" for noun, count in counts.items() if count)
    click.echo(f"erased {parts or 'nothing: it was erased before'}")
    if not erasure.scrubbed:
        click.echo(f"erased, not yet scrubbed from the disk: {erasure.scrub_problem}", err=True)
