"""Completion: what the TAB key offers, in bash, zsh and fish, with names out of the memory."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing

import click
from click.shell_completion import CompletionItem, get_completion_class
from click.types import StringParamType

from em.errors import EmError

SHELLS = ("bash", "zsh", "fish")
MOST = 200
"""Names that are offered at once."""


class Name(StringParamType):
    """A text that is completed by the names in the memory."""

    def __init__(self, names: Callable[[click.Context], Iterator[str]]) -> None:
        self._names = names

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Offer the names that begin as typed. A memory that can't be read has none."""
        found: list[CompletionItem] = []
        try:
            with warnings.catch_warnings(action="ignore"):
                for name in self._names(ctx):
                    if name.startswith(incomplete) and len(found) < MOST:
                        found.append(CompletionItem(name))
        except (EmError, OSError):
            # A message would stand in the middle of what the person types.
            return []
        return found


def _memory(ctx: click.Context) -> str | None:
    """Return the database that was typed before; None for the usual one."""
    typed = (one.params.get("db") or (one.obj or {}).get("db") for one in _above(ctx))
    return next(filter(None, typed), None)


def _above(ctx: click.Context | None) -> Iterator[click.Context]:
    while ctx is not None:
        yield ctx
        ctx = ctx.parent


def _routines(ctx: click.Context) -> Iterator[str]:
    from em.runner.package import kept_routines
    from em.store import open_store

    with closing(open_store(_memory(ctx), create=False)) as store:
        yield from dict.fromkeys(
            one.name
            for one in kept_routines(store)
            if one.retired_at is None and one.body is not None
        )


def _subjects(ctx: click.Context) -> Iterator[str]:
    from em.state.portions import subjects_of
    from em.store import open_store

    with closing(open_store(_memory(ctx), create=False)) as store:
        yield from subjects_of(store)


def _workflows(ctx: click.Context) -> Iterator[str]:
    from em.workflows.definition import WorkflowFile

    yield from WorkflowFile(ctx.params.get("file")).values()


ROUTINE, SUBJECT, WORKFLOW = Name(_routines), Name(_subjects), Name(_workflows)
BY_NAME = {"routine": ROUTINE, "ref": ROUTINE, "subject": SUBJECT, "subjects": SUBJECT}
"""What parameters of these names are."""


def with_names(name: str, command: click.Command) -> click.Command:
    """Complete routines, subjects and workflows of a command, and of all commands below it."""
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            with_names(f"{name} {below}", one)
        return command
    for param in command.params:
        kind = BY_NAME.get(param.name or "")
        if param.name == "name" and isinstance(param, click.Argument):
            kind = WORKFLOW if name.startswith("workflow ") else ROUTINE
        if kind is not None and type(param.type) is StringParamType:
            param.type = kind
    return command


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that completes `em` in SHELL.

    It completes commands, options and files, and names of routines, subjects and workflows. Load it
    when the shell starts:

    \b
      eval "$(em completion bash)"      # in ~/.bashrc
      eval "$(em completion zsh)"       # in ~/.zshrc, after compinit
      em completion fish | source       # in ~/.config/fish/config.fish
    """
    from em.cli.root import VARIABLE, root

    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(root, {}, "em", VARIABLE).source())
