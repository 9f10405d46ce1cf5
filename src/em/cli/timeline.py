"""A trace in the terminal: what was said and called, one thing below the other."""

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from em.cli.output import count, printable, terminal_width
from em.traces.catalogue import DiffStep
from em.traces.trace import Approval, KeptTrace, Message, ToolCall, TraceEvent, UdfCall

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
