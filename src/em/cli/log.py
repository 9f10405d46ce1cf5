"""`em log` and `em forget`: append to, show, verify, export, import, copy and erase the log."""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from em.cli.command import command, group
from em.cli.options import (
    find_event,
    limited,
    open_memory,
    parse_object,
    reading,
    selection,
    standard_input,
    writing,
)
from em.cli.output import (
    cell,
    count,
    emit,
    note,
    print_table,
    printable,
    progress,
    terminal_width,
    wants_json,
)
from em.errors import BadBody, InputError, NotFound, StoreBusy, UsageError
from em.log.event import Event, EventQuery, run_stream, trace_stream
from em.log.lines import write_line
from em.log.verify import Head, Report
from em.memory import Memory
from em.runner.history import read_run
from em.settings import Settings
from em.store.protocol import Erasure
from em.traces.catalogue import get_traces
from em.values.times import parse_duration

MAX_CHARS = 400
"""Characters of an event that a line shows."""
COLUMNS = ("seq", "at", "stream", "kind", "subject", "what happened")

_save_head = click.option(
    "--save-head",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Save the heads to FILE, for `em log verify --head`. Store it outside the database.",
)


@group("log")
def log() -> None:
    """Append to, show, verify, export, import and copy the log."""


@log.command()
@click.argument("body")
@click.option("--stream", required=True, help="The stream of the event: a run, a user, ….")
@click.option("--kind", required=True, help="The kind of event: message, tool_call, your own.")
@click.option("--subject", help="The subject of the event.")
@click.option("--at", metavar="TIME", help="When it happened.  [now]")
def append(body: str, stream: str, kind: str, subject: str | None, at: str | None) -> None:
    """Append one event. BODY is a JSON object, or - to read it from standard input."""
    value = _parse_body(standard_input() if body == "-" else os.fsencode(body))
    event = open_memory(create=True).log.append(stream, kind, value, subject=subject, at=at)
    emit(event, f"{event.id}  position {event.pos} of {event.stream}")


@log.command()
@selection
@click.option("--id", "event_id", metavar="ID|SEQ", help="Show one event in full.")
@click.option("--after", type=int, default=0, metavar="SEQ", help="Only events after this one.")
@limited(100, least=0)
def show(*, event_id: str | None, after: int, limit: int, **chosen: Any) -> None:
    """Show events, oldest first."""
    memory = open_memory()
    if event_id is not None:
        event = find_event(memory, event_id)
        emit(event)
        return
    events = list(memory.log.read(**chosen, after=after, limit=limit + 1))
    more, events = len(events) > limit, events[:limit]

    def text() -> None:
        _print_events(events)
        if more and events:
            note(f"… there are more: repeat with --after {events[-1].seq}")

    emit({"events": events, "more": more}, text)


@log.command()
@selection
@limited(10, least=0)
@click.option("-f", "--follow", is_flag=True, help="Show new events as they arrive, until Ctrl-C.")
def tail(*, limit: int, follow: bool, **chosen: Any) -> None:
    """Show the newest events; with -f, also new ones. With --json, one event per line."""
    events_log = open_memory().log
    last = events_log.head_seq()
    events = list(events_log.read(**chosen, limit=limit, newest=True))
    last = max(last, *(event.seq for event in events), 0)  # some may have come since
    as_json = wants_json()
    if as_json:
        _print_lines(events)
    else:
        _print_events(events)
    if follow:
        with suppress(KeyboardInterrupt):  # the way to end it
            for event in events_log.follow(after=last, **chosen):
                if as_json:
                    _print_lines([event])
                else:
                    click.echo(printable("  ".join(_cells(event)))[: terminal_width()])


@log.command()
@click.option("--stream", help="Only this stream.")
@click.option(
    "--head",
    "head_file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Compare with heads saved earlier, to detect events removed from the end.",
)
@_save_head
def verify(stream: str | None, head_file: str | None, save_head: str | None) -> int:
    """Verify that no event, artefact or record was changed or removed. Exit code 1 if one was."""
    memory = open_memory()
    heads = None if head_file is None else _read_heads(head_file)
    total = memory.store.health().events
    with progress("verifying", total) as advance:
        report = memory.log.verify(stream=stream, heads=heads, progress=advance)
    if stream is not None and not report.streams and report.ok:
        raise NotFound("this stream has no events", place=f"stream {stream!r}")
    if report.ok:
        _save_heads(save_head, report, memory)
    shown = ("ok", "events", "streams", "erased", "findings")
    emit({name: getattr(report, name) for name in shown}, lambda: _print_report(report))
    return 0 if report.ok else 1


def _save_heads(file: str | None, report: Report, memory: Memory) -> None:
    if file is not None:
        with writing(file, memory.store.location) as out:
            out.write(msgspec.json.format(msgspec.json.encode(report.heads), indent=1) + b"\n")


@log.command()
@click.argument("file", type=click.Path(dir_okay=False))
@_save_head
def backup(file: str, save_head: str | None) -> None:
    """Copy the memory to FILE while others read and write it. SQLite only.

    The copy shows one moment, and is verified before it takes the place of an older FILE. To
    restore it, stop what uses the memory, put FILE in its place, and run `em log verify --head`.
    For PostgreSQL use pg_dump; see docs/deployment.md. A backup keeps what is forgotten later:
    delete the backups from before.
    """
    from em.store.sqlite import back_up

    memory = open_memory()
    with progress("copying pages") as bar:
        report = back_up(memory.store, Path(file), bar.at)
    _save_heads(save_head, report, memory)
    shown = {"file": file, "events": report.events, "streams": report.streams}
    emit(shown, f"{count(report.events, 'event')} in {file}, verified")


@log.command()
def rebuild() -> None:
    """Make lessons, and what lists show of runs, traces and jobs, again from the log.

    Lists are kept up to date by themselves. Use this if one shows something else than the log has.
    """
    memory = open_memory()
    lessons = memory.heuristics.restore()
    with progress("summarising") as bar:
        memory.store.summaries.rebuild(bar)
    restored = f", {count(lessons, 'lesson')} restored" if lessons else ""
    emit(
        {"summaries": bar.done, "lessons": lessons},
        f"rebuilt: {count(bar.done, 'row')}{restored}",
    )


@log.command()
@click.argument("file", default="-", type=click.Path(dir_okay=False, allow_dash=True))
@selection
def export(*, file: str, **chosen: Any) -> None:
    """Write events as JSONL to FILE or standard output. `em log import` restores the same log."""
    memory = open_memory()
    total = memory.store.health().events
    done = 0
    with writing(file, memory.store.location) as out, progress("exporting", total) as advance:
        for line in memory.log.export(**chosen):
            out.write(line)
            done += 1
            if done % 1_000 == 0:
                advance(1_000)
    if file != "-":
        emit({"exported": done, "file": file}, f"{count(done, 'event')} in {file}")


@log.command("import")
@click.argument("file", default="-", type=click.Path(exists=True, allow_dash=True))
@click.option(
    "--rechain",
    is_flag=True,
    help="Append exported events as new ones, with new ids, at the end of their streams.",
)
def import_(file: str, rechain: bool) -> None:
    """Append the event lines of FILE or standard input.

    All lines are imported, or none. Exported events that the log already has are skipped, so
    importing an export twice changes nothing. Lines without an id are new events each time.
    """
    with reading(file) as (source, name):
        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        memory = open_memory(create=True)
        with progress("importing", 2 * size, unit_bytes=True) as advance:
            done = memory.log.import_file(source, name, rechain=rechain, progress=advance)
    if memory.store.health().scrub_pending:
        note("erased bodies are still on the disk: run `em forget --finish`")
    found = {
        "imported": done.added,
        "already_there": done.already_there,
        "left_out": done.left_out,
        "lessons": memory.heuristics.restore(),
    }
    more = {
        "already there": done.already_there,
        "erased and left out": done.left_out,
        "lessons restored": found["lessons"],
    }
    left = "".join(f", {number:,} {what}" for what, number in more.items() if number)
    emit(found, f"{count(done.added, 'event')} imported{left}")


def _parse_body(text: bytes) -> dict[str, Any]:
    try:
        return parse_object(text, "BODY", UsageError, fix="""write '{"name": "value"}'""")
    except UsageError as error:
        if isinstance(error.__context__, RecursionError):
            raise BadBody("nested too deep", place="BODY") from None
        raise


def _print_events(events: Sequence[Event]) -> None:
    if events:
        print_table(COLUMNS, [_cells(event) for event in events])
    else:
        note("no events")


def _cells(event: Event) -> tuple[str, ...]:
    """Return an event as a row: its body as the text in it, else as JSON."""
    body = event.body or {}
    what = body.get("text") or body.get("goal")
    who = body.get("speaker") or body.get("role")
    said = f"{who}: {what}" if who and what else what
    text = "(erased)" if event.body is None else cell(said or body)[:MAX_CHARS]
    return (*map(cell, (event.seq, event.at, event.stream, event.kind, event.subject)), text)


def _print_lines(events: Iterable[Event]) -> None:
    for event in events:
        click.echo(write_line(event))


def _print_report(report: Report) -> None:
    erased = f", {report.erased:,} of them erased on request" if report.erased else ""
    what = f"{count(report.events, 'event')} in {count(report.streams, 'stream')}{erased}"
    if report.ok:
        click.echo(click.style("verified", fg="green") + f": {what}; nothing changed or missing")
        return
    rows = [
        [one.problem.replace("_", " "), one.noun, one.stream, one.event_id, one.detail]
        for one in report.findings
    ]
    print_table(("problem", "in", "name", "id", "what is wrong"), rows, whole=("id",))
    problems = count(len(report.findings), "problem")
    click.echo(click.style("verification failed", fg="red") + f": {problems} in {what}")


def _read_heads(file: str) -> dict[str, Head]:
    try:
        with reading(file) as (source, _):
            return msgspec.json.decode(source.read(), type=dict[str, Head])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(
            f"expected heads that `em log verify --save-head` saved: {error}",
            place=file,
            fix="save them with `em log verify --save-head FILE`",
        ) from None


@command("forget")
@click.option("--event", "event_ids", multiple=True, metavar="ID|SEQ", help="An event. Repeatable.")
@click.option("--trace", "trace_ids", multiple=True, metavar="ID", help="A trace. Repeatable.")
@click.option("--run", "run_ids", multiple=True, metavar="ID", help="A run. Repeatable.")
@click.option("--subject", metavar="NAME", help="Everything about this subject.")
@click.option("--reason", default="", help="Stored with the record of the erasure.")
@click.option("--recordings", is_flag=True, help="Traces that are older than em.yaml keeps them.")
@click.option("--older-than", metavar="AGE", help="Traces that are older: 30d, 12h.")
@click.option("--dry-run", is_flag=True, help="Only list what would be erased.")
@click.option("--yes", is_flag=True, help="Don't ask for confirmation.")
@click.option("--finish", is_flag=True, help="Only scrub the disk after an earlier forget.")
def forget(
    *,
    event_ids: tuple[str, ...],
    trace_ids: tuple[str, ...],
    run_ids: tuple[str, ...],
    subject: str | None,
    reason: str,
    recordings: bool,
    older_than: str | None,
    dry_run: bool,
    yes: bool,
    finish: bool,
) -> int:
    """Erase events and everything made of them, through any number of steps.

    What a run made of them goes too, and so do the runs that used its output, routines, lessons,
    records, texts and stored responses. --dry-run lists all of it. This can't be undone. The rows,
    their hashes and a record of the erasure stay, so that the log still verifies.

    --recordings erases the traces to which nothing was added for `recordings: {keep_days: …}` of
    em.yaml, --older-than those of another age. Traces from which a routine in use was learnt stay.
    """
    old = recordings or older_than is not None
    named = bool(event_ids or trace_ids or run_ids or subject is not None)
    if [finish, old, named].count(True) != 1:
        problem = "--finish takes no events" if finish else "nothing to forget, or two things"
        fix = (
            "give --event ID, --trace ID, --run ID or --subject NAME, or --recordings, or "
            "--finish alone"
        )
        raise UsageError(problem, fix=fix)
    if old:
        return _forget_recordings(older_than, dry_run=dry_run, yes=yes)
    memory = open_memory()
    if finish:
        with progress("scrubbing"):
            finished = memory.store.erase(())
        if not finished.scrubbed:
            raise StoreBusy(finished.scrub_problem)
        emit({"scrubbed": True}, "scrubbed: the files contain nothing that was erased")
        return 0
    events = [find_event(memory, given) for given in event_ids]
    for event in events:
        if event.kind == "erased":
            raise UsageError("the record of an erasure can't be erased", place=f"event {event.id}")
    streams = [trace_stream(kept.id) for kept in get_traces(memory.store, trace_ids)]
    streams += [run_stream(read_run(memory.store, run_id, None).run_id) for run_id in run_ids]
    for stream in streams:
        found = memory.store.read(EventQuery(stream=stream))
        events += [one for one in found if not one.erased and one.kind != "erased"]
    with progress("finding what was made of it"):
        erasure = memory.forget(events, subject=subject, dry_run=True)
    if not dry_run:
        if not yes and not _confirmed(memory, len(events), subject, erasure):
            note("nothing was erased")
            return 1
        with progress("erasing"):
            erasure = memory.forget(events, subject=subject, reason=reason)
    emit(erasure, lambda: _print_erasure(erasure))
    return 0 if erasure.scrubbed else 1


def _forget_recordings(older_than: str | None, *, dry_run: bool, yes: bool) -> int:
    from em.clients.retention import ForgottenRecordings, forget_recordings

    if older_than is not None:
        age = parse_duration(older_than, "--older-than", bare_unit="d")
    elif (days := Settings.load().recordings.keep_days) is not None:
        age = timedelta(days=days)
    else:
        fix = "write `recordings: {keep_days: 30}` into em.yaml, or give --older-than 30d"
        raise UsageError("em.yaml doesn't say how long recordings are kept", fix=fix)
    memory = open_memory()
    with progress("finding what is old"):
        done: ForgottenRecordings = forget_recordings(memory, age, dry_run=True)
    if not dry_run and done.events:
        if not yes and not _asked(f"{count(len(done.traces), 'trace')} for good"):
            note("nothing was erased")
            return 1
        with progress("erasing"):
            done = forget_recordings(memory, age)

    def text() -> None:
        for trace_id in done.traces if dry_run else ():
            click.echo(trace_id)
        what = "would be erased" if dry_run else "erased"
        click.echo(f"{what}: {count(len(done.traces), 'trace')}, {count(done.events, 'event')}")
        if done.kept:
            note(
                f"{count(len(done.kept), 'old trace')} stay: routines in use were learnt from them"
            )
        if not done.scrubbed:
            note("erased, not yet scrubbed from the disk: run `em forget --finish`")

    emit(done, text)
    return 0 if done.scrubbed else 1


def _confirmed(memory: Memory, events: int, subject: str | None, erasure: Erasure) -> bool:
    what = [count(events, "event")] if events else []
    if subject is not None:
        about = sum(
            not event.erased and event.kind != "erased"
            for event in memory.log.read(subject=subject)
        )
        what.append(f"{count(about, 'event')} about {subject!r}")
    return _asked(f"{' and '.join(what)} ({_counted(erasure)} in all), for good")


def _asked(what: str) -> bool:
    """Ask whether to erase this."""
    unanswered = UsageError("can't ask for confirmation here", fix="pass --yes")
    if wants_json():
        raise unanswered
    try:
        return click.confirm(f"Erase {what}?", err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise unanswered from None


def _counted(erasure: Erasure) -> str:
    counts = {
        "event": len(erasure.events),
        "artefact": erasure.artefacts,
        "record": erasure.records,
        "passage": erasure.passages,
        "stored response": erasure.responses,
    }
    return ", ".join(count(number, noun) for noun, number in counts.items() if number)


def _print_erasure(erasure: Erasure) -> None:
    what = "would be erased:" if erasure.is_dry_run else "erased"
    click.echo(f"{what} {_counted(erasure) or 'nothing: it was erased before'}")
    for noun, kinds in erasure.gone.items():
        for kind, ids in kinds.items():
            click.echo(f"{noun}, {kind}: {len(ids):,}")
            for one in ids:
                click.echo(f"  {printable(one)}")
    if not erasure.scrubbed:
        note(f"erased, not yet scrubbed from the disk: {erasure.scrub_problem}")
