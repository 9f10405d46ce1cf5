"""`em forget`: erase on a person's request."""

import sys

import click

from em.cli.options import everywhere, find_event, open_memory
from em.cli.output import count, print_json
from em.errors import UsageError
from em.memory import Memory
from em.store.protocol import Erasure


@click.command("forget")
@click.option("--event", "event_ids", multiple=True, metavar="ID|SEQ", help="An event; repeatable.")
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
    if finish == bool(event_ids or subject is not None):
        problem = "--finish takes no events" if finish else "nothing to forget"
        raise UsageError(problem, fix="name --event ID or --subject NAME, or --finish alone")
    memory = open_memory(ctx)
    if finish:
        memory.store.scrub()
        if ctx.obj["json"]:
            print_json({"scrubbed": True})
        else:
            click.echo("scrubbed: nothing of what was erased is left in the files")
        return 0
    events = [find_event(memory.log, given) for given in event_ids]
    for event in events:
        if event.kind == "erased":
            raise UsageError("the fact of an erasure stays", place=f"event {event.id}")
    if not yes and not _confirmed(memory, len(events), subject, as_json=ctx.obj["json"]):
        click.echo("nothing was erased", err=True)
        return 1
    erasure = memory.forget(events, subject=subject, reason=reason)
    _print(erasure, as_json=ctx.obj["json"])
    return 0 if erasure.scrubbed else 1


def _confirmed(memory: Memory, events: int, subject: str | None, *, as_json: bool) -> bool:
    what = [count(events, "event")] if events else []
    if subject is not None:
        about = sum(
            not event.erased and event.kind != "erased"
            for event in memory.log.read(subject=subject)
        )
        what.append(f"{count(about, 'event')} about {subject!r}")
    unanswered = UsageError("nobody is there to confirm it", fix="pass --yes")
    if as_json:
        raise unanswered
    try:
        return click.confirm(f"Erase {' and '.join(what)}, for good?", err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise unanswered from None


def _print(erasure: Erasure, *, as_json: bool) -> None:
    if as_json:
        print_json(erasure)
        return
    counts = {
        "event": len(erasure.events),
        "artefact": erasure.artefacts,
        "record": erasure.records,
        "document": erasure.documents,
        "stored response": erasure.responses,
    }
    parts = ", ".join(count(number, noun) for noun, number in counts.items() if number)
    click.echo(f"erased {parts or 'nothing: it was erased before'}")
    if not erasure.scrubbed:
        click.echo(f"erased, not yet scrubbed from the disk: {erasure.scrub_problem}", err=True)
