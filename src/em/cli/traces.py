"""`em traces`: look at the attempts in a memory."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from em.cli.files import reading
from em.cli.options import everywhere, open_memory
from em.cli.output import (
    Advance,
    count,
    print_json,
    print_table,
    printable,
    progress,
    terminal_width,
)
from em.errors import InputError, NotFound
from em.memory import Memory
from em.store.protocol import Store
from em.traces.catalogue import (
    DiffStep,
    TraceSummary,
    children_of,
    diff_traces,
    get_traces,
    list_traces,
)
from em.traces.trace import Approval, KeptTrace, Message, ToolCall, TraceEvent, UdfCall

if TYPE_CHECKING:
    from em.compiler.suggestions import Suggestion
    from em.traces.intake import Problem
    from em.traces.transcripts import FileRead

_ROLES = {"user": "cyan", "assistant": "white", "thinking": "bright_black"}
_SIGNS = {"-": "red", "+": "green", "~": "yellow"}


def print_timeline(kept: KeptTrace, *, full: bool = False, indent: str = "") -> None:
    """The whole of a trace."""
    trace = kept.trace
    say = _Lines(indent, full=full)
    say.line(click.style(kept.id, bold=True), trace.mission.goal or "no goal was said")
    used = trace.recorded_usage
    told = [
        f"{kept.at:%Y-%m-%d %H:%M:%S}",
        str(trace.app.get("name", "")),
        trace.outcome,
        count(len(trace.calls), "call"),
        "" if used.tokens is None else f"{used.tokens:,} tokens",
        "" if used.duration_ms is None else f"{used.duration_ms / 1e3:,.1f} s",
        f"{count(kept.unknown, 'line')} kept verbatim" if kept.unknown else "",
    ]
    say.line("", ", ".join(part for part in told if part))
    for number, event in enumerate(trace.events, 1):
        _print_event(say, number, event)


class _Lines:
    def __init__(self, indent: str, *, full: bool) -> None:
        self._indent, self._full = indent, full
        self._width = max(40, terminal_width() - len(indent))

    def line(self, head: str, text: str, **style: Any) -> None:
        """One line; more of them only where all is asked for."""
        taken = len(click.unstyle(head)) + 1
        shown = (
            "\n".join(map(printable, text.splitlines()))
            if self._full
            else _short(text, self._width - taken)
        )
        body = click.style(shown, **style) if style else shown
        click.echo(f"{self._indent}{head} {body}".rstrip())


def _short(text: str, room: int) -> str:
    plain = printable(" ".join(text[: room * 4].split()))
    return plain if len(plain) <= room else plain[: max(1, room - 1)] + "…"


def _print_event(say: _Lines, number: int, event: TraceEvent) -> None:
    place = f"{number:>4} "
    if isinstance(event, Message):
        color = _ROLES.get(event.role, "bright_black")
        say.line(place + click.style(f"{event.role}:", fg=color), event.text)
    elif isinstance(event, Approval):
        say.line(f"{place}asked:", f"{event.prompt} → {event.answer!r}")
    else:
        _print_call(say, place, event)


def _print_call(say: _Lines, place: str, call: ToolCall | UdfCall) -> None:
    name = call.tool if isinstance(call, ToolCall) else call.function
    took = "" if call.duration_ms is None else f" ({call.duration_ms:,.0f} ms)"
    say.line(place + click.style(printable(name), fg="blue", bold=True) + took, _json(call.args))
    if call.error is not None:
        say.line("     " + click.style("✗", fg="red"), _text(call.error), fg="red")
    elif call.result is not None:
        say.line("     " + click.style("→", fg="green"), _text(call.result))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def print_diff(steps: Sequence[DiffStep]) -> None:
    """Two traces beside each other: - only the first, + only the second, ~ otherwise."""
    room = terminal_width() - 4 if sys.stdout.isatty() else 400
    for step in steps:
        head = f"{step.sign} {printable(step.tool)}"
        click.secho(head, fg=_SIGNS.get(step.sign), nl=not step.differs)
        if step.differs:
            click.echo(f"  {', '.join(step.differs)}")
        for name in step.differs:
            for sign, side in (("-", step.one), ("+", step.other)):
                if name in side:
                    shown = _short(f"{name}: {_text(side[name])}", room)
                    click.secho(f"    {sign} {shown}", fg=_SIGNS[sign])
    same = sum(step.sign == " " for step in steps)
    click.echo(f"{count(same, 'call')} the same, {len(steps) - same:,} not")


SHORTEST = 4


@click.group("traces", no_args_is_help=True)
@everywhere
def traces() -> None:
    """Look at traces: what agents said, called and got."""


@traces.command("list")
@click.option("--task", help="Only traces whose goal contains this, in upper or lower case.")
@click.option("--outcome", type=click.Choice(["success", "failure", "unknown"]))
@click.option("-n", "--limit", type=click.IntRange(min=1), default=20, show_default=True)
@everywhere
@click.pass_context
def list_(ctx: click.Context, task: str | None, outcome: str | None, limit: int) -> None:
    """The newest traces, the newest last."""
    store = open_memory(ctx).store
    page = list_traces(store, task=task, outcome=outcome, limit=limit, count_calls=True)
    found = page.traces[::-1]
    if ctx.obj["json"]:
        print_json({"traces": found})
    elif found:
        columns = ("trace", "began", "from", "outcome", "calls", "failed", "tokens", "goal")
        print_table(columns, [_row(one) for one in found], may_go=("tokens", "failed", "outcome"))
    else:
        click.echo("no traces; `em import` and `em watch` bring them in", err=True)


def _row(one: TraceSummary) -> tuple[str, ...]:
    goal = " ".join(one.title.split())
    return (
        one.id,
        one.at.strftime("%Y-%m-%d %H:%M"),
        one.app,
        one.outcome,
        str(one.calls),
        str(one.failed),
        "-" if one.tokens is None else f"{one.tokens:,}",
        f"↳ {goal}" if one.parent else goal,
    )


@traces.command("show")
@click.argument("trace")
@click.option("--full", is_flag=True, help="Texts, arguments and results as a whole.")
@everywhere
@click.pass_context
def show_trace(ctx: click.Context, trace: str, full: bool) -> None:
    """One trace as a timeline, its sub-agents within. TRACE is an id or how one begins."""
    store = open_memory(ctx).store
    kept = find(store, trace)
    children = children_of(store, kept.id)
    if ctx.obj["json"]:
        print_json({"trace": kept, "sub_agents": children})
        return
    print_timeline(kept, full=full)
    for child in children:
        call = f" of call {child.trace.parent_call}" if child.trace.parent_call else ""
        click.echo(f"\nsub-agent{call}:")
        print_timeline(child, full=full, indent="    ")
    if children:
        click.echo(f"\n{count(len(children), 'sub-agent')}")


@traces.command("diff")
@click.argument("one")
@click.argument("other")
@everywhere
@click.pass_context
def diff(ctx: click.Context, one: str, other: str) -> int:
    """How two traces differ, call by call. Exit code 1 if they do."""
    store = open_memory(ctx).store
    steps = diff_traces(find(store, one).trace, find(store, other).trace)
    if ctx.obj["json"]:
        print_json({"steps": steps})
    else:
        print_diff(steps)
    return 0 if all(step.sign == " " for step in steps) else 1


def find(store: Store, given: str) -> KeptTrace:
    """The trace of an id, or the only one whose id begins so."""
    try:
        return get_traces(store, [given])[0]
    except NotFound:
        found = [one.id for one in reversed(list_traces(store).traces) if one.id.startswith(given)]
        if len(given) < SHORTEST or not found:
            raise
        if len(found) > 1:
            raise InputError(
                f"{count(len(found), 'trace')} begin with {given!r}",
                place="trace",
                fix="one of: " + ", ".join(found[:5]),
            ) from None
        return get_traces(store, found)[0]


BROKEN_LINES_SHOWN = 10
"""So many broken lines of a file are named."""


class _ListsFormats(click.Command):
    """A command whose help lists the formats; the importers are loaded only for that."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from em.traces.formats import importers

        self.epilog = f"Formats: {', '.join(importers())}."
        super().format_epilog(ctx, formatter)


@click.command("import", cls=_ListsFormats)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--format", "format_", metavar="FORMAT", help="The format.  [found by looking]")
@click.option("--subject", help="Whose traces they are.")
@everywhere
@click.pass_context
def import_(
    ctx: click.Context, paths: tuple[str, ...], format_: str | None, subject: str | None
) -> int:
    """Keep the traces in PATH: files, folders, patterns, or - for standard input.

    The format is found and said. The same file again changes nothing, and one that has grown brings
    only what is new. A line that can't be read is named, and the rest goes on; one that nobody
    understands is kept as it is.
    """
    from em.traces.transcripts import as_json, files_in, import_paths, total_size

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
            _print_file(one, alone=len(read) == 1)
        _print_totals(read)
    return 1 if not any(one.format for one in read) else 0


def _from_standard_input(
    memory: Memory, format_: str | None, subject: str | None, advance: Advance
) -> "FileRead":
    from em.traces.transcripts import import_file

    with reading("-") as (source, name):
        return import_file(
            memory.store, source, name, format_=format_, subject=subject, progress=advance
        )


def _sums(read: "Sequence[FileRead]") -> dict[str, int]:
    return {
        "new_traces": sum(one.new_traces for one in read),
        "new_events": sum(one.new for one in read),
        "unknown": sum(one.unknown for one in read),
        "broken": sum(len(one.problems) for one in read),
    }


def _print_file(one: "FileRead", *, alone: bool) -> None:
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
    for problem in one.problems[:BROKEN_LINES_SHOWN]:
        _print_problem(problem)
    if len(one.problems) > BROKEN_LINES_SHOWN:
        click.echo(f"  and {len(one.problems) - BROKEN_LINES_SHOWN:,} more", err=True)


def _print_problem(problem: "Problem") -> None:
    click.echo(f"  {printable(problem.place)}: {printable(problem.message)}", err=True)


def _print_totals(read: "Sequence[FileRead]") -> None:
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


@click.command("watch")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--format", "format_", metavar="FORMAT", help="The format.  [found by looking]")
@click.option("--subject", help="Whose traces they are.")
@click.option("--once", is_flag=True, help="Look once, and end.")
@everywhere
@click.pass_context
def watch(
    ctx: click.Context,
    folder: Path,
    every: float,
    format_: str | None,
    subject: str | None,
    once: bool,
) -> None:
    """Bring what agents write in FOLDER into the log, until Ctrl-C.

    For Claude Code: em watch ~/.claude/projects. Started again, it goes on where it was.
    """
    from em.traces.formats import importer_of
    from em.traces.watch import Watch

    if format_ is not None:
        importer_of(format_)
    memory = open_memory(ctx, create=True)
    watch_ = Watch(memory.store, folder, format_=format_, subject=subject)
    if not once and not ctx.obj["json"]:
        click.echo(f"watching {printable(str(folder))}; Ctrl-C ends", err=True)
    coming = watch_.look() if once else watch_.run(every)
    try:
        for read in coming:
            if ctx.obj["json"]:
                print_json({"path": read.path, "format": read.format, "new": read.new})
            elif read.skipped:
                click.echo(f"{printable(read.path)}: {printable(read.skipped)}", err=True)
            else:
                told = f"{count(read.new, 'event')}, {count(read.calls, 'call')} so far"
                click.echo(f"{printable(read.path)}: {read.format}, {told}")
    finally:
        watch_.finish()


EXPLAINED = """\
Saved is what one run of the agent took beside its tools, the median of its traces: the answers of
its model, their tokens as the transcript counts them, and the seconds that no call which a routine
makes again was under way. Ways are ordered by that times how often they were gone. Where a
transcript counts no answers, one for each call and one at the end is assumed; where it says nothing
of tokens or times, a - stands there."""


@click.command("suggest")
@click.option("--task", help="Only traces whose goal holds this.")
@click.option(
    "--at-least",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How many traces must have gone the same way.",
)
@click.option("-n", "--limit", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--explain", is_flag=True, help="Say how the savings are estimated.")
@everywhere
@click.pass_context
def suggest(ctx: click.Context, task: str | None, at_least: int, limit: int, explain: bool) -> None:
    """Which traces look repetitive and are worth compiling, the most worth first.

    Traces whose calls went the same way are put together, and each way is compiled, to see whether
    it can be; nothing is kept. The saving is estimated for one run: see --explain.
    """
    found = open_memory(ctx).suggest(task, at_least=at_least, limit=limit)
    if ctx.obj["json"]:
        print_json({"suggestions": found, "estimate": " ".join(EXPLAINED.split())})
        return
    if not found:
        click.echo("no two traces went the same way; `em suggest --at-least 1` shows all", err=True)
        return
    print_table(
        ("traces", "answers", "tokens", "seconds", "steps", "way"),
        [_suggestion_row(one) for one in found],
    )
    click.echo()
    for one in found[:3]:
        _print_suggestion(one)
    if explain:
        click.echo(f"\n{EXPLAINED}")
    else:
        click.echo("saved in each run, estimated; --explain says how", err=True)


def _suggestion_row(one: "Suggestion") -> tuple[str, ...]:
    return (
        f"{one.count:,}",
        f"{one.model_calls:,.0f}",
        "-" if one.tokens is None else f"{one.tokens:,.0f}",
        "-" if one.seconds is None else f"{one.seconds:,.1f}",
        str(one.steps),
        " > ".join(one.way),
    )


def _print_suggestion(one: "Suggestion") -> None:
    goal = printable(" ".join(one.goal.split())[:80]) or "no goal was said"
    click.echo(f"{goal}  ({count(one.count, 'trace')})")
    if one.problem:
        click.echo(f"  can't be compiled: {printable(one.problem[:200])}")
    else:
        shown = " ".join(one.traces[:5])
        click.echo(f"  em compile {shown} --keep")
