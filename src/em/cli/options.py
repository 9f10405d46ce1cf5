"""Options that several commands share, and opening the memory they speak of."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from em.capture.log import Log
from em.errors import NotFound
from em.memory import Memory
from em.models.event import Event

F = TypeVar("F", bound=Callable[..., Any])


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Options may stand before or behind: `em --json log show`, `em log show --json`."""
    if value:
        ctx.obj["json" if param.name == "as_json" else "db"] = value


def everywhere(command: F) -> F:
    """Take `--db` and `--json` behind the command too."""
    for option in (
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            help="Print JSON.",
            expose_value=False,
            callback=_note,
        ),
        click.option(
            "--db", metavar="PATH|URL", help="The log to use.", expose_value=False, callback=_note
        ),
    ):
        command = option(command)
    return command


def selection(command: F) -> F:
    """Options that choose events."""
    for option in (
        click.option("--until", metavar="TIME", help="Only what happened before this moment."),
        click.option("--since", metavar="TIME", help="Only what happened at or after this moment."),
        click.option("--kind", "kinds", multiple=True, help="Only this kind; may be repeated."),
        click.option("--subject", help="Only events about this subject."),
        click.option("--stream", help="Only events of this stream."),
    ):
        command = option(command)
    return command


def find_event(log: Log, given: str) -> Event:
    """The event of that id, or of that number in the log."""
    try:
        return log.get(given)
    except NotFound:
        if given.isascii() and given.isdecimal() and len(given) < 19:
            for event in log.read(after=int(given) - 1, limit=1):
                if event.seq == int(given):
                    return event
        raise


def open_memory(ctx: click.Context, *, create: bool = False) -> Memory:
    """The memory that `--db`, the environment or em.yaml names, closed when the command ends."""
    memory = ctx.obj["memory"] = Memory(ctx.obj["db"], create=create)
    ctx.call_on_close(memory.close)
    return memory
