"""`em traces`, `em import`, `em watch`, `em suggest`: import traces, show them, choose some."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from em.cli.options import (
    everywhere,
    limited,
    listed,
    listing,
    next_of,
    note_more,
    open_memory,
    reading,
)
from em.cli.output import (
    Advance,
    count,
    emit,
    note,
    print_table,
    printable,
    progress,
    shortened,
    terminal_width,
    wants_json,
)
from em.memory import Memory
from em.runner.trial import ENOUGH_TRIALS
from em.traces.catalogue import (
    DiffStep,
    TraceSummary,
    children_of,
    diff_traces,
    get_traces,
    list_traces,
    trace_ids,
)
from em.traces.trace import Approval, KeptTrace, Message, Outcome, ToolCall, TraceEvent, UdfCall

if TYPE_CHECKING:
    from em.compiler.proposals import Proposal
    from em.compiler.suggestions import Suggestion
    from em.traces.transcripts import FileRead

BROKEN_LINES_SHOWN = 10
"""Broken lines of a file that are named."""
_OUTCOME = click.Choice(get_args(Outcome))
_ROLES = {"user": "cyan", "assistant": "white", "thinking": "bright_black"}
_SIGNS = {"-": "red", "+": "green", "~": "yellow"}


@click.group("traces", no_args_is_help=True)
@everywhere
def traces() -> None:
    """List, show, compare and label traces: what agents said, called and got."""


@traces.command("list")
@click.option("--task", help="Only traces whose goal contains this, in upper or lower case.")
@click.option("--outcome", type=_OUTCOME)
@click.option("--agent", help="Only traces of this app, as the column `from` names it.")
@listing(20)
@everywhere
def list_(
    task: str | None, outcome: str | None, agent: str | None, limit: int, **chosen: Any
) -> None:
    """List the traces that began last, the latest first."""
    page = list_traces(
        open_memory().store,
        task=task,
        outcome=outcome,
        agent=agent,
        limit=limit,
        **listed(**chosen),
    )
    found = page.traces

    def text() -> None:
        if not found:
            note("no traces; `em import` and `em watch` bring them in")
            return
        columns = ("trace", "began", "from", "outcome", "calls", "failed", "tokens", "goal")
        print_table(columns, [_row(one) for one in found], may_go=("tokens", "failed", "outcome"))
        note_more(page.older)

    emit({"traces": found, **next_of(page.older)}, text)


def _row(one: TraceSummary) -> tuple[str, ...]:
    goal = " ".join(one.title.split())
    return (
        one.id,
        one.at.strftime("%Y-%m-%d %H:%M"),
        one.app,
        f"{one.outcome}, incomplete" if one.incomplete else one.outcome,
        str(one.calls),
        str(one.failed),
        "-" if one.tokens is None else f"{one.tokens:,}",
        f"↳ {goal}" if one.parent else goal,
    )


@traces.command("show")
@click.argument("trace")
@click.option("--full", is_flag=True, help="Don't shorten texts, arguments and results.")
@everywhere
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
            print_timeline(child, full=full, indent="    ")
        if children:
            click.echo(f"\n{count(len(children), 'sub-agent')}")

    emit({"trace": found, "sub_agents": children}, text)


@traces.command("diff")
@click.argument("one")
@click.argument("other")
@everywhere
def diff(one: str, other: str) -> int:
    """Compare two traces call by call. Exit code 1 if they differ."""
    store = open_memory().store
    first, second = get_traces(store, [one, other])
    steps = diff_traces(first.trace, second.trace)
    emit({"steps": steps}, lambda: print_diff(steps))
    return 0 if all(step.sign == " " for step in steps) else 1


@traces.command("label")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True)
@click.argument("outcome", type=_OUTCOME)
@click.option("--reason", default="", help="Stored with the label.")
@everywhere
def label(traces: tuple[str, ...], outcome: Outcome, reason: str) -> None:
    """Say how each TRACE ended: success, failure or unknown. The last label counts.

    Labels decide what is compiled: `em suggest` and `em compile --all` take successes. What was
    recorded stays in the log. TRACE is an id, or the first characters of one.
    """
    memory = open_memory()
    # All of them first: nothing is labelled if one can't be found.
    found = get_traces(memory.store, list(dict.fromkeys(traces)))
    for one in found:
        memory.label(one.id, outcome, reason=reason)

    def text() -> None:
        for one in found:
            click.echo(f"{one.id}: {outcome} (was {one.trace.outcome})")

    rows = [{"id": one.id, "outcome": outcome, "was": one.trace.outcome} for one in found]
    emit({"traces": rows}, text)


def print_timeline(found: KeptTrace, *, full: bool = False, indent: str = "") -> None:
    """Print what was said and called in a trace, one line each."""
    trace = found.trace
    lines = _Lines(indent, full=full)
    lines.add(click.style(found.id, bold=True), trace.mission.goal or "(no goal recorded)")
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
    lines.add("", ", ".join(part for part in facts if part))
    if found.label is not None:
        why = f": {found.label.reason}" if found.label.reason else ""
        lines.add("", f"labelled {found.label.outcome}{why}")
    if trace.incomplete:
        lines.add("", f"incomplete: {trace.incomplete}", fg="yellow")
    for number, event in enumerate(trace.events, 1):
        _print_event(lines, number, event)


class _Lines:
    def __init__(self, indent: str, *, full: bool) -> None:
        self._indent, self._full = indent, full
        self._width = max(40, terminal_width() - len(indent))

    def add(self, head: str, text: str, **style: Any) -> None:
        """Print one line, shortened to the terminal unless everything was asked for."""
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


def _print_event(lines: _Lines, number: int, event: TraceEvent) -> None:
    place = f"{number:>4} "
    if isinstance(event, Message):
        color = _ROLES.get(event.role, "bright_black")
        lines.add(place + click.style(f"{event.role}:", fg=color), event.text)
    elif isinstance(event, Approval):
        lines.add(f"{place}asked:", f"{event.prompt} → {event.answer!r}")
    else:
        _print_call(lines, place, event)


def _print_call(lines: _Lines, place: str, call: ToolCall | UdfCall) -> None:
    name = call.tool if isinstance(call, ToolCall) else call.function
    took = "" if call.duration_ms is None else f" ({call.duration_ms:,.0f} ms)"
    lines.add(place + click.style(printable(name), fg="blue", bold=True) + took, _json(call.args))
    if call.error is not None:
        lines.add("     " + click.style("✗", fg="red"), _text(call.error), fg="red")
    elif call.result is not None:
        lines.add("     " + click.style("→", fg="green"), _text(call.result))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def print_diff(steps: Sequence[DiffStep]) -> None:
    """Print the calls of two traces: - only in the first, + only in the second, ~ in both."""
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


class _ListsFormats(click.Command):
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
@everywhere
def import_(paths: tuple[str, ...], format_: str | None, subject: str | None) -> int:
    """Import the traces in PATH: files, folders, patterns, or - for standard input.

    The format is detected and reported. Importing a file again changes nothing; of a file that has
    grown, only the new part is imported. A broken line is reported and skipped. A line of a kind
    that the importer does not know is stored verbatim.
    """
    from em.traces.transcripts import as_json, files_in, import_each, total_size

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
                read.append(_from_standard_input(memory, format_, subject, advance))
    except KeyboardInterrupt:
        _note_stopped(read, total)
        raise

    def text() -> None:
        for one in read:
            _print_file(one, alone=len(read) == 1)
        _print_totals(memory, read)

    emit({"files": [as_json(one) for one in read], **_sums(read)}, text)
    return 1 if not any(one.format for one in read) else 0


def _note_stopped(read: "Sequence[FileRead]", total: int) -> None:
    """Say what an import that was stopped has stored, and how to go on."""
    stored = sum(one.new_traces for one in read)
    note(
        f"stopped: {len(read):,} of {count(total, 'file')} were imported, with"
        f" {count(stored, 'new trace')}; they are stored. To go on, give the same command again:"
        " what is stored is not imported twice."
    )


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
    """Return whether `em suggest` would leave out more than it takes: nothing says how it ended."""
    from em.compiler.sessions import is_session
    from em.traces.outcomes import outcome_of_kept

    ids = [trace for one in read if one.new_traces for trace in one.traces][-LOOKED_AT:]
    kept = get_traces(memory.store, ids)
    successes = sum(outcome_of_kept(one) == "success" for one in kept)
    left_out = sum(outcome_of_kept(one) == "unknown" and not is_session(one.trace) for one in kept)
    return left_out > successes


def _print_totals(memory: Memory, read: "Sequence[FileRead]") -> None:
    other = [one for one in read if one.skipped and one.skipped != "unchanged"]
    same = sum(one.skipped == "unchanged" for one in read)
    if len(read) != 1:
        sums = _sums(read)
        line = f"{count(sums['new_traces'], 'new trace')} in {count(len(read), 'file')}"
        line += f", {same:,} unchanged" if same else ""
        line += f", {len(other):,} not imported" if other else ""
        line += f", {count(sums['broken'], 'broken line')}" if sums["broken"] else ""
        click.echo(line)
    if any(one.new_traces for one in read):
        command = "em suggest --allow-unlabelled" if _are_open(memory, read) else "em suggest"
        click.echo(f"next: `{command}` shows which are worth compiling, `em traces list` lists all")


@click.command("watch")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--format", "format_", metavar="FORMAT", help="The format.  [detected]")
@click.option("--subject", help="The subject of the traces.")
@click.option("--once", is_flag=True, help="Look once, then exit.")
@everywhere
def watch(folder: Path, every: float, format_: str | None, subject: str | None, once: bool) -> None:
    """Import what agents write in FOLDER, while they write it, until Ctrl-C.

    For Claude Code: em watch ~/.claude/projects. When restarted, it continues where it stopped.
    """
    from em.traces.formats import importer_of
    from em.traces.watch import Watch

    if format_ is not None:
        importer_of(format_)
    memory = open_memory(create=True)
    watched = Watch(memory.store, folder, format_=format_, subject=subject)
    if not once and not wants_json():
        note(f"watching {folder}; end with Ctrl-C")
    try:
        for read in watched.look() if once else watched.run(every):
            emit(
                {"path": read.path, "format": read.format, "new": read.new},
                partial(_print_watched, read),
            )
    finally:
        watched.finish()


def _print_watched(read: "FileRead") -> None:
    if read.skipped:
        note(f"{read.path}: {read.skipped}")
    else:
        news = f"{count(read.new, 'event')}, {count(read.calls, 'call')} so far"
        click.echo(f"{printable(read.path)}: {read.format}, {news}")


LOOKED_FOR = (
    "em looks for .jsonl, .json, .ndjson and .traj files, others that begin like JSON, and"
    " databases of opencode. Agents have them in ~/.claude/projects, ~/.codex/sessions and"
    " ~/.local/share/opencode"
)
LONGEST_GOAL, LONGEST_REASON = 80, 300
"""Characters of a goal and of a reason that are shown."""
EXPLAINED = """\
Saved is what the agent itself cost in one run, without its tools: the median of its traces. It
counts the model's answers, their tokens and price as the transcript reports them, and the seconds
in which none of the routine's calls was running. If a transcript does not count answers, one for
each call and one at the end is assumed. A - means that the transcripts don't report it. Proved:
each trace of a sample is left out once, and what the others teach is tried on it; the rest is
handed over. Groups are ordered by what they save, times the number of traces, times the share
that is proved."""


@click.command("suggest")
@click.option("--task", help="Only traces whose goal contains this.")
@click.option(
    "--at-least",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How many traces must have had the same effects.",
)
@limited(10)
@click.option(
    "--allow-unlabelled",
    is_flag=True,
    help="Also take traces that don't say whether they succeeded.",
)
@click.option("--explain", is_flag=True, help="Explain how the savings are estimated.")
@click.option("--about", metavar="TRACE", multiple=True, help="Only groups of it. Repeatable.")
@click.option("--propose", is_flag=True, help="Store what is proven, to tell it to agents once.")
@everywhere
def suggest(
    *,
    task: str | None,
    at_least: int,
    limit: int,
    allow_unlabelled: bool,
    explain: bool,
    about: tuple[str, ...],
    propose: bool,
) -> None:
    """List the traces that are worth compiling, the most worthwhile first.

    Traces that succeeded and had the same effects form a group, however often and on which way;
    those without an effect if they made the same calls. The best groups are compiled and tried on
    their own traces; nothing is stored. Not proposed is what would do the same on every run.
    The saving is an estimate for one run: see --explain. What was proposed at the end of an agent's
    session and is not kept yet comes first.
    """
    from em.compiler.proposals import open_proposals, propose_mended
    from em.compiler.proposals import propose as store_proposals
    from em.compiler.suggestions import suggest as suggest_groups

    memory = open_memory()
    with progress("reading and proving") as bar:
        found = suggest_groups(
            memory.store,
            task,
            at_least=at_least,
            limit=limit,
            allow_unlabelled=allow_unlabelled,
            about=about,
            progress=bar.at,
        )
    if propose:
        store_proposals(memory.store, found)
        propose_mended(memory.store, about)
    proposals = open_proposals(memory.store)

    def text() -> None:
        for proposal in proposals:
            _print_proposal(proposal)
        if not found:
            note(
                "no traces that succeeded belong together: they must have the same effects, and"
                " requests of sessions must be worded alike; `em suggest --at-least 1` lists all"
            )
        if not allow_unlabelled:
            _note_unlabelled(memory, task, sum(one.unlabelled for one in found))
        if found:
            _print_suggestions(found, proposals, explain=explain)
        if found.more:
            note(f"… {count(found.more, 'group')} more: repeat with -n {limit + found.more}")

    shown = {"suggestions": found, "proposals": proposals, "more": found.more}
    emit({**shown, "estimate": " ".join(EXPLAINED.split())}, text)


def _print_suggestions(
    found: "Sequence[Suggestion]", proposals: "Sequence[Proposal]", *, explain: bool
) -> None:
    columns = ("traces", "proved", "answers", "tokens", "seconds", "usd", "steps", "effects")
    rows = [_suggestion_row(one) for one in found]
    print_table(columns, rows, may_go=("usd", "steps", "seconds"))
    click.echo()
    waiting = {trace: one.key for one in proposals if not one.routine for trace in one.traces}
    for one in found:
        _print_suggestion(one, next((waiting[id_] for id_ in one.sample if id_ in waiting), ""))
    if explain:
        click.echo(f"\n{EXPLAINED}")
    else:
        note("answers, tokens, seconds and usd: saved in each run, estimated (see --explain)")


def _print_proposal(one: "Proposal") -> None:
    goal = printable(shortened(one.goal, LONGEST_GOAL)) or "(no goal recorded)"
    if one.routine:
        click.echo(f"handed over by {one.routine}: {goal}  ({count(one.count, 'trace')})")
        click.echo(f"  em can't learn it by itself: {printable(one.proof)}")
        click.echo(f"  an agent can write the next version: propose with the group {one.key}")
        return
    click.echo(f"proposed: {goal}  ({count(one.count, 'trace')})")
    click.echo(f"  tried on {count(len(one.traces), 'trace')}: {one.proof}")
    _print_waits(one.waits)
    click.echo(f"  em routine accept {one.key}")


def _print_waits(waits: str) -> None:
    """Say whether a routine would be used by itself."""
    used = f"agents would ask you first: {printable(waits)}" if waits else "used by itself: yes"
    click.echo(f"  {used}")


def _note_unlabelled(memory: Memory, task: str | None, taken: int) -> None:
    unlabelled = len(trace_ids(memory.store, task=task, outcome="unknown")) - taken
    if unlabelled > 0:
        note(
            f"without an outcome: {count(unlabelled, 'trace')}; label them "
            "(`em traces label TRACE success`), or take them too with --allow-unlabelled"
        )


def _suggestion_row(one: "Suggestion") -> tuple[str, ...]:
    return (
        f"{one.count:,}",
        "-" if one.proof is None else f"{one.right_share:.0%}",
        f"{one.model_calls:,.0f}",
        "-" if one.tokens is None else f"{one.tokens:,.0f}",
        "-" if one.seconds is None else f"{one.seconds:,.1f}",
        "-" if one.cost_usd is None else f"{one.cost_usd:,.4f}",
        str(one.steps),
        ", ".join(one.effects) or f"none: {' > '.join(one.way)}",
    )


def _print_suggestion(one: "Suggestion", proposal: str) -> None:
    """Print a suggestion. proposal: the key of what is proposed of its traces already."""
    goal = printable(shortened(one.goal, LONGEST_GOAL)) or "(no goal recorded)"
    click.echo(f"{goal}  ({count(one.count, 'trace')})")
    if one.problem:
        click.echo(f"  not worth compiling: {printable(shortened(one.problem, LONGEST_REASON))}")
        return
    if one.unlabelled:
        click.echo(f"  {count(one.unlabelled, 'trace')} without an outcome: nothing says it failed")
    if one.proof is not None:
        proof = one.proof["summary"]
        is_tried = not proof.startswith("not tried")
        click.echo(
            f"  tried on {count(len(one.sample), 'trace')}: {proof}" if is_tried else f"  {proof}"
        )
        if is_tried and not one.proof["right"] and len(one.sample) >= ENOUGH_TRIALS:
            click.echo("  not worth keeping: it would ask or hand over in every run")
            return
    if one.kept_as:
        name = one.kept_as.partition("@")[0]
        again = "" if ":" in name else f"; with newer traces: em compile --again {name}"
        click.echo(f"  kept already as {one.kept_as}{again}")
        return
    if proposal:
        click.echo(f"  proposed already: em routine accept {proposal}")
        return
    _print_waits(one.waits)
    click.echo(f"  em compile {' '.join(one.sample)} --keep")
