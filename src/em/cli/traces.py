"""`em traces`: look at the attempts in a memory."""

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, print_table
from em.cli.timeline import print_diff, print_timeline
from em.errors import InputError, NotFound
from em.store.protocol import Store
from em.traces.catalogue import (
    TraceSummary,
    children_of,
    diff_traces,
    get_traces,
    list_traces,
)
from em.traces.trace import KeptTrace

SHORTEST = 4


@click.group("traces", no_args_is_help=True)
@everywhere
def command() -> None:
    """Look at traces: what agents said, called and got."""


@command.command("list")
@click.option("--task", help="Only traces whose goal contains this, in upper or lower case.")
@click.option("--outcome", type=click.Choice(["success", "failure", "unknown"]))
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True)
@everywhere
@click.pass_context
def list_(ctx: click.Context, task: str | None, outcome: str | None, limit: int) -> None:
    """The newest traces, the newest last."""
    store = open_memory(ctx).store
    page = list_traces(store, task=task, outcome=outcome, limit=limit, count_calls=True)
    found = page.traces[::-1]
    if ctx.obj["json"]:
        print_json({"traces": found})
    elif found:
        columns = ("trace", "began", "from", "outcome", "calls", "failed", "tokens", "goal")
        print_table(columns, [_row(one) for one in found], may_go=("tokens", "failed", "outcome"))
    else:
        click.echo("no traces; `em import` and `em watch` bring them in", err=True)


def _row(one: TraceSummary) -> tuple[str, ...]:
    goal = " ".join(one.title.split())
    return (
        one.id,
        one.at.strftime("%Y-%m-%d %H:%M"),
        one.app,
        one.outcome,
        str(one.calls),
        str(one.failed),
        "-" if one.tokens is None else f"{one.tokens:,}",
        f"↳ {goal}" if one.parent else goal,
    )


@command.command("show")
@click.argument("trace")
@click.option("--full", is_flag=True, help="Texts, arguments and results as a whole.")
@everywhere
@click.pass_context
def show(ctx: click.Context, trace: str, full: bool) -> None:
    """One trace as a timeline, its sub-agents within. TRACE is an id or how one begins."""
    store = open_memory(ctx).store
    kept = find(store, trace)
    children = children_of(store, kept.id)
    if ctx.obj["json"]:
        print_json({"trace": kept, "sub_agents": children})
        return
    print_timeline(kept, full=full)
    for child in children:
        call = f" of call {child.trace.parent_call}" if child.trace.parent_call else ""
        click.echo(f"\nsub-agent{call}:")
        print_timeline(child, full=full, indent="    ")
    if children:
        click.echo(f"\n{count(len(children), 'sub-agent')}")


@command.command("diff")
@click.argument("one")
@click.argument("other")
@everywhere
@click.pass_context
def diff(ctx: click.Context, one: str, other: str) -> int:
    """How two traces differ, call by call. Exit code 1 if they do."""
    store = open_memory(ctx).store
    steps = diff_traces(find(store, one).trace, find(store, other).trace)
    if ctx.obj["json"]:
        print_json({"steps": steps})
    else:
        print_diff(steps)
    return 0 if all(step.sign == " " for step in steps) else 1


def find(store: Store, given: str) -> KeptTrace:
    """The trace of an id, or the only one whose id begins so."""
    try:
        return get_traces(store, [given])[0]
    except NotFound:
        found = [one.id for one in reversed(list_traces(store).traces) if one.id.startswith(given)]
        if len(given) < SHORTEST or not found:
            raise
        if len(found) > 1:
            raise InputError(
                f"{count(len(found), 'trace')} begin with {given!r}",
                place="trace",
                fix="one of: " + ", ".join(found[:5]),
            ) from None
        return get_traces(store, found)[0]
