"""Options that several commands share, and opening the memory and the routine they speak of."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from em.errors import NotFound, UsageError
from em.log.event import Event
from em.memory import Memory
from em.store.log import Log

if TYPE_CHECKING:
    from em.runner.package import Package

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


def find_package(ctx: click.Context, routine: str, stack: ExitStack) -> "Package":
    """The routine in a folder, or the one of that name that is kept, until the stack is left."""
    from em.runner.library import is_folder, opened
    from em.runner.package import Package

    if is_folder(routine):
        if not Path(routine).exists():
            raise UsageError("this folder does not exist", place=routine)
        return Package(routine)
    try:
        return stack.enter_context(opened(open_memory(ctx).store, routine))
    except NotFound as error:
        raise UsageError(
            f"the folder {routine!r} does not exist, nor is a routine of that name kept",
            place=routine,
            fix=error.fix,
        ) from None
