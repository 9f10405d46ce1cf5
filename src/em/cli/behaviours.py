"""`em routine behaviours`: list, show, export and forget the behaviours that engines recorded."""

from pathlib import Path
from typing import Any

import click
import msgspec

from em.behaviour.bundle import export_behaviour
from em.behaviour.cache import (
    Counts,
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
from em.cli.output import Columns, count, emit, emit_list, note
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
    short = dict(zip([row["id"] for row in rows], map(short_id, found), strict=True))
    names = ("engine", "recorded", "state", "steps", "hits", "hand_overs", "task")
    columns: Columns = {"id": lambda row: short[row["id"]], **{name: name for name in names}}
    none = "no behaviours yet; an em.Engine with a db records them"
    emit_list("behaviours", rows, columns, none=none)


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


@behaviours.command("show")
@click.argument("behaviour", metavar="ID")
def show(behaviour: str) -> None:
    """Show a behaviour: steps, sources of values, checks."""
    store = open_memory().store
    artefact = find_behaviour(store, behaviour)
    counts = read_stats(store).behaviours.get(id_of(artefact), Counts())
    learnt = {**(artefact.body or {}), "routine": taught_of(store, artefact).routine}
    emit({**_summary(artefact, counts), "behaviour": learnt})


@behaviours.command("stats")
def stats() -> None:
    """Count hits, misses, hand-overs and failures, and their time."""
    emit(read_stats(open_memory().store))


@behaviours.command("forget")
@click.argument("behaviour", metavar="ID")
@click.option("--retire", is_flag=True, help="Only retire it; its run stays in the log.")
def forget(behaviour: str, retire: bool) -> None:
    """Erase a behaviour, its recorded run and its replays."""
    store = open_memory().store
    artefact = find_behaviour(store, behaviour)
    erasure = forget_behaviour(store, artefact, only_retire=retire)
    name = id_of(artefact)
    done = "forgotten" if erasure else "retired"
    erased = f": {count(len(erasure.events), 'event')} erased" if erasure else ""
    emit({"id": name, "retired": True, "erasure": erasure}, f"{name} is {done}{erased}")
    if erasure and not erasure.scrubbed:
        note(f"  not yet scrubbed from the disk: {erasure.scrub_problem}")


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
