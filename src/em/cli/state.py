"""`em state`: compile what was observed of a subject; show, ask and correct it."""

import code as python_console
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, get_args

import click
import msgspec

from em.cli.command import group
from em.cli.options import find_event, limited, model, open_memory, pairs, person
from em.cli.output import Columns, count, emit, emit_list, note, printable, progress
from em.errors import EmError, NotFound, UsageError
from em.memory import Memory
from em.runner.answers import json_or_text
from em.runner.sandbox.inside.plain import NotPlain, plain
from em.state.checkpoint import Checkpoint
from em.state.code import load_module
from em.state.knowledge import by_mention
from em.state.rules import Alert, load_rules, written_condition
from em.state.schema import PolicyName
from em.state.state import State

POLL = 2.0
"""Seconds between two looks for new observations."""

_own_rules = click.option(
    "--rules", type=click.Path(exists=True), help="A Python file with your own rules."
)


@group("state")
def state() -> None:
    """Compile what was observed of a subject; show, ask and correct it, and check its rules."""


@state.command("checkpoint")
@click.argument("subjects", nargs=-1)
@click.option("--all", "everyone", is_flag=True, help="Every subject with new observations.")
@click.option("--llm", is_flag=True, help="Let the configured model structure free text.")
@click.option("--accept", is_flag=True, help="Accept changes that break stored questions or rules.")
@click.option("--again", is_flag=True, help="Read texts again that a model failed to structure.")
@click.option("--rebuild", is_flag=True, help="Compile everything anew from the log.")
@click.option("--distributed", is_flag=True, help="With --all: let `em worker` processes do it.")
@click.option("--watch", is_flag=True, help="Continue as observations arrive, until Ctrl-C.")
def checkpoint(
    *,
    subjects: tuple[str, ...],
    everyone: bool,
    llm: bool,
    distributed: bool,
    watch: bool,
    **how: bool,
) -> int:
    """Compile the new observations of SUBJECTS into typed state."""
    fix = "em state checkpoint ana, or em state checkpoint --all"
    if everyone == bool(subjects) and not watch:
        raise UsageError("expected either subjects or --all", fix=fix)
    if distributed:
        from em.cli.queue import open_queue, report_queued

        if subjects or watch:
            raise UsageError("--distributed needs --all alone", place="--distributed", fix=fix)
        queue = open_queue()
        chosen = {name: True for name, given in {**how, "llm": llm}.items() if given}
        return report_queued(queue, queue.add_checkpoints(how=chosen), "checkpoints", wait=True)
    memory = open_memory()
    options: dict[str, Any] = {**how, "client": model(wanted=llm)}
    if watch:
        with suppress(KeyboardInterrupt):  # the way to end it
            _checkpoint_forever(memory, subjects, options)
        return 0
    if everyone:
        return _checkpoint_all(memory, options)
    reports = []
    with progress("compiling", len(subjects)) as advance:
        for subject in subjects:
            reports.append(memory.subjects.checkpoint(subject, **options))
            advance(1)
    emit({"checkpoints": reports}, partial(_print_checkpoints, reports))
    return 0


def _checkpoint_all(memory: Memory, options: dict[str, Any]) -> int:
    processes = None if options["client"] is None else 1
    with progress("compiling") as bar:
        done, failed = memory.checkpoint_many(processes=processes, progress=bar.at, **options)
    emit({"subjects": done, "failed": failed}, f"{count(done, 'subject')} compiled")
    for subject, why in failed.items():
        note(f"{subject}: {why}")
    return 1 if failed else 0


def _checkpoint_forever(memory: Memory, subjects: tuple[str, ...], how: dict[str, Any]) -> None:
    from em.state.subjects import subjects_of

    seen = 0
    while True:
        newest = memory.log.head_seq()
        news = subjects_of(memory.store, seen) if newest > seen else []
        seen = newest
        for subject in [name for name in news if not subjects or name in subjects]:
            try:
                report = memory.subjects.checkpoint(subject, **how)
            except EmError as error:  # the other subjects are still compiled
                note(f"{subject}: {error}")
                continue
            if report.new_events:
                emit(report, partial(_print_checkpoints, [report]))
        time.sleep(POLL)


def _print_checkpoints(reports: Sequence[Checkpoint]) -> None:
    for report in reports:
        cover = report.coverage
        who = {"agents": cover.by_agent, "the model": cover.by_model}
        click.echo(
            f"{report.subject}: version {report.version}, {count(report.new_events, 'new event')}; "
            f"{cover.structured:,} of {count(cover.observations, 'observation')} structured"
            + "".join(f", {number:,} by {name}" for name, number in who.items() if number)
            + (f"; {cover.unstructured:,} not (em state show)" if cover.unstructured else "")
        )
        for change in report.changes:
            click.echo(f"  {printable(str(change))}")
        for broken in report.accepted:
            click.echo(f"  accepted: breaks {printable(broken.what)}")
        if report.proposed:
            note(f"  proposed rules: {', '.join(report.proposed)}: em state rules {report.subject}")
        for problem in report.problems:
            note(f"  {problem}")


@state.command()
@click.argument("subject")
@click.argument("collection", required=False)
@click.option("--as-of", metavar="TIME", help="The state as it was at this time.")
@limited(20, least=0)
def show(subject: str, collection: str | None, as_of: str | None, limit: int) -> None:
    """Show a subject's state, or the records of a COLLECTION."""
    found = open_memory().state(subject, as_of)
    if collection is not None:
        _print_records(found, collection, limit)
        return
    profile = found.as_record(found.profile)
    sure = {name: found.why(f"profile.{name}") for name in profile}
    inferred = [name for name, why in sure.items() if why and why.confidence == "inferred"]
    unread = by_mention(found.unread)
    sizes = {name: len(found.collection(name)) for name in found.collections}

    def text() -> None:
        click.echo(f"{subject}, version {found.version}")
        for name, value in profile.items():
            shown = "taken back" if value is None else value
            mark = "  (inferred)" if name in inferred else ""
            newer = len(unread.get(f"profile.{name}", ()))
            mark += f"  ({count(newer, 'newer text')} unread)" if newer else ""
            click.echo(f"  {printable(f'{name}: {shown}{mark}')}")
        for name, size in sizes.items():
            click.echo(f"  {name}: {count(size, 'record')}")
        for one in found.unstructured[:limit]:
            click.echo(f"  not structured: {one.event_id} ({printable(one.reason)})")
        left = len(found.unstructured) - limit
        if left > 0:
            note(f"… {left:,} more are not structured; show them with --limit")

    data = {"subject": subject, "version": found.version, "profile": profile, "inferred": inferred}
    data |= {"unread": found.unread, "collections": sizes, "coverage": found.coverage}
    emit({**data, "unstructured": found.unstructured}, text)


def _print_records(found: State, collection: str, limit: int) -> None:
    if collection not in found.collections:
        known = ", ".join(found.collections) or "none"
        raise UsageError(f"there is no collection {collection!r}", fix=f"collections: {known}")
    typed = found.collection(collection)
    records = [found.as_record(record) for record in typed[:limit]]
    inferred = [number for number, one in enumerate(typed[:limit]) if found.inferred(one)]
    more = len(typed) > limit
    names = dict.fromkeys(name for record in records for name in record)
    emit_list(
        collection,
        records,
        {name: name for name in names},
        none=f"no {collection}",
        whole=(),
        more={"inferred": inferred, "more": more},
    )
    if inferred:
        note(f"inferred: {', '.join(str(number + 1) for number in inferred)}")
    if more:
        note(f"… {limit:,} of {len(typed):,}; show more with --limit")


@state.command()
@click.argument("subject")
@click.argument("old", type=int, required=False)
@click.argument("new", type=int, required=False)
def diff(subject: str, old: int | None, new: int | None) -> None:
    """Show how types and rules changed between two versions.  [the last two]"""
    changes = open_memory().subjects.diff(subject, old, new)
    lines = [f"{one}{'  breaking' if one.breaking else ''}" for one in changes]
    emit({"changes": changes}, "\n".join(map(printable, lines)) or "nothing changed")


@state.command()
@click.argument("subject")
@click.argument("field", required=False)
def history(subject: str, field: str | None) -> None:
    """Show the history of a field. Lists its values with both times; without FIELD, versions."""
    memory = open_memory()
    if field is None:
        names = ("version", "created_at", "observations")
        versions = memory.subjects.versions(subject)
        rows = [dict(zip(names, one, strict=True)) for one in versions]
        emit_list("versions", rows, {name: name for name in names}, none="no versions")
        return
    entries = memory.state(subject).history(field)
    emit_list(
        "history",
        [{"key": key, **_entry(entry)} for key, entry in entries],
        {
            "since": "at",
            "recorded": "recorded_at",
            "status": "status",
            "source": "source",
            "event": lambda one: one["event_ids"][0],
            "value": lambda one: str(one["value"]),
        },
        none=f"{field} has no history",
        whole=("event",),
    )


def _entry(entry: Any) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(entry, builtin_types=(datetime,))
    return fields


@state.command()
@click.argument("subject")
@click.argument("what", metavar="FIELD|EVENT")
def why(subject: str, what: str) -> int:
    """Show where a FIELD's value comes from, or the records of an EVENT: who said it, and how."""
    memory = open_memory()
    found = memory.state(subject)
    try:
        known = found.origins(what)
    except NotFound:
        known = found.origins(find_event(memory, what).id)
    emit({"why": known}, None if known else f"nothing is known of {what}")
    return 0 if known else 1


@state.command()
@click.argument("subject")
@click.argument("event", metavar="EVENT")
@click.argument("changes", metavar="FIELD=VALUE…", nargs=-1, required=True)
def correct(subject: str, event: str, changes: tuple[str, ...]) -> None:
    """Correct fields of the record that came from EVENT. The correction is an event, too."""
    memory = open_memory()
    given = {name: json_or_text(value) for name, value in pairs(changes, "FIELD=VALUE").items()}
    decided = memory.subjects.correct(subject, find_event(memory, event).id, given, by=person())
    _settled(memory, subject, decided, "corrected")


def _settled(memory: Memory, subject: str, decided: str, what: str, **how: bool) -> None:
    """Compile a subject with a decision, and print its event."""
    version = memory.subjects.checkpoint(subject, **how).version
    emit({"event_id": decided, "version": version}, f"{what}: event {decided}; version {version}")


@state.command()
@click.argument("subject")
@click.argument("what", metavar="FIELD|EVENT")
def retract(subject: str, what: str) -> None:
    """Take back the value of a FIELD, or the record that came from EVENT."""
    memory = open_memory()
    memory.subjects.state(subject)  # a missing subject is named, and not the field
    try:
        decided = memory.subjects.retract(subject, what, by=person())
    except NotFound as no_field:
        try:
            found = find_event(memory, what).id
        except NotFound as no_event:
            raise (no_event if what.isdecimal() else no_field) from None
        decided = memory.subjects.retract(subject, found, by=person())
    _settled(memory, subject, decided, "taken back")


@state.command()
@click.argument("subject")
@click.argument("event")
def accept(subject: str, event: str) -> None:
    """Let the observation EVENT count, which anybody may have written."""
    memory = open_memory()
    decided = memory.subjects.accept(subject, find_event(memory, event).id, by=person())
    _settled(memory, subject, decided, "accepted")


@state.command()
@click.argument("subject")
@click.argument("one", metavar="KEY")
@click.argument("other", metavar="OTHER")
@click.option("--type", "type_", default="Person", show_default=True, help="Their type.")
def same(subject: str, one: str, other: str, type_: str) -> None:
    """Say that the records KEY and OTHER are one: what is known of KEY becomes OTHER's.

    The history has both. `em state resolve SUBJECT --undo` parts them again. A key of several
    fields is a JSON list.
    """
    memory = open_memory()
    keys = [found if isinstance(found := json_or_text(k), list) else [found] for k in (one, other)]
    decided = memory.subjects.same(subject, keys[0], keys[1], type_=type_, by=person())
    _settled(memory, subject, decided, "one record")


@state.command()
@click.argument("subject")
@click.argument("type_", metavar="TYPE")
@click.argument("fields", metavar="FIELD…", nargs=-1, required=True)
@click.option("--accept", is_flag=True, help="Accept changes that break stored questions or rules.")
def key(subject: str, type_: str, fields: tuple[str, ...], accept: bool) -> None:
    """Declare the FIELDs that identify a record of TYPE. The decision is an event in the log."""
    memory = open_memory()
    decided = memory.subjects.declare(subject, type_, fields, by=person())
    _settled(memory, subject, decided, "decided", accept=accept)


@state.command()
@click.argument("subject")
@click.option("--version", type=int, help="An earlier version.")
def code(subject: str, version: int | None) -> None:
    """Print the Python module generated for SUBJECT."""
    found = open_memory().subjects.state(subject, version=version).code
    emit({"code": found}, lambda: click.echo(found, nl=False))


@state.command("repl")
@click.argument("subject")
def repl(subject: str) -> None:
    """Start a Python prompt with SUBJECT's typed state: `state`, `profile`, collections."""
    found = open_memory().state(subject)
    found.module = load_module(found.code)  # with its docstrings, which `help` shows
    scope: dict[str, Any] = {**vars(found.module), "state": found, "profile": found.profile}
    scope |= {name: found.collection(name) for name in found.collections}
    with suppress(ImportError):  # this Python may lack readline
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(scope).complete)
        readline.parse_and_bind("tab: complete")
    names = ", ".join(["state", "profile", *found.collections])
    banner = f"{found!r}\nvariables: {names}; help(Trip) describes a class; exit with Ctrl-D"
    python_console.interact(banner=banner, local=scope, exitmsg="")


@state.command("ask")
@click.argument("subject")
@click.argument("question", required=False)
@click.option("--code", "own", help="Your own Python over the collections: 'len(trips)'.")
@click.option("--llm", is_flag=True, help="Let the configured model write the code.")
def ask(subject: str, question: str | None, own: str | None, llm: bool) -> None:
    """Answer a QUESTION about SUBJECT, by code over its typed records or from what was said."""
    if (question is None) == (own is None):
        raise UsageError(
            "expected either a QUESTION or --code", fix='em state ask ana "how many trips?"'
        )
    answer = open_memory().ask(subject, question, code=own, llm=model(wanted=llm))

    def text() -> None:
        if answer.route == "recall":
            for passage in answer.value:
                click.echo(f"{passage.event_id}  {printable(passage.text)}")
        else:
            click.echo(printable(str(answer.value)))
        how = "the code of a stored question" if answer.kept else answer.route
        more = f"; {answer.note}" if answer.note else ""
        note(f"by {how}, from {count(answer.records, 'record')}{more}")

    emit(lambda: {**msgspec.structs.asdict(answer), "value": _jsonable(answer.value)}, text)


def _jsonable(value: Any) -> Any:
    """Return a value that JSON can express: the value itself, or else its repr."""
    try:
        return plain(msgspec.to_builtins(value))
    except (NotPlain, TypeError):
        return repr(value)


@state.command("check")
@click.argument("subject")
@click.argument("action")
@click.argument("details", nargs=-1, metavar="[NAME=VALUE]…")
@_own_rules
def check(subject: str, action: str, details: tuple[str, ...], rules: str | None) -> int:
    """List the rules that fire before an ACTION of SUBJECT. Exit code 1 if one fires."""
    given = {name: json_or_text(value) for name, value in pairs(details, "NAME=VALUE").items()}
    if odd := next((name for name in given if not name.isidentifier()), None):
        raise UsageError(f"expected NAME=VALUE, got {odd!r}", fix="write name=value")
    found = _with_rules(rules).state(subject)
    if action not in found.actions:
        known = f"rules exist for: {', '.join(found.actions)}" if found.actions else "no rules yet"
        note(f"no rule for {action!r}; {known}")
    return _print_alerts(found.check(action, **given))


def _with_rules(rules: str | None) -> Memory:
    memory = open_memory()
    if rules is not None:
        memory.subjects.rules += load_rules(rules)
    return memory


@state.command("alerts")
@click.argument("subject")
@_own_rules
def alerts(subject: str, rules: str | None) -> int:
    """List the deadlines and alerts that are due for SUBJECT. Exit code 1 if there are any."""
    return _print_alerts(_with_rules(rules).alerts(subject))


def _print_alerts(found: list[Alert]) -> int:
    columns: Columns = {
        "severity": "severity",
        "rule": lambda one: one.rule + (" (proposed)" if one.proposed else ""),
        "due": lambda one: one.due and f"{one.due:%Y-%m-%d}",
        "events": "event_ids",
        "message": lambda one: one.message + (f": {one.error}" if one.error else ""),
    }
    emit_list("alerts", found, columns, none="no alerts", whole=("severity", "message"))
    return 1 if found else 0


@state.command("rules")
@click.argument("subject")
@click.option("--accept", metavar="ID", multiple=True, help="Accept a rule that a model derived.")
@click.option("--reject", metavar="ID", multiple=True, help="Reject one: it never fires.")
def rules(subject: str, accept: tuple[str, ...], reject: tuple[str, ...]) -> None:
    """List the rules about SUBJECT that a model derived, with the code of their conditions.

    A proposed rule warns as such until it is accepted or rejected.
    """
    memory = open_memory()
    for rule in accept:
        memory.subjects.judge(subject, rule, "accepted", by=person())
    for rule in reject:
        memory.subjects.judge(subject, rule, "rejected", by=person())
    found = memory.state(subject)
    shown = [
        {**msgspec.to_builtins(one), "code": written_condition(one, found.schema)}
        for one in found.rules
    ]
    emit({"rules": shown}, None if shown else "no rules")


@state.command("conflicts")
@click.argument("subject")
def conflicts(subject: str) -> None:
    """List the contradictions about SUBJECT: the events, and how each was settled."""
    found = open_memory().conflicts(subject)
    emit({"conflicts": found}, None if found else "no contradictions")


@state.command("resolve")
@click.argument("subject")
@click.argument("field", required=False)
@click.option("--value", help="The correct value, as JSON or a text.")
@click.option("--event", "event_id", metavar="ID|SEQ", help="The event that is correct.")
@click.option(
    "--policy", type=click.Choice(get_args(PolicyName)), help="Use this policy from now on."
)
@click.option("--order", help="For the policy `source`: sources, best first, separated by commas.")
@click.option("--undo", metavar="ID|SEQ", help="Undo an earlier decision, by its event.")
def resolve(
    subject: str,
    field: str | None,
    value: str | None,
    event_id: str | None,
    policy: PolicyName | None,
    order: str | None,
    undo: str | None,
) -> None:
    """Settle a FIELD of SUBJECT by a value, an event or a policy. The decision is an event too.

    \b
    em state resolve ana city --policy source --order doctor,ana
    em state resolve ana --undo 42
    """
    if (field is None) == (undo is None):
        raise UsageError(
            "expected either a FIELD or --undo", fix="em state resolve ana city --value Porto"
        )
    memory = open_memory()
    if field is None:
        decided = memory.subjects.undo(subject, find_event(memory, str(undo)).id, by=person())
    else:
        given: dict[str, Any] = {"policy": policy, "by": person()}
        if value is not None:
            given["value"] = json_or_text(value)
        if event_id is not None:
            given["event"] = find_event(memory, event_id).id
        if order is not None:
            given["order"] = [source.strip() for source in order.split(",")]
        decided = memory.resolve(subject, field, **given)
    _settled(memory, subject, decided, "decided")
