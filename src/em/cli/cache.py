"""`em cache`: the behaviours that engines have recorded."""

from pathlib import Path
from typing import Any

import click
import msgspec

from em.behaviour.bundle import export_behaviour, import_routine
from em.behaviour.cache import (
    Counts,
    behaviour_of,
    find_behaviour,
    forget_behaviour,
    id_of,
    newest_behaviours,
    read_stats,
    short_id,
)
from em.cli.options import everywhere, open_memory
from em.cli.output import count, print_json, print_table
from em.errors import InputError
from em.store.protocol import Artefact

_ENGINE = click.option("--engine", metavar="NAME", help="Only this engine's.")


@click.group("cache", no_args_is_help=True)
@everywhere
def cache() -> None:
    """Look at recorded behaviours, take them out and bring them in."""


@cache.command("list")
@_ENGINE
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True)
@everywhere
@click.pass_context
def list_(ctx: click.Context, engine: str | None, limit: int) -> None:
    """The newest behaviours, with what became of their replays."""
    store = open_memory(ctx).store
    found = newest_behaviours(store, engine, limit)
    counts = read_stats(store, engine).behaviours
    rows = [_summary(artefact, counts.get(id_of(artefact), Counts())) for artefact in found]
    if ctx.obj["json"]:
        print_json({"behaviours": rows})
    elif rows:
        columns = ("id", "engine", "recorded", "state", "steps", "hits", "hand_overs", "task")
        print_table(
            columns,
            [
                (
                    short_id(artefact),
                    *(str(row[name]) for name in columns[1:-1]),
                    _text(row["task"]),
                )
                for artefact, row in zip(found, rows, strict=True)
            ],
            may_go=("recorded", "engine"),
        )
    else:
        click.echo("no behaviours yet; an em.Engine with a db records them", err=True)


def _summary(artefact: Artefact, counts: Counts) -> dict[str, Any]:
    body = artefact.body or {}
    state = "erased" if artefact.body is None else "retired" if artefact.retired_at else "in use"
    return {
        "id": id_of(artefact),
        "engine": artefact.name.rpartition("/")[0],
        "recorded": artefact.created_at.strftime("%Y-%m-%d %H:%M:%S"),
        "state": state,
        "task": body.get("task"),
        "tags": body.get("tags", []),
        "steps": len(body.get("steps", ())),
        **msgspec.to_builtins(counts),
    }


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@cache.command("show")
@click.argument("behaviour", metavar="ID")
@everywhere
@click.pass_context
def show(ctx: click.Context, behaviour: str) -> None:
    """One behaviour: its steps, where their values come from, what its checks saw."""
    store = open_memory(ctx).store
    artefact = find_behaviour(store, behaviour)
    found = behaviour_of(artefact)
    counts = read_stats(store).behaviours.get(id_of(artefact), Counts())
    if ctx.obj["json"]:
        print_json({**_summary(artefact, counts), "behaviour": artefact.body})
        return
    click.echo(f"{id_of(artefact)}  {_summary(artefact, counts)['state']}")
    click.echo(f"task {_text(found.task)}" + (f"  tags {_text(found.tags)}" if found.tags else ""))
    rows = [
        (
            str(number),
            step.tool,
            f"{step.seconds * 1e3:.1f}",
            *("" if c is None else _text(c.value) for c in (step.pre, step.post)),
            _text({**step.args, **{name: f"step {n + 1}" for name, n in step.live.items()}}),
        )
        for number, step in enumerate(found.steps, 1)
    ]
    print_table(("step", "tool", "ms", "before", "after", "arguments"), rows)
    click.echo(f"returns {_text(found.answer.value)}")
    click.echo(
        f"{count(counts.hits, 'hit')}, {count(counts.misses, 'miss').replace('misss', 'misses')},"
        f" {count(counts.hand_overs, 'hand-over')}, {count(counts.failures, 'failure')};"
        f" {counts.saved_seconds:.1f} s saved"
    )


@cache.command("stats")
@_ENGINE
@everywhere
@click.pass_context
def stats(ctx: click.Context, engine: str | None) -> None:
    """Hits, misses, hand-overs and failures, and what they took."""
    found = read_stats(open_memory(ctx).store, engine)
    plain = msgspec.to_builtins(found)
    if ctx.obj["json"]:
        print_json(plain)
        return
    plain.pop("behaviours")
    rows = [
        (name, f"{value:,.1f}" if "sec" in name else f"{value:,}") for name, value in plain.items()
    ]
    print_table(("what", "count"), [(name.replace("_", " "), value) for name, value in rows])


@cache.command("forget")
@click.argument("behaviour", metavar="ID")
@click.option("--retire", is_flag=True, help="Only take it out of use; the log keeps its run.")
@everywhere
@click.pass_context
def forget(ctx: click.Context, behaviour: str, retire: bool) -> None:
    """Erase a behaviour, the run it came from and the replays of it."""
    store = open_memory(ctx).store
    artefact = find_behaviour(store, behaviour)
    erasure = forget_behaviour(store, artefact, only_retire=retire)
    if ctx.obj["json"]:
        print_json({"id": id_of(artefact), "retired": True, "erasure": erasure})
    elif erasure is None:
        click.echo(f"{id_of(artefact)} is out of use")
    else:
        click.echo(f"{id_of(artefact)} is forgotten: {count(len(erasure.events), 'event')} erased")
        if not erasure.scrubbed:
            click.echo(f"  not yet scrubbed: {erasure.scrub_problem}", err=True)


@cache.command("export")
@click.argument("behaviour", metavar="ID")
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False), metavar="DIR",
    help="The folder of the routine.",
)  # fmt: skip
@everywhere
@click.pass_context
def export(ctx: click.Context, behaviour: str, output: str) -> None:
    """Write a behaviour as a routine package: to be read, mended, and run by `em run`."""
    store = open_memory(ctx).store
    artefact = find_behaviour(store, behaviour)
    draft = export_behaviour(store, artefact, Path(output))
    steps = len(draft.recording)
    if ctx.obj["json"]:
        print_json({"id": id_of(artefact), "folder": output, "steps": steps})
    else:
        click.echo(f"{count(steps, 'step')} in {output}; replayed against the recording")


@cache.command("import")
@click.argument("folder", type=click.Path(exists=True, file_okay=False), metavar="DIR")
@click.option("--engine", metavar="NAME", help="Whose it becomes.  [as exported]")
@click.option("--task", metavar="JSON", help="The agent's arguments by name.  [input.json]")
@click.option("--param", "params", multiple=True, help="An argument that varies.  [all]")
@click.option("--tag", "tags", multiple=True, help="A tag of the task; may be repeated.")
@everywhere
@click.pass_context
def import_(
    ctx: click.Context,
    folder: str,
    engine: str | None,
    task: str | None,
    params: tuple[str, ...],
    tags: tuple[str, ...],
) -> None:
    """Bring in the routine in DIR, which `em cache export` or `em compile` wrote."""
    stored = import_routine(
        open_memory(ctx, create=True).store,
        Path(folder),
        engine=engine,
        task=_arguments(task),
        params=list(params) or None,
        tags=tags,
    )
    if ctx.obj["json"]:
        print_json({"id": stored})
    else:
        click.echo(stored)


def _arguments(task: str | None) -> dict[str, Any] | None:
    if task is None:
        return None
    try:
        return msgspec.json.decode(task, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise InputError(f"it is no JSON object: {error}", place="--task") from None
