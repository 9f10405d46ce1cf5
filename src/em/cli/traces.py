"""`em traces`: list, show, compare and label traces, and find secrets in transcripts."""

import sys
from collections.abc import Sequence
from typing import Any, get_args

import click
import msgspec

from em.cli.command import group
from em.cli.options import listed, listing, open_memory
from em.cli.output import (
    Columns,
    count,
    emit,
    emit_list,
    json_text,
    note,
    printable,
    progress,
    terminal_width,
)
from em.errors import InputError
from em.settings import Settings
from em.traces.catalogue import DiffStep, children_of, diff_traces, get_traces, list_traces
from em.traces.trace import Approval, KeptTrace, Message, Outcome, ToolCall, TraceEvent

_OUTCOME = click.Choice(get_args(Outcome))
_SIGNS = {"-": "red", "+": "green", "~": "yellow"}


@group("traces")
def traces() -> None:
    """List, show, compare and label traces: what agents said, called and got."""


@traces.command("list")
@click.option("--task", help="Only traces whose goal contains this, in upper or lower case.")
@click.option("--outcome", type=_OUTCOME)
@click.option("--agent", help="Only traces of this app, as the column `from` names it.")
@listing(20)
def list_(
    task: str | None, outcome: str | None, agent: str | None, limit: int, **chosen: Any
) -> None:
    """List the traces that began last, the latest first."""
    only: dict[str, Any] = {"task": task, "outcome": outcome, "agent": agent, "limit": limit}
    page = list_traces(open_memory().store, **only, **listed(**chosen))
    columns: Columns = {
        "trace": "id",
        "began": lambda one: f"{one.at:%Y-%m-%d %H:%M}",
        "from": "app",
        "outcome": lambda one: f"{one.outcome}{', incomplete' if one.incomplete else ''}",
        "calls": "calls",
        "failed": "failed",
        "tokens": "tokens",
        "goal": lambda one: f"{'↳ ' if one.parent else ''}{' '.join(one.title.split())}",
    }
    none = "no traces; `em import` brings them in"
    emit_list("traces", page.traces, columns, none=none, older=page.older)


@traces.command("show")
@click.argument("trace")
@click.option("--full", is_flag=True, help="Don't shorten texts, arguments and results.")
def show(trace: str, full: bool) -> None:
    """Show a trace as a timeline, followed by its sub-agents.

    TRACE is an id, or the first characters of one.
    """
    store = open_memory().store
    (found,) = get_traces(store, [trace])
    children = children_of(store, found.id)

    def text() -> None:
        print_timeline(found, full=full)
        for child in children:
            call = f" of call {child.trace.parent_call}" if child.trace.parent_call else ""
            click.echo(f"\nsub-agent{call}:")
            print_timeline(child, full=full)
        if children:
            click.echo(f"\n{count(len(children), 'sub-agent')}")

    emit({"trace": found, "sub_agents": children}, text)


@traces.command("diff")
@click.argument("one")
@click.argument("other")
def diff(one: str, other: str) -> int:
    """Compare two traces call by call. Exit code 1 if they differ."""
    store = open_memory().store
    first, second = get_traces(store, [one, other])
    steps = diff_traces(first.trace, second.trace)
    emit({"steps": steps}, lambda: _print_diff(steps))
    return 0 if all(step.sign == " " for step in steps) else 1


@traces.command("label")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True)
@click.argument("outcome", type=_OUTCOME)
@click.option("--reason", default="", help="Stored with the label.")
def label(traces: tuple[str, ...], outcome: Outcome, reason: str) -> None:
    """Say how each TRACE ended: success, failure or unknown. The last label counts.

    Labels decide what is compiled: `em routine suggest` and `em compile --all` take successes. What
    was recorded stays in the log. TRACE is an id, or the first characters of one.
    """
    memory = open_memory()
    # All of them first: nothing is labelled if one can't be found.
    found = get_traces(memory.store, list(dict.fromkeys(traces)))
    for one in found:
        memory.label(one.id, outcome, reason=reason)
    rows = [{"id": one.id, "outcome": outcome, "was": one.trace.outcome} for one in found]
    emit({"traces": rows}, "\n".join("{id}: {outcome} (was {was})".format(**row) for row in rows))


@traces.command("secrets")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
def secrets(paths: tuple[str, ...]) -> None:
    """List the secrets in transcripts by file and kind, without showing or storing them.

    PATH is a file, a folder or a pattern; by default where Claude Code, Codex, opencode and pi keep
    their sessions. Nothing is imported, and no file is changed. What is found is no longer secret
    to whoever reads these files: revoke it.
    """
    from em.clients.exposure import SearchedFile, look, places
    from em.store import redactor_of
    from em.traces.transcripts import files_in, total_size
    from em.values.files import shown

    chosen = [*paths] or [*map(str, places())]
    redactor = redactor_of(Settings.load(tells=False))
    looked: list[SearchedFile] = []
    with progress("looking", total_size(chosen), unit_bytes=True) as advance:
        for path, is_named in [*files_in(chosen)]:
            try:
                looked.append(look(path, redactor, advance))
            except InputError as error:
                if is_named:
                    raise
                looked.append(SearchedFile(path=shown(path), skipped=error.message))
    found = [one for one in looked if one.found]
    rows = [
        {"file": one.path, **msgspec.structs.asdict(kind)} for one in found for kind in one.found
    ]

    def text() -> None:
        names = ("file", "kind", "different", "times", "line")
        emit_list("found", rows, {name: name for name in names}, none="no secrets found")
        for one in looked:
            if one.skipped:
                note(f"{one.path}: {one.skipped}")
        click.echo(f"{len(found):,} of {count(len(looked), 'file')} with secrets")

    telling = [one for one in looked if one.found or one.skipped]
    emit({"files": telling, "looked_at": len(looked)}, text)


def print_timeline(found: KeptTrace, *, full: bool = False) -> None:
    """Print what was said and called in a trace, one line each."""
    trace = found.trace
    used = trace.recorded_usage
    facts = [
        f"{found.at:%Y-%m-%d %H:%M:%S}",
        str(trace.app.get("name", "")),
        trace.outcome,
        count(len(trace.calls), "call"),
        "" if used.tokens is None else f"{used.tokens:,} tokens",
        "" if used.duration_ms is None else f"{used.duration_ms / 1e3:,.1f} s",
        f"{count(found.unknown, 'line')} stored verbatim" if found.unknown else "",
    ]
    _print_line(found.id, trace.mission.goal or "(no goal recorded)", full=full)
    _print_line("", ", ".join(part for part in facts if part), full=full)
    if found.label is not None:
        why = f": {found.label.reason}" if found.label.reason else ""
        _print_line("", f"labelled {found.label.outcome}{why}", full=full)
    if trace.incomplete:
        _print_line("", f"incomplete: {trace.incomplete}", full=full)
    for number, event in enumerate(trace.events, 1):
        for head, text in _lines_of(event, f"{number:>4} "):
            _print_line(head, text, full=full)


def _lines_of(event: TraceEvent, place: str) -> list[tuple[str, str]]:
    """Return what an event is called and what it says: a call has a second line for its result."""
    if isinstance(event, Message):
        return [(f"{place}{event.role}:", event.text)]
    if isinstance(event, Approval):
        return [(f"{place}asked:", f"{event.prompt} → {event.answer!r}")]
    name = event.tool if isinstance(event, ToolCall) else event.function
    took = "" if event.duration_ms is None else f" ({event.duration_ms:,.0f} ms)"
    lines = [(f"{place}{printable(name)}{took}", json_text(event.args))]
    if event.error is not None:
        lines.append(("     ✗", json_text(event.error)))
    elif event.result is not None:
        lines.append(("     →", json_text(event.result)))
    return lines


def _print_line(head: str, text: str, *, full: bool) -> None:
    """Print one line, shortened to the terminal unless everything was asked for."""
    room = max(40, terminal_width()) - len(head) - 1
    shown = "\n".join(map(printable, text.splitlines())) if full else _short(text, room)
    click.echo(f"{head} {shown}".rstrip())


def _short(text: str, room: int) -> str:
    plain = printable(" ".join(text[: room * 4].split()))
    return plain if len(plain) <= room else plain[: max(1, room - 1)] + "…"


def _print_diff(steps: Sequence[DiffStep]) -> None:
    """Print the calls of two traces: - only in the first, + only in the second, ~ in both."""
    room = terminal_width() - 4 if sys.stdout.isatty() else 400
    for step in steps:
        differs = f"  {', '.join(step.differs)}" if step.differs else ""
        click.secho(f"{step.sign} {printable(step.tool)}{differs}", fg=_SIGNS.get(step.sign))
        for name in step.differs:
            for sign, side in (("-", step.one), ("+", step.other)):
                if name in side:
                    click.echo(f"    {sign} {_short(f'{name}: {json_text(side[name])}', room)}")
    same = sum(step.sign == " " for step in steps)
    click.echo(f"{count(same, 'call')} the same, {len(steps) - same:,} not")
