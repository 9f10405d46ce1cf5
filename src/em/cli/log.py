"""`em log`: append, show, tail, verify, export, import."""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
import msgspec

from em.cli.files import reading, standard_input, writing
from em.cli.options import everywhere, find_event, open_memory, selection
from em.cli.output import (
    count,
    print_json,
    print_table,
    printable,
    progress,
    terminal_width,
)
from em.errors import BadBody, InputError, NotFound, UsageError
from em.log.event import Event
from em.log.kinds import HOMES
from em.log.lines import write_line
from em.log.verify import Head, Report
from em.memory import Memory
from em.store.protocol import Erasure

MAX_CHARS = 400


def in_one_line(event: Event) -> str:
    """What happened, as somebody would tell it; the JSON of a kind that em does not know."""
    if event.body is None:
        return "(erased)"
    try:
        text = _TELL.get(event.kind, _json)(event.body)
    except (KeyError, TypeError, AttributeError):
        text = _json(event.body)  # an unusual body is shown as it is
    return text[:MAX_CHARS]


def _json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _call(body: dict[str, Any]) -> str:
    name = body.get("tool") or body["function"]
    arguments = ", ".join(f"{key}={_json(value)}" for key, value in body.get("args", {}).items())
    if body.get("error") is not None:
        return f"{name}({arguments}) failed: {_json(body['error'])}"
    return f"{name}({arguments}) → {_json(body.get('result'))}"


def _observation(body: dict[str, Any]) -> str:
    who = f"{body['speaker']}: " if body.get("speaker") else ""
    what = f"{body['type']} " if body.get("type") else ""
    return who + (body["text"] if body.get("text") is not None else what + _json(body["record"]))


def _ended(body: dict[str, Any]) -> str:
    output = body.get("output")
    return body["outcome"] if output is None else f"{body['outcome']}: {_json(output)}"


_TELL = {
    "approval": lambda body: f"{body['prompt']} {_json(body.get('answer'))}",
    "erased": lambda body: f"{len(body['events'])} erased {body.get('reason', '')}".rstrip(),
    "message": lambda body: f"{body['role']}: {body['text']}",
    "observation": _observation,
    "tool_call": _call,
    "trace_ended": _ended,
    "trace_started": lambda body: str(body["goal"]),
    "udf_call": _call,
}


@click.group("log", no_args_is_help=True)
@everywhere
def log() -> None:
    """Append to, look at, prove, save and load the log."""


@log.command()
@click.argument("body")
@click.option("--stream", required=True, help="The thread the event belongs to: a run, a user, ….")
@click.option("--kind", required=True, help="What kind of event: message, tool_call, your own.")
@click.option("--subject", help="Whom it is about.")
@click.option("--at", metavar="TIME", help="When it happened.  [now]")
@click.option("--expect-pos", type=int, metavar="N", help="Refuse unless the stream ends at N.")
@everywhere
@click.pass_context
def append(
    ctx: click.Context,
    body: str,
    stream: str,
    kind: str,
    subject: str | None,
    at: str | None,
    expect_pos: int | None,
) -> None:
    """Append one event. BODY is a JSON object, or - to read it from standard input.

    \b
    em log append --stream notes --kind message '{"role": "user", "text": "hello"}'
    """
    value = _parse_body(standard_input() if body == "-" else os.fsencode(body))
    _note_likely_typo(kind)
    event = open_memory(ctx, create=True).log.append(
        stream, kind, value, subject=subject, at=at, expected_pos=expect_pos
    )
    if ctx.obj["json"]:
        print_json(event)
    else:
        click.echo(f"{event.id}  position {event.pos} of {event.stream}")


@log.command()
@selection
@click.option("--id", "event_id", metavar="ID|SEQ", help="One event, whole.")
@click.option("--after", type=int, default=0, metavar="SEQ", help="Only events after this one.")
@click.option("-n", "--limit", type=click.IntRange(min=0), default=100, show_default=True)
@everywhere
@click.pass_context
def show(
    ctx: click.Context, /, event_id: str | None, after: int, limit: int, **chosen: Any
) -> None:
    """Show events, oldest first."""
    log = open_memory(ctx).log
    if event_id is not None:
        _show_whole(find_event(log, event_id), as_json=ctx.obj["json"])
        return
    events = list(log.read(**chosen, after=after, limit=limit + 1))
    more, events = len(events) > limit, events[:limit]
    if ctx.obj["json"]:
        print_json({"events": events, "more": more})
        return
    _print_events(events)
    if more and events:
        click.echo(f"… and more: the same with --after {events[-1].seq}", err=True)


@log.command()
@selection
@click.option("-n", "--limit", type=click.IntRange(min=0), default=10, show_default=True)
@click.option("-f", "--follow", is_flag=True, help="Go on as events come in, until Ctrl-C.")
@everywhere
@click.pass_context
def tail(ctx: click.Context, /, limit: int, follow: bool, **chosen: Any) -> None:
    """Show the newest events; with -f, go on as they come in. With --json, one event a line."""
    log = open_memory(ctx).log
    last = log.head_seq()
    events = list(log.read(**chosen, limit=limit, newest=True))
    as_json = ctx.obj["json"]
    if as_json:
        _print_lines(events)
    else:
        _print_events(events)
    if follow:
        with suppress(KeyboardInterrupt):  # which is how it is meant to end
            for event in log.follow(after=last, **chosen):
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
    help="Also compare with heads saved earlier: nothing may be missing at the end.",
)
@click.option(
    "--save-head",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Save the heads, to be kept outside the log.",
)
@everywhere
@click.pass_context
def verify(
    ctx: click.Context, stream: str | None, head_file: str | None, save_head: str | None
) -> int:
    """Prove that nothing was changed, reordered or removed."""
    memory = open_memory(ctx)
    heads = None if head_file is None else _read_heads(Path(head_file))
    total = memory.store.health().events
    with progress("verifying", total) as advance:
        report = memory.log.verify(stream=stream, heads=heads, progress=advance)
    if stream is not None and not report.streams and report.ok:
        raise NotFound("no event is in this stream", place=f"stream {stream!r}")
    if save_head is not None and report.ok:
        with writing(save_head, memory.store.location) as file:
            file.write(msgspec.json.format(msgspec.json.encode(report.heads), indent=1) + b"\n")
    _print_report(report, as_json=ctx.obj["json"])
    return 0 if report.ok else 1


@log.command()
@click.argument("file", default="-", type=click.Path(dir_okay=False, allow_dash=True))
@selection
@everywhere
@click.pass_context
def export(ctx: click.Context, /, file: str, **chosen: Any) -> None:
    """Write events as JSONL to FILE or standard output; importing them gives the same log."""
    memory = open_memory(ctx)
    total = memory.store.health().events
    done = 0
    with writing(file, memory.store.location) as out, progress("exporting", total) as advance:
        for line in memory.log.export(**chosen):
            out.write(line)
            done += 1
            if done % 1_000 == 0:
                advance(1_000)
    if file != "-":
        if ctx.obj["json"]:
            print_json({"exported": done, "file": file})
        else:
            click.echo(f"{count(done, 'event')} in {file}")


@log.command("import")
@click.argument("file", default="-", type=click.Path(exists=True, allow_dash=True))
@click.option(
    "--rechain",
    is_flag=True,
    help="Append exported events as new ones with new ids, at the end of their streams.",
)
@everywhere
@click.pass_context
def import_(ctx: click.Context, file: str, rechain: bool) -> None:
    """Append the event lines of FILE or standard input.

    All lines come in, or none. Exported events that are in the log already are passed over, so
    importing the same export twice changes nothing; lines without an id are new each time.
    """
    with reading(file) as (source, name):
        size = source.seek(0, os.SEEK_END)
        source.seek(0)
        memory = open_memory(ctx, create=True)
        with progress("importing", 2 * size, unit_bytes=True) as advance:
            done = memory.log.import_file(source, name, rechain=rechain, progress=advance)
    if memory.store.health().scrub_pending:
        click.echo("erased bodies are not scrubbed yet: run `em forget --finish`", err=True)
    if ctx.obj["json"]:
        print_json(
            {
                "imported": done.added,
                "already_there": done.already_there,
                "left_out": done.left_out,
            }
        )
    else:
        already = f", {done.already_there:,} already there" if done.already_there else ""
        erased = f", {done.left_out:,} erased and left out" if done.left_out else ""
        click.echo(f"{count(done.added, 'event')} imported{already}{erased}")


def _parse_body(text: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except RecursionError:
        raise BadBody("nested too deep", place="BODY") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UsageError(
            f"this is no JSON object: {error}", place="BODY", fix="""write '{"name": "value"}'"""
        ) from None


def _print_events(events: Sequence[Event]) -> None:
    if not events:
        click.echo("no events", err=True)
        return
    columns = ("seq", "at", "stream", "pos", "kind", "subject", "what happened")
    rows = (_cells(event) for event in events)
    print_table(columns, rows, may_go=("pos", "subject", "stream", "seq"))


def _cells(event: Event) -> tuple[str, ...]:
    at = event.at.strftime("%Y-%m-%d %H:%M:%S")
    return (
        str(event.seq),
        at,
        event.stream,
        str(event.pos),
        event.kind,
        event.subject or "",
        in_one_line(event),
    )


def _print_lines(events: Iterable[Event]) -> None:
    for event in events:
        click.echo(write_line(event))


def _show_whole(event: Event, *, as_json: bool) -> None:
    if as_json:
        print_json(event)
        return
    for name in Event.__struct_fields__:
        value = getattr(event, name)
        if name == "body":
            value = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        lines = str("" if value is None else value).split("\n")
        click.echo(f"{name + ':':<13}" + "\n".join(map(printable, lines)))


def _print_report(report: Report, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "ok": report.ok,
                "events": report.events,
                "streams": report.streams,
                "erased": report.erased,
                "findings": report.findings,
            }
        )
        return
    erased = f", {report.erased:,} of them erased on request" if report.erased else ""
    what = f"{count(report.events, 'event')} in {count(report.streams, 'stream')}{erased}"
    if report.ok:
        click.echo(click.style("verified", fg="green") + f": {what}; nothing changed or missing")
        return
    columns = ("problem", "stream", "pos", "event", "what is wrong")
    rows = (
        (
            found.problem.replace("_", " "),
            found.stream,
            str(found.pos),
            found.event_id,
            found.detail,
        )
        for found in report.findings
    )
    print_table(columns, rows)
    findings = count(len(report.findings), "finding")
    click.echo(click.style("not as written", fg="red") + f": {findings} in {what}")


def _read_heads(path: Path) -> dict[str, Head]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Head])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(
            f"these are no saved heads: {error}",
            place=str(path),
            fix="save them with `em log verify --save-head FILE`",
        ) from None


def _note_likely_typo(kind: str) -> None:
    close = get_close_matches(kind, HOMES, 1, cutoff=0.85)
    if close and kind not in HOMES:
        click.echo(f"note: {kind!r} is a kind of your own; did you mean {close[0]!r}?", err=True)


@click.command("forget")
@click.option("--event", "event_ids", multiple=True, metavar="ID|SEQ", help="An event; repeatable.")
@click.option("--subject", metavar="NAME", help="Everything about this subject.")
@click.option("--reason", default="", help="Kept with the fact of the erasure.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--finish", is_flag=True, help="Only remove what an earlier forget left on the disk.")
@everywhere
@click.pass_context
def forget(
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
    _print_erasure(erasure, as_json=ctx.obj["json"])
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


def _print_erasure(erasure: Erasure, *, as_json: bool) -> None:
    if as_json:
        print_json(erasure)
        return
    counts = {
        "event": len(erasure.events),
        "artefact": erasure.artefacts,
        "record": erasure.records,
        "passage": erasure.passages,
        "stored response": erasure.responses,
    }
    parts = ", ".join(count(number, noun) for noun, number in counts.items() if number)
    click.echo(f"erased {parts or 'nothing: it was erased before'}")
    if not erasure.scrubbed:
        click.echo(f"erased, not yet scrubbed from the disk: {erasure.scrub_problem}", err=True)
