"""`em state`: look at what was compiled."""

import code as python_console
from typing import Any

import click
import msgspec

from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, print_table, printable
from em.errors import UsageError
from em.state.state import State


@click.group("state", no_args_is_help=True)
@everywhere
def command() -> None:
    """Look at a subject's compiled state: records, versions, history, code."""


@command.command()
@click.argument("subject")
@click.argument("collection", required=False)
@click.option("--as-of", metavar="TIME", help="As it was at this moment.")
@click.option("-n", "--limit", type=click.IntRange(min=0), default=20, show_default=True)
@everywhere
@click.pass_context
def show(
    ctx: click.Context, subject: str, collection: str | None, as_of: str | None, limit: int
) -> None:
    """Show the state of SUBJECT: an overview, or the records of one COLLECTION."""
    state = open_memory(ctx).state(subject, as_of)
    if collection is not None:
        _show_records(state, collection, limit, as_json=ctx.obj["json"])
        return
    profile = state.as_record(state.profile)
    sizes = {name: len(getattr(state, name)) for name in state.collections}
    if ctx.obj["json"]:
        left = [msgspec.to_builtins(one) for one in state.unstructured]
        found = {"subject": subject, "version": state.version, "profile": profile}
        print_json(
            {**found, "collections": sizes, "coverage": state.coverage, "unstructured": left}
        )
        return
    click.echo(f"{subject}, version {state.version}")
    for name, value in profile.items():
        click.echo(f"  {printable(f'{name}: {value}')}")
    for name, size in sizes.items():
        click.echo(f"  {name}: {count(size, 'record')}")
    for one in state.unstructured[:limit]:
        click.echo(f"  not structured: {one.event_id} ({printable(one.reason)})")


def _show_records(state: State, collection: str, limit: int, *, as_json: bool) -> None:
    if collection not in state.collections:
        known = ", ".join(state.collections) or "none"
        raise UsageError(f"there is no collection {collection!r}", fix=f"there are: {known}")
    records = [state.as_record(record) for record in getattr(state, collection)]
    if as_json:
        print_json({collection: records[:limit], "more": len(records) > limit})
        return
    columns = list(dict.fromkeys(name for record in records for name in record))
    rows = [[str(record.get(name, "")) for name in columns] for record in records[:limit]]
    if rows:
        print_table(columns, rows, may_go=columns[1:-1][::-1])
    if len(records) > limit:
        click.echo(f"… of {len(records):,}: the same with --limit", err=True)


@command.command()
@click.argument("subject")
@click.argument("old", type=int, required=False)
@click.argument("new", type=int, required=False)
@everywhere
@click.pass_context
def diff(ctx: click.Context, subject: str, old: int | None, new: int | None) -> None:
    """What changed between two versions of SUBJECT's types and rules; by default the last two."""
    changes = open_memory(ctx).subjects.diff(subject, old, new)
    if ctx.obj["json"]:
        print_json({"changes": changes})
        return
    for change in changes:
        breaking = click.style("  breaking", fg="red") if change.breaking else ""
        click.echo(printable(str(change)) + breaking)
    if not changes:
        click.echo("nothing changed", err=True)


@command.command()
@click.argument("subject")
@click.argument("field", required=False)
@everywhere
@click.pass_context
def history(ctx: click.Context, subject: str, field: str | None) -> None:
    """Every value of a FIELD of SUBJECT, with both times; without one, every version."""
    memory = open_memory(ctx)
    if field is None:
        versions = memory.subjects.versions(subject)
        if ctx.obj["json"]:
            print_json({"versions": [dict(zip(_VERSION, one, strict=True)) for one in versions]})
        else:
            print_table(_VERSION, [[str(part) for part in one] for one in versions])
        return
    entries = memory.state(subject).history(field)
    if ctx.obj["json"]:
        print_json({"history": [{"key": key, **_plain(entry)} for key, entry in entries]})
        return
    columns = ("since", "recorded", "status", "source", "event", "value")
    print_table(columns, [_entry_cells(entry) for _, entry in entries])


_VERSION = ("version", "created_at", "observations")


def _plain(entry: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(entry)
    return found


def _entry_cells(entry: Any) -> tuple[str, ...]:
    times = [moment.strftime("%Y-%m-%d %H:%M") for moment in (entry.at, entry.recorded_at)]
    return (*times, entry.status, entry.source, entry.event_ids[0], str(entry.value))


@command.command()
@click.argument("subject")
@click.option("--version", type=int, help="An earlier one.")
@everywhere
@click.pass_context
def code(ctx: click.Context, subject: str, version: int | None) -> None:
    """Print the generated module of SUBJECT: classes, collections, arbitration, rules."""
    state = open_memory(ctx).subjects.state(subject, version=version)
    if ctx.obj["json"]:
        print_json({"code": state.code})
    else:
        click.echo(state.code, nl=False)


@command.command()
@click.argument("subject")
@click.argument("type_", metavar="TYPE")
@click.argument("fields", metavar="FIELD…", nargs=-1, required=True)
@click.option("--accept", is_flag=True, help="Also if it breaks kept questions or rules.")
@everywhere
@click.pass_context
def key(
    ctx: click.Context, subject: str, type_: str, fields: tuple[str, ...], accept: bool
) -> None:
    """Say by which FIELDs records of a TYPE are one and the same. It is itself an event.

    \b
    em state key ana Contact email
    """
    memory = open_memory(ctx)
    decided = memory.declare(subject, type_, fields)
    report = memory.subjects.checkpoint(subject, accept=accept)
    if ctx.obj["json"]:
        print_json({"event_id": decided, "version": report.version})
    else:
        click.echo(f"decided: event {decided}; version {report.version}")


@click.command("repl")
@click.argument("subject")
@click.option("--as-of", metavar="TIME", help="As it was at this moment.")
@everywhere
@click.pass_context
def repl(ctx: click.Context, subject: str, as_of: str | None) -> None:
    """An interactive Python with SUBJECT's typed state loaded: `state`, `profile`, collections."""
    state = open_memory(ctx).state(subject, as_of)
    scope: dict[str, Any] = {**vars(state.module), "state": state, "profile": state.profile}
    scope |= {name: getattr(state, name) for name in state.collections}
    _complete(scope)
    names = ", ".join(["state", "profile", *state.collections])
    python_console.interact(
        banner=f"{state!r}\nin scope: {names}; help(Trip) shows a class, Ctrl-D ends",
        local=scope,
        exitmsg="",
    )


def _complete(scope: dict[str, Any]) -> None:
    """Tab completion, where this Python can."""
    try:
        import readline
        import rlcompleter
    except ImportError:  # a Python without readline still is one
        return
    readline.set_completer(rlcompleter.Completer(scope).complete)
    readline.parse_and_bind("tab: complete")
