"""`em import`: import the transcripts of agents, once or while they are written."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from em.cli.command import Command
from em.cli.options import open_memory, reading
from em.cli.output import count, emit, note, printable, progress, wants_json
from em.errors import UsageError
from em.memory import Memory
from em.traces.catalogue import get_traces

if TYPE_CHECKING:
    from em.traces.transcripts import FileRead

BROKEN_LINES_SHOWN = 10
"""Broken lines of a file that are named."""
LOOKED_FOR = (
    "em looks for .jsonl, .json, .ndjson and .traj files, others that begin like JSON, and"
    " databases of opencode. Agents have them in ~/.claude/projects, ~/.codex/sessions and"
    " ~/.local/share/opencode"
)


class _ListsFormats(Command):
    """A command whose help lists the formats. The importers are loaded only for that."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from em.traces.formats import importers

        super().format_epilog(ctx, formatter)
        formatter.write_paragraph()
        formatter.write_text(f"Formats: {', '.join(importers())}.")


@click.command("import", cls=_ListsFormats)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--format", "format_", metavar="FORMAT", help="The format.  [detected]")
@click.option("--subject", help="The subject of the traces.")
@click.option("--watch", is_flag=True, help="Go on as agents write, until Ctrl-C.")
def import_(paths: tuple[str, ...], format_: str | None, subject: str | None, watch: bool) -> int:
    """Import the traces in PATH: files, folders, patterns, or - for standard input.

    The format is detected and reported. Importing a file again changes nothing; of a file that has
    grown, only the new part is imported. A broken line is reported and skipped. A line of a kind
    that the importer does not know is stored verbatim.

    --watch imports what agents write in a folder while they write it, and goes on where it was
    when it is started again: em import ~/.claude/projects --watch
    """
    if watch:
        _watch(paths, format_, subject)
        return 0
    from em.traces.transcripts import as_json, files_in, import_each, import_file, total_size

    files = [path for path in paths if path != "-"]
    total = len(list(files_in(files)))  # a missing path is an error before anything is written
    if files and not total:
        note(f"no file in {', '.join(map(printable, files))} looks like a transcript: {LOOKED_FOR}")
    memory = open_memory(create=True)
    read: list[FileRead] = []
    try:
        with progress("importing", total_size(files), unit_bytes=True) as advance:
            how: dict[str, Any] = {"format_": format_, "subject": subject, "progress": advance}
            read.extend(import_each(memory.store, files, **how))
            if "-" in paths:
                with reading("-") as (source, name):
                    read.append(import_file(memory.store, source, name, **how))
    except KeyboardInterrupt:
        stored = count(sum(one.new_traces for one in read), "new trace")
        note(
            f"stopped: {len(read):,} of {count(total, 'file')} were imported, with {stored}. To go"
            " on, give the same command again: what is stored is not imported twice."
        )
        raise

    def text() -> None:
        for one in read:
            _print_file(one, alone=len(read) == 1)
        _print_totals(memory, read)

    emit({"files": [as_json(one) for one in read], **_sums(read)}, text)
    return 1 if not any(one.format for one in read) else 0


def _sums(read: "Sequence[FileRead]") -> dict[str, int]:
    return {
        "new_traces": sum(one.new_traces for one in read),
        "new_events": sum(one.new for one in read),
        "unknown": sum(one.unknown for one in read),
        "broken": sum(one.broken for one in read),
    }


def _print_file(one: "FileRead", *, alone: bool) -> None:
    where = printable(one.path)
    if one.skipped == "unchanged":
        if alone:
            click.echo(f"{where}: {one.format}, unchanged since the last import")
        return
    if one.skipped:
        note(f"{where}: not imported: {one.skipped}{f'; {one.fix}' if one.fix else ''}")
        return
    parts = [count(len(one.traces), "trace"), count(one.calls, "call")]
    parts.append(count(one.new, "new event") if one.new else "nothing new")
    if one.unknown:
        parts.append(f"{count(one.unknown, 'line')} stored verbatim")
    if one.left_out:
        parts.append(f"{count(one.left_out, 'trace')} left out: their folder says so (.emignore)")
    click.echo(f"{where}: {one.format}, {', '.join(parts)}")
    if one.mended:
        note(
            f"  half a surrogate pair is not Unicode: stored as U+FFFD, {count(one.mended, 'line')}"
        )
    for problem in one.problems[:BROKEN_LINES_SHOWN]:
        note(f"  {problem.place}: {problem.message}")
    if one.broken > BROKEN_LINES_SHOWN:
        note(f"  and {one.broken - BROKEN_LINES_SHOWN:,} more")


LOOKED_AT = 20
"""How many imported traces are looked at to see whether they say an outcome."""


def _are_open(memory: Memory, read: "Sequence[FileRead]") -> bool:
    """Return whether `em routine suggest` would leave out more traces than it takes."""
    from em.compiler.sessions import is_session
    from em.traces.outcomes import outcome_of_kept

    ids = [trace for one in read if one.new_traces for trace in one.traces][-LOOKED_AT:]
    kept = get_traces(memory.store, ids)
    successes = sum(outcome_of_kept(one) == "success" for one in kept)
    left_out = sum(outcome_of_kept(one) == "unknown" and not is_session(one.trace) for one in kept)
    return left_out > successes


def _print_totals(memory: Memory, read: "Sequence[FileRead]") -> None:
    if len(read) != 1:
        same = sum(one.skipped == "unchanged" for one in read)
        other = sum(one.skipped not in ("", "unchanged") for one in read)
        sums = _sums(read)
        line = f"{count(sums['new_traces'], 'new trace')} in {count(len(read), 'file')}"
        others = {"unchanged": same, "not imported": other, "broken lines": sums["broken"]}
        click.echo(
            line + "".join(f", {number:,} {what}" for what, number in others.items() if number)
        )
    if any(one.new_traces for one in read):
        more = " --allow-unlabelled" if _are_open(memory, read) else ""
        command = f"`em routine suggest{more}`"
        click.echo(f"next: {command} shows which are worth compiling, `em traces list` lists all")


def _watch(paths: tuple[str, ...], format_: str | None, subject: str | None) -> None:
    from em.traces.formats import importer_of
    from em.traces.watch import Watch

    folder = Path(paths[0])
    if len(paths) > 1 or not folder.is_dir():
        raise UsageError("--watch needs one folder", place=paths[-1], fix="em import DIR --watch")
    if format_ is not None:
        importer_of(format_)
    watched = Watch(open_memory(create=True).store, folder, format_=format_, subject=subject)
    if not wants_json():
        note(f"watching {folder}; end with Ctrl-C")
    for read in watched.run():
        shown = {"path": read.path, "format": read.format, "new": read.new}
        emit(shown, partial(_print_watched, read))


def _print_watched(read: "FileRead") -> None:
    if read.skipped:
        note(f"{read.path}: {read.skipped}")
    else:
        news = f"{count(read.new, 'event')}, {count(read.calls, 'call')} so far"
        click.echo(f"{printable(read.path)}: {read.format}, {news}")
