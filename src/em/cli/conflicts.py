"""`em conflicts` and `em resolve`: contradictions, how they were settled, and settling them."""

from typing import Any, get_args

import click
import msgspec

from em.cli.options import everywhere, find_event, open_memory
from em.cli.output import print_json, printable
from em.errors import UsageError
from em.state.schema import PolicyName
from em.state.state import Conflict


@click.command("conflicts")
@click.argument("subject")
@everywhere
@click.pass_context
def command(ctx: click.Context, subject: str) -> None:
    """What contradicts itself about SUBJECT: between which events, and how it was settled."""
    found = open_memory(ctx).conflicts(subject)
    if ctx.obj["json"]:
        print_json({"conflicts": found})
        return
    for one in found:
        _show(one)
    if not found:
        click.echo("no contradictions", err=True)


def _show(one: Conflict) -> None:
    key = f" of {one.key}" if one.key else ""
    settled = "open: waits for a person" if one.open else f"{one.value!r}"
    click.echo(f"{printable(one.field + key)}: {printable(settled)} (policy: {one.policy})")
    for entry in one.entries:
        sign = "=" if entry.event_ids == one.event_ids else " "
        said = f"{entry.value!r}, {entry.status}" + (f" by {entry.source}" if entry.source else "")
        click.echo(f"  {sign} {entry.at.date()}  {entry.event_ids[0]}  {printable(said)}")


@click.command("resolve")
@click.argument("subject")
@click.argument("field", required=False)
@click.option("--value", help="The value it has; JSON, else a text.")
@click.option("--event", "event_id", metavar="ID|SEQ", help="The event that is right.")
@click.option("--policy", type=click.Choice(get_args(PolicyName)), help="From now on.")
@click.option("--order", help="For the policy `source`: which ones, the best first, with commas.")
@click.option("--undo", metavar="ID|SEQ", help="Take an earlier decision back, by its event.")
@everywhere
@click.pass_context
def resolve(
    ctx: click.Context,
    subject: str,
    field: str | None,
    value: str | None,
    event_id: str | None,
    policy: PolicyName | None,
    order: str | None,
    undo: str | None,
) -> None:
    """Settle a FIELD of SUBJECT: by a value, by an event, or by a policy. It is itself an event.

    \b
    em resolve ana city --value Porto
    em resolve ana city --policy source --order doctor,ana
    em resolve ana --undo 42
    """
    if (field is None) == (undo is None):
        raise UsageError("what is to be settled?", fix="name a FIELD, or --undo EVENT")
    memory = open_memory(ctx)
    if field is None:
        decided = memory.undo(subject, find_event(memory.log, str(undo)).id)
        _decided(ctx, subject, decided)
        return
    given: dict[str, Any] = {"policy": policy}
    if value is not None:
        given["value"] = _value(value)
    if event_id is not None:
        given["event"] = find_event(memory.log, event_id).id
    if order is not None:
        given["order"] = [source.strip() for source in order.split(",")]
    _decided(ctx, subject, memory.resolve(subject, field, **given))


def _decided(ctx: click.Context, subject: str, event_id: str) -> None:
    """Tell of a decision, and let it count."""
    open_memory(ctx).subjects.checkpoint(subject)
    if ctx.obj["json"]:
        print_json({"event_id": event_id})
    else:
        click.echo(f"decided: event {event_id}")


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
