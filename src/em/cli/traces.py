"""`em traces`: list, show, compare and label traces."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from em.cli.command import group
from em.cli.options import (
    listed,
    listing,
    open_memory,
)
from em.cli.output import (
    count,
    emit,
    emit_list,
    printable,
    terminal_width,
)
from em.traces.catalogue import (
    DiffStep,
    TraceSummary,
    children_of,
    diff_traces,
    get_traces,
    list_traces,
)
from em.traces.trace import Approval, KeptTrace, Message, Outcome, ToolCall, TraceEvent, UdfCall

if TYPE_CHECKING:
    pass

BROKEN_LINES_SHOWN = 10
"""Broken lines of a file that are named."""
_OUTCOME = click.Choice(get_args(Outcome))
_ROLES = {"user": "cyan", "assistant": "white", "thinking": "bright_black"}
_SIGNS = {"-": "red", "+": "green", "~": "yellow"}


@group("traces", {"secrets": "em.cli.secrets:secrets"})
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
    page = list_traces(
        open_memory().store,
        task=task,
        outcome=outcome,
        agent=agent,
        limit=limit,
        **listed(**chosen),
    )
    columns = ("trace", "began", "from", "outcome", "calls", "failed", "tokens", "goal")
    emit_list(
        "traces",
        page.traces,
        columns,
        _row,
        none="no traces; `em import` brings them in",
        older=page.older,
        may_go=("tokens", "failed", "outcome"),
    )


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
