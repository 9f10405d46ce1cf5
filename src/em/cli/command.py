"""Commands and groups of `em`: `--db` and `--json` anywhere, parts that are imported when used.

What is typed may be other than UTF-8: a path may be so; a name or a text is refused before any
work.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from click.types import StringParamType

from em.errors import UsageError
from em.values.files import is_unicode, shown

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PATHS = {"FILE", "DIR", "PATH"}


class Text(StringParamType):
    """A text, or a path where the metavar of its parameter names a FILE, a DIR or a PATH.

    Only a path may be other than UTF-8. In FILE|TRACE, what does not exist is an id.
    """

    def __init__(self, metavar: str) -> None:
        words = set(re.findall("[A-Z]+", metavar))
        self._may_be_path = bool(words & _PATHS)
        self._is_path = "PATH" in words or (bool(words) and words <= _PATHS)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text; raise UsageError if it is neither UTF-8 nor a path."""
        may_be_odd = not isinstance(value, str) or is_unicode(value) or self._is_path
        if not may_be_odd and not (self._may_be_path and os.path.exists(value)):
            place = "" if param is None else param.human_readable_name
            also = ", or a path that exists" if self._may_be_path else ""
            raise UsageError(f"expected UTF-8 text{also}, got {shown(value)}", place=place)
        return super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Offer the names in the memory that begin as typed."""
        from em.cli.completion import offered

        return offered(ctx, param, incomplete)


def _take(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value:
        ctx.obj["json" if param.name == "as_json" else "db"] = value


EVERYWHERE = (
    click.Option(
        ["--db"],
        type=Text("PATH|URL"),
        metavar="PATH|URL",
        help="The memory: a SQLite file or a postgresql:// URL.  [EM_DB, em.yaml, else .em/em.db]",
        expose_value=False,
        callback=_take,
    ),
    click.Option(
        ["--json", "as_json"],
        is_flag=True,
        help="Print JSON instead of text.",
        expose_value=False,
        callback=_take,
    ),
)
"""Options that may stand before or after the name of every command."""


class Command(click.Command):
    """A command that takes the options of EVERYWHERE and refuses texts that can't be stored.

    path: its name with those of the groups above it: `state show`.
    """

    path = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for param in self.params:
            if type(param.type) is StringParamType:
                metavar = param.metavar if isinstance(param.metavar, str) else ""
                param.type = Text(metavar)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its own parameters, and those that every command takes."""
        return [*super().get_params(ctx), *EVERYWHERE]

    def format_epilog(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its examples below its help."""
        from em.cli.examples import EXAMPLES

        lines = EXAMPLES.get(self.path, "").splitlines()
        if lines:
            with formatter.section("Examples" if len(lines) > 1 else "Example"):
                for line in lines:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Group(Command, click.Group):
    """A group that can name commands without importing them.

    places: the other commands by name, as `module:attribute`.
    """

    command_class = Command
    group_class = type

    def __init__(self, *args: Any, places: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.places = places or {}

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Return the names of all commands in alphabetical order."""
        return sorted({*self.commands, *self.places})

    def get_command(self, _ctx: click.Context, name: str) -> Command | None:
        """Return a command, which is imported now if it has not been."""
        if name in self.places and name not in self.commands:
            module, _, attribute = self.places[name].partition(":")
            self.commands[name] = getattr(import_module(module), attribute)
        found = self.commands.get(name)
        if not isinstance(found, Command):
            return None
        found.path = f"{self.path} {name}".strip()
        return found


def walk(command: Command) -> Iterator[Command]:
    """Yield a command and all below it."""
    yield command
    if isinstance(command, Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            if below is not None:
                yield from walk(below)


def command(name: str) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function."""
    return click.command(name, cls=Command)


def group(
    name: str, places: Mapping[str, str] | None = None
) -> Callable[[Callable[..., Any]], Group]:
    """Make a group of a function, whose docstring is its help."""
    return click.group(name, cls=Group, no_args_is_help=True, places=places)
