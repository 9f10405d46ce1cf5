"""`em routine behaviours`: list, show, export and forget the behaviours that engines recorded."""

from pathlib import Path
from typing import Any

import click
import msgspec

from em.behaviour.behaviour import Behaviour, Taught
from em.behaviour.bundle import export_behaviour
from em.behaviour.cache import (
    Counts,
    behaviour_of,
    find_behaviour,
    forget_behaviour,
    id_of,
    list_behaviours,
    read_stats,
    short_id,
    steps_in,
    taught_of,
)
from em.cli.command import group
from em.cli.options import limited, open_memory
from em.cli.output import count, emit, note, print_table
from em.store.protocol import Artefact


@group("behaviours")
def behaviours() -> None:
    """List, show, export and forget recorded behaviours."""


@behaviours.command("list")
@limited(20)
def list_(limit: int) -> None:
    """List the newest behaviours, with the results of their replays."""
    store = open_memory().store
    found = list_behaviours(store, limit=limit).behaviours
    counts = read_stats(store).behaviours
    rows = [_summary(artefact, counts.get(id_of(artefact), Counts())) for artefact in found]

    def text() -> None:
        if not rows:
            note("no behaviours yet; an em.Engine with a db records them")
            return
        columns = ("id", "engine", "recorded", "state", "steps", "hits", "hand_overs", "task")
        cells = [
            (short_id(artefact), *(str(row[name]) for name in columns[1:-1]), _text(row["task"]))
            for artefact, row in zip(found, rows, strict=True)
        ]
        print_table(columns, cells, may_go=("recorded", "engine"))

    emit({"behaviours": rows}, text)


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
        "steps": steps_in(artefact),
        **msgspec.to_builtins(counts),
    }


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


@behaviours.command("show")
@click.argument("behaviour", metavar="ID")
def show(behaviour: str) -> None:
    """Show a behaviour: steps, sources of values, checks."""
    store = open_memory().store
    artefact = find_behaviour(store, behaviour)
    found = behaviour_of(artefact)
    taught = taught_of(store, artefact)
    counts = read_stats(store).behaviours.get(id_of(artefact), Counts())
    summary = _summary(artefact, counts)
    emit(
        {**summary, "behaviour": {**(artefact.body or {}), "routine": taught.routine}},
        lambda: _print_behaviour(id_of(artefact), summary["state"], found, taught, counts),
    )


def _print_behaviour(
    name: str, state: str, found: Behaviour, taught: Taught, counts: Counts
) -> None:
    click.echo(f"{name}  {state}")
    click.echo(f"task {_text(found.task)}" + (f"  tags {_text(found.tags)}" if found.tags else ""))
    rows = [
        (
            str(number),
            step.tool,
            f"{step.seconds * 1e3:.1f}",
            *("" if c is None else _text(c.value) for c in (step.pre, step.post)),
            _text(call["args"]),
        )
        for number, (step, call) in enumerate(zip(found.steps, taught.calls, strict=True), 1)
    ]
    print_table(("step", "tool", "ms", "before", "after", "arguments"), rows)
    click.echo(f"returns {_text(taught.returns)}")
    click.echo(
        f"{count(counts.hits, 'hit')}, {count(counts.misses, 'miss').replace('misss', 'misses')},"
        f" {count(counts.hand_overs, 'hand-over')}, {count(counts.failures, 'failure')};"
        f" {counts.saved_seconds:.1f} s saved"
    )


@behaviours.command("stats")
def stats() -> None:
    """Count hits, misses, hand-overs and failures, and their time."""
    found = read_stats(open_memory().store)
    plain = msgspec.to_builtins(found)
    rows = [
        (name.replace("_", " "), f"{value:,.1f}" if "sec" in name else f"{value:,}")
        for name, value in plain.items()
        if name != "behaviours"
    ]
    emit(plain, lambda: print_table(("what", "count"), rows))


@behaviours.command("forget")
@click.argument("behaviour", metavar="ID")
@click.option("--retire", is_flag=True, help="Only retire it; its run stays in the log.")
def forget(behaviour: str, retire: bool) -> None:
    """Erase a behaviour, its recorded run and its replays."""
    store = open_memory().store
    artefact = find_behaviour(store, behaviour)
    erasure = forget_behaviour(store, artefact, only_retire=retire)
    name = id_of(artefact)

    def text() -> None:
        if erasure is None:
            click.echo(f"{name} is retired")
            return
        click.echo(f"{name} is forgotten: {count(len(erasure.events), 'event')} erased")
        if not erasure.scrubbed:
            note(f"  not yet scrubbed from the disk: {erasure.scrub_problem}")

    emit({"id": name, "retired": True, "erasure": erasure}, text)


@behaviours.command("export")
@click.argument("behaviour", metavar="ID")
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False), metavar="DIR",
    help="The folder to write the routine to.",
)  # fmt: skip
def export(behaviour: str, output: str) -> None:
    """Write a behaviour as a routine package. You can edit it, and run it with `em run`."""
    store = open_memory().store
    artefact = find_behaviour(store, behaviour)
    steps = export_behaviour(store, artefact, Path(output))
    emit(
        {"id": id_of(artefact), "folder": output, "steps": steps},
        f"{count(steps, 'call')} in {output}",
    )
