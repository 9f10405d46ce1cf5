"""Options that several commands share, and opening the memory and the routine they speak of."""

import shlex
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from em.cli.files import reading
from em.cli.output import only_results_on_stdout
from em.errors import InputError, NotFound, UsageError
from em.log.event import Event
from em.memory import Memory
from em.runner.tools import ToolRegistry
from em.runner.tools.permissions import settings_for
from em.settings import AllowSettings
from em.store.log import Log

if TYPE_CHECKING:
    from em.runner.package import Package

F = TypeVar("F", bound=Callable[..., Any])


def _note(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Options may stand before or behind: `em --json log show`, `em log show --json`."""
    if value:
        ctx.obj["json" if param.name == "as_json" else "db"] = value


def everywhere(function: F) -> F:
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
        function = option(function)
    return function


def selection(function: F) -> F:
    """Options that choose events."""
    for option in (
        click.option("--until", metavar="TIME", help="Only what happened before this moment."),
        click.option("--since", metavar="TIME", help="Only what happened at or after this moment."),
        click.option("--kind", "kinds", multiple=True, help="Only this kind; may be repeated."),
        click.option("--subject", help="Only events about this subject."),
        click.option("--stream", help="Only events of this stream."),
    ):
        function = option(function)
    return function


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
    from em.runner.package import Package, is_folder, opened

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


_ALLOW = "Let declared tools {} this, beside what em.yaml allows; may be repeated."


def answering(function: F) -> F:
    """Options by which a person answers, and allows."""
    for option in (
        click.option("--yes", is_flag=True, help="Answer yes to every confirmation."),
        click.option("--answers", metavar="FILE", help="Answers: {step: {field: value}}, as JSON."),
        click.option("--allow-env", multiple=True, metavar="NAME", help=_ALLOW.format("read")),
        click.option("--allow-host", multiple=True, metavar="HOST", help=_ALLOW.format("ask")),
        click.option("--allow-command", multiple=True, metavar="NAME", help=_ALLOW.format("run")),
    ):
        function = option(function)
    return function


def as_typed(shared: Mapping[str, Any]) -> str:
    """The options as they were typed, for who goes on later."""
    typed: list[str] = []
    for name, value in shared.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            typed.append(option)
        elif isinstance(value, str):
            typed += [option, value]
        elif value:
            typed += [word for each in value for word in (option, each)]
    return shlex.join(typed)


def allowed(folder: Path, shared: Mapping[str, Any]) -> AllowSettings | None:
    """What the options allow, beside em.yaml; None if they say nothing."""
    commands, hosts, env = (shared[f"allow_{what}"] for what in ("command", "host", "env"))
    if not (commands or hosts or env):
        return None
    more = AllowSettings(commands=list(commands), hosts=list(hosts), env=list(env))
    return settings_for(folder, None) + more


def read_object(file: str) -> dict[str, Any]:
    """A JSON object from a file."""
    with reading(file) as (source, name):
        try:
            return msgspec.json.decode(source.read(), type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"this is no JSON object: {error}", place=name) from None


def with_tools(function: F) -> F:
    """Take `--tools`."""
    return click.option("--tools", metavar="MODULE|FILE", help="Python functions as tools.")(
        function
    )


def load_tools(source: str | None) -> ToolRegistry | None:
    """The functions that `--tools` names."""
    with only_results_on_stdout():
        return ToolRegistry.load(source) if source else None
