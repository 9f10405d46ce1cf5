"""`em state`: look at what was compiled."""

import code as python_console
import csv
import io
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from em.cli.files import reading
from em.cli.options import everywhere, find_event, open_memory
from em.cli.output import count, print_json, print_table, printable
from em.errors import BadLine, EmError, InputError, UsageError
from em.memory import Memory
from em.runner.sandbox.inside.plain import NotPlain, plain
from em.state.checkpoint import Checkpoint
from em.state.rules import Alert, load_rules
from em.state.schema import PolicyName
from em.state.state import Conflict, State


@click.group("state", no_args_is_help=True)
@everywhere
def state() -> None:
    """Look at a subject's compiled state: records, versions, history, code."""


@state.command()
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


@state.command()
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


@state.command()
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


@state.command()
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


@state.command()
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


FORMATS = ("text", "json", "jsonl", "csv")
_ENDINGS = {".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}


@click.command("observe")
@click.argument("subject")
@click.argument("text", required=False)
@click.option(
    "--file", "file", type=click.Path(allow_dash=True), help="Read FILE, or - for standard input."
)
@click.option(
    "--format", "format_", type=click.Choice(FORMATS), help="Of the file; by its ending, else text."
)
@click.option("--type", "type_", help="The class of the records.")
@click.option("--at", metavar="TIME", help="When it happened.  [now]")
@click.option("--speaker", help="Who said it.")
@click.option("--source", help="Where it is from.")
@everywhere
@click.pass_context
def observe(
    ctx: click.Context,
    subject: str,
    text: str | None,
    file: str | None,
    format_: str | None,
    type_: str | None,
    at: str | None,
    speaker: str | None,
    source: str | None,
) -> None:
    """Keep what was learned about SUBJECT: TEXT, a JSON object, or the records of a file.

    \b
    em observe ana "I moved to Porto in March."
    em observe ana '{"destination": "Lisbon", "cost_usd": 840.5}' --type Trip
    em observe ana --file trips.csv --type Trip
    """
    if text == "-":
        text, file = None, file or "-"
    if (text is None) == (file is None):
        what = "nothing to keep" if text is None else "a text and a file"
        raise UsageError(what, fix="give TEXT, or --file FILE")
    if text is not None and format_ is not None:
        raise UsageError("--format is of a file", fix="give --file FILE, or - for standard input")
    details = {"type": type_, "at": at, "speaker": speaker, "source": source}
    known = {name: value for name, value in details.items() if value is not None}
    items = _given(text) if text is not None else _read(file or "-", format_)
    # Read to its end first: all of a file comes in, or none of it.
    found = [{"subject": subject, **known, **item} for item in items]
    if type_ is not None and any("text" in item for item in found):
        raise UsageError(
            "a text has no type: --type is of records",
            place=file or "TEXT",
            fix="leave it out, give a JSON object, or say --format json, jsonl or csv",
        )
    if not found:
        raise InputError("there is nothing in it", place=file or "TEXT")
    ids = open_memory(ctx, create=True).observe_many(found)
    if ctx.obj["json"]:
        print_json({"event_ids": ids})
    else:
        click.echo(f"{count(len(ids), 'observation')} of {subject} kept")


def _given(text: str) -> list[dict[str, Any]]:
    """A text; a JSON object is a record."""
    if text.lstrip().startswith("{"):
        return [{"record": _object(text.encode(errors="surrogateescape"), "TEXT")}]
    return [{"text": text}]


def _read(file: str, format_: str | None) -> Iterator[dict[str, Any]]:
    chosen = format_ or _ENDINGS.get(Path(file).suffix.lower(), "text")
    with reading(file) as (source, name):
        if chosen == "jsonl":
            for number, line in enumerate(source, 1):
                if line.strip():
                    yield {"record": _object(line, f"{name}:{number}")}
            return
        content = source.read()
    if chosen == "csv":
        yield from _rows(content, name)
    elif chosen == "json":
        yield from ({"record": record} for record in _records(content, name))
    elif content.strip():
        yield {"text": _decoded(content, name)}


def _records(content: bytes, name: str) -> list[dict[str, Any]]:
    try:
        found = msgspec.json.decode(content, type=dict[str, Any] | list[dict[str, Any]])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"this is no JSON object, nor a list of them: {error}", place=name
        ) from None
    return found if isinstance(found, list) else [found]


def _object(line: bytes, place: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"this is no JSON object: {error}", place=place) from None


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"it is no UTF-8: {error}", place=name) from None


def _rows(content: bytes, name: str) -> Iterator[dict[str, Any]]:
    """The rows of a CSV file as records of texts; what they mean is found by the checkpoint."""
    reader = csv.DictReader(io.StringIO(_decoded(content, name), newline=""), strict=True)
    try:
        names = list(reader.fieldnames or ())
        if len(set(names)) < len(names):
            raise BadLine("two columns have one name", place=f"{name}:1", fix="rename one")
        for row in reader:
            if None in row or None in row.values():
                raise BadLine(f"it has not {len(names)} columns", place=f"{name}:{reader.line_num}")
            yield {"record": {column: value for column, value in row.items() if value != ""}}
    except csv.Error as error:
        raise BadLine(f"this is no CSV: {error}", place=f"{name}:{reader.line_num}") from None


@click.command("checkpoint")
@click.argument("subjects", nargs=-1)
@click.option("--all", "everyone", is_flag=True, help="Every subject with something new.")
@click.option("--llm", is_flag=True, help="Ask the configured model what free text says.")
@click.option("--accept", is_flag=True, help="Also if it breaks kept questions or rules.")
@click.option("--again", is_flag=True, help="Read again what no model has read well.")
@click.option("--rebuild", is_flag=True, help="All of it anew, from the log.")
@click.option("--processes", type=click.IntRange(1, 256), help="With --all.  [as many as cores]")
@click.option("--distributed", is_flag=True, help="With --all: let workers do it (`em worker`).")
@click.option("--watch", is_flag=True, help="Go on as observations come in, until Ctrl-C.")
@click.option(
    "--every", type=float, default=2.0, show_default=True, help="With --watch, in seconds."
)
@everywhere
@click.pass_context
def checkpoint(
    ctx: click.Context,
    /,
    subjects: tuple[str, ...],
    everyone: bool,
    llm: bool,
    processes: int | None,
    distributed: bool,
    watch: bool,
    every: float,
    **how: bool,
) -> int:
    """Compile what is new about SUBJECTS into typed state."""
    if everyone == bool(subjects) and not watch:
        raise UsageError("whose state?", fix="name subjects, or --all")
    if distributed:
        if subjects or watch or processes:
            raise UsageError("workers do it for --all only", place="--distributed")
        return _by_workers(ctx, {**how, "llm": llm})
    memory = open_memory(ctx)
    options: dict[str, Any] = {**how, "client": _client() if llm else None}
    if watch:
        with suppress(KeyboardInterrupt):  # which is how it is meant to end
            _watch(memory, subjects, every, options, as_json=ctx.obj["json"])
        return 0
    if everyone:
        return _checkpoint_all(memory, processes, options, as_json=ctx.obj["json"])
    reports = [memory.subjects.checkpoint(subject, **options) for subject in subjects]
    if ctx.obj["json"]:
        print_json({"checkpoints": reports})
    else:
        for report in reports:
            print_checkpoint(report)
    return 0


def _by_workers(ctx: click.Context, how: dict[str, bool]) -> int:
    from em.cli.queue import open_queue, tell_queued

    queue = open_queue(ctx)
    chosen = {name: True for name, said in how.items() if said}
    jobs = queue.add_checkpoints(how=chosen)
    return tell_queued(queue, jobs, "checkpoints", wait=True, as_json=ctx.obj["json"])


def _client() -> Any:
    from em.llm import get_llm_client

    return get_llm_client()


def _checkpoint_all(
    memory: Memory, processes: int | None, options: dict[str, Any], *, as_json: bool
) -> int:
    if options["client"] is not None:
        processes = 1
    done, failed = memory.checkpoint_many(processes=processes, **options)
    if as_json:
        print_json({"subjects": done, "failed": failed})
    else:
        click.echo(f"{count(done, 'subject')} compiled")
        for subject, why in failed.items():
            click.echo(f"{subject}: {printable(why)}", err=True)
    return 1 if failed else 0


def _watch(
    memory: Memory, subjects: tuple[str, ...], every: float, how: dict[str, Any], *, as_json: bool
) -> None:
    from em.state.subjects import subjects_of

    seen = 0
    while True:
        newest = memory.log.head_seq()
        news = subjects_of(memory.store, seen) if newest > seen else []
        seen = newest
        for subject in [name for name in news if not subjects or name in subjects]:
            try:
                report = memory.subjects.checkpoint(subject, **how)
            except EmError as error:  # one subject's trouble does not stop the watch
                click.echo(f"{subject}: {printable(str(error))}", err=True)
                continue
            if report.new_events:
                if as_json:
                    print_json(report)
                else:
                    print_checkpoint(report)
        time.sleep(every)


def print_checkpoint(report: Checkpoint) -> None:
    """A report for people."""
    cover = report.coverage
    click.echo(
        f"{report.subject}: version {report.version}, {count(report.new_events, 'new event')}; "
        f"{cover.structured:,} of {count(cover.observations, 'observation')} structured"
        + (f", {cover.by_pattern:,} of them by patterns" if cover.by_pattern else "")
        + (f", {cover.by_model:,} by the model" if cover.by_model else "")
        + (f", {cover.in_part:,} only in part (em state show)" if cover.in_part else "")
        + (f"; {cover.unstructured:,} not (em state show)" if cover.unstructured else "")
    )
    for change in report.changes:
        click.echo(f"  {printable(str(change))}")
    for broken in report.accepted:
        click.echo(f"  accepted: breaks {printable(broken.what)}")
    for problem in report.problems:
        click.echo(f"  {printable(problem)}", err=True)


@click.command("conflicts")
@click.argument("subject")
@everywhere
@click.pass_context
def conflicts(ctx: click.Context, subject: str) -> None:
    """What contradicts itself about SUBJECT: between which events, and how it was settled."""
    found = open_memory(ctx).conflicts(subject)
    if ctx.obj["json"]:
        print_json({"conflicts": found})
        return
    for one in found:
        _print_conflict(one)
    if not found:
        click.echo("no contradictions", err=True)


def _print_conflict(one: Conflict) -> None:
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
        given["value"] = json_or_text(value)
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


def json_or_text(text: str) -> Any:
    """JSON where it is JSON, else the text itself."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


_COLOURS = {"critical": "red", "high": "red", "warning": "yellow", "info": "cyan"}


@click.command("ask")
@click.argument("subject")
@click.argument("question", required=False)
@click.option("--code", "own", help="Python of your own over the collections: 'len(trips)'.")
@click.option("--llm", is_flag=True, help="Ask the configured model to write the code.")
@click.option("--as-of", metavar="TIME", help="Of the state at this moment.")
@everywhere
@click.pass_context
def ask(
    ctx: click.Context,
    subject: str,
    question: str | None,
    own: str | None,
    llm: bool,
    as_of: str | None,
) -> None:
    """Answer a QUESTION about SUBJECT: by code over its typed records, or from what was said."""
    if (question is None) == (own is None):
        raise UsageError("nothing is asked", fix="give a QUESTION, or --code")
    client = None
    if llm:
        from em.llm import get_llm_client

        client = get_llm_client()
    answer = open_memory(ctx).ask(subject, question, code=own, llm=client, as_of=as_of)
    if ctx.obj["json"]:
        found = {name: getattr(answer, name) for name in answer.__struct_fields__}
        print_json({**found, "value": _told(answer.value)})
        return
    if answer.route == "recall":
        for passage in answer.value:
            click.echo(f"{passage.event_id}  {printable(passage.text)}")
    else:
        click.echo(printable(str(answer.value)))
    how = "a kept question's code" if answer.kept else answer.route
    note = f"; {answer.note}" if answer.note else ""
    click.echo(f"by {how}, from {count(answer.records, 'record')}{note}", err=True)


def _told(value: Any) -> Any:
    """A value as JSON says it; what it can't say as Python writes it."""
    try:
        return plain(msgspec.to_builtins(value))
    except (NotPlain, TypeError):
        return repr(value)


@click.command("check")
@click.argument("subject")
@click.argument("action")
@click.argument("details", nargs=-1, metavar="[NAME=VALUE]…")
@click.option("--rules", type=click.Path(exists=True), help="A Python file with rules of your own.")
@everywhere
@click.pass_context
def check(
    ctx: click.Context, subject: str, action: str, details: tuple[str, ...], rules: str | None
) -> int:
    """The rules that fire before an ACTION of SUBJECT. Exit code 1 if one does.

    \b
    em check ana take drug=ibuprofen
    """
    given: dict[str, Any] = {}
    for detail in details:
        name, sign, value = detail.partition("=")
        if not sign or not name.isidentifier():
            raise UsageError(f"{detail!r} is no detail", fix="write name=value")
        given[name] = json_or_text(value)
    memory = open_memory(ctx)
    if rules is not None:
        memory.subjects.rules += load_rules(rules)
    state = memory.state(subject)
    if action not in state.actions:
        known = (
            f"there are rules about {', '.join(state.actions)}"
            if state.actions
            else "there are none"
        )
        click.echo(f"no rule is about {printable(action)!r}: {known}", err=True)
    return _print_alerts(state.check(action, **given), as_json=ctx.obj["json"])


@click.command("alerts")
@click.argument("subject")
@click.option("--now", metavar="TIME", help="As if it were this moment.")
@click.option("--rules", type=click.Path(exists=True), help="A Python file with rules of your own.")
@everywhere
@click.pass_context
def alerts(ctx: click.Context, subject: str, now: str | None, rules: str | None) -> int:
    """What is due about SUBJECT: deadlines and active windows. Exit code 1 if something is."""
    memory = open_memory(ctx)
    if rules is not None:
        memory.subjects.rules += load_rules(rules)
    return _print_alerts(memory.alerts(subject, now), as_json=ctx.obj["json"])


def _print_alerts(found: list[Alert], *, as_json: bool) -> int:
    if as_json:
        print_json({"alerts": found})
    for one in () if as_json else found:
        said = one.message + (f": {one.error}" if one.error else "")
        due = f", due {one.due.date().isoformat()}" if one.due else ""
        events = f" ({', '.join(one.event_ids)})" if one.event_ids else ""
        click.secho(one.severity, fg=_COLOURS[one.severity], nl=False)
        click.echo(f"  {printable(one.rule)}: {printable(said)}{due}{events}")
    if not found and not as_json:
        click.echo("nothing fires", err=True)
    return 1 if found else 0
