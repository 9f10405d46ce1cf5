"""`em import`: transcripts that agents left on disk."""

from collections.abc import Sequence

import click

from em.cli.files import reading
from em.cli.options import everywhere, open_memory
from em.cli.output import Advance, count, print_json, printable, progress
from em.memory import Memory
from em.traces.formats import importers
from em.traces.intake import Problem
from em.traces.transcripts import (
    FileRead,
    as_json,
    files_in,
    import_file,
    import_paths,
    total_size,
)

SHOWN = 10
"""So many broken lines of a file are named."""


@click.command("import", epilog="Formats: " + ", ".join(importers()) + ".")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--format", "format_", metavar="FORMAT", help="The format.  [found by looking]")
@click.option("--subject", help="Whose traces they are.")
@everywhere
@click.pass_context
def command(
    ctx: click.Context, paths: tuple[str, ...], format_: str | None, subject: str | None
) -> int:
    """Keep the traces in PATH: files, folders, patterns, or - for standard input.

    The format is found and said. The same file again changes nothing, and one that has grown brings
    only what is new. A line that can't be read is named, and the rest goes on; one that nobody
    understands is kept as it is.
    """
    files = [path for path in paths if path != "-"]
    list(files_in(files))  # what is not there is said before anything is written
    memory = open_memory(ctx, create=True)
    with progress("importing", total_size(files), unit_bytes=True) as advance:
        read = import_paths(memory.store, files, format_=format_, subject=subject, progress=advance)
        if "-" in paths:
            read.append(_from_standard_input(memory, format_, subject, advance))
    if ctx.obj["json"]:
        print_json({"files": [as_json(one) for one in read], **_sums(read)})
    else:
        for one in read:
            _tell(one, alone=len(read) == 1)
        _tell_all(read)
    return 1 if not any(one.format for one in read) else 0


def _from_standard_input(
    memory: Memory, format_: str | None, subject: str | None, advance: Advance
) -> FileRead:
    with reading("-") as (source, name):
        return import_file(
            memory.store, source, name, format_=format_, subject=subject, progress=advance
        )


def _sums(read: Sequence[FileRead]) -> dict[str, int]:
    return {
        "new_traces": sum(one.new_traces for one in read),
        "new_events": sum(one.new for one in read),
        "unknown": sum(one.unknown for one in read),
        "broken": sum(len(one.problems) for one in read),
    }


def _tell(one: FileRead, *, alone: bool) -> None:
    where = printable(one.path)
    if one.skipped == "unchanged":
        if alone:
            click.echo(f"{where}: {one.format}, unchanged since it was read")
        return
    if one.skipped:
        return
    parts = [count(len(one.traces), "trace"), count(one.calls, "call")]
    parts.append(count(one.new, "new event") if one.new else "nothing new")
    if one.unknown:
        parts.append(f"{count(one.unknown, 'line')} kept verbatim")
    click.echo(f"{where}: {one.format}, {', '.join(parts)}")
    for problem in one.problems[:SHOWN]:
        _tell_problem(problem)
    if len(one.problems) > SHOWN:
        click.echo(f"  and {len(one.problems) - SHOWN:,} more", err=True)


def _tell_problem(problem: Problem) -> None:
    click.echo(f"  {printable(problem.place)}: {printable(problem.message)}", err=True)


def _tell_all(read: Sequence[FileRead]) -> None:
    other = [one for one in read if one.skipped and one.skipped != "unchanged"]
    same = sum(one.skipped == "unchanged" for one in read)
    if len(read) != 1:
        sums = _sums(read)
        told = f"{count(sums['new_traces'], 'new trace')} in {count(len(read), 'file')}"
        told += f", {same:,} unchanged" if same else ""
        told += f", {len(other):,} no transcripts" if other else ""
        told += f", {sums['broken']:,} broken lines" if sums["broken"] else ""
        click.echo(told)
    if any(one.new_traces for one in read):
        click.echo("`em suggest` says which are worth compiling; `em traces list` shows them")
