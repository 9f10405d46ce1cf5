"""Completion: what the TAB key offers, in bash, zsh and fish, with names out of the memory."""

import warnings
from collections.abc import Callable, Iterator

import click
from click.shell_completion import CompletionItem, get_completion_class

from em.cli.command import command
from em.errors import EmError

SHELLS = ("bash", "zsh", "fish")
MOST = 200
"""Names that are offered at once."""


def offered(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names in the memory that begin as typed. A memory that can't be read has none."""
    names = _names_of(ctx, param)
    found: list[CompletionItem] = []
    try:
        with warnings.catch_warnings(action="ignore"):
            for name in names(ctx) if names else ():
                if name.startswith(incomplete) and len(found) < MOST:
                    found.append(CompletionItem(name))
    except (EmError, OSError):
        # A message would stand in the middle of what the person types.
        return []
    return found


def _names_of(ctx: click.Context, param: click.Parameter) -> "Names | None":
    """Return the function that lists what a parameter names: routines, subjects or workflows."""
    if param.name == "name" and isinstance(param, click.Argument):
        return _workflows if ctx.command_path.startswith("em workflow ") else _routines
    return BY_NAME.get(param.name or "")


def _memory(ctx: click.Context) -> str | None:
    """Return the database that was typed before; None for the usual one."""
    found: str | None = ctx.obj["db"]
    return found


def _routines(ctx: click.Context) -> Iterator[str]:
    from em.memory import Memory
    from em.runner.package import kept_routines

    with Memory(_memory(ctx), create=False) as memory:
        yield from dict.fromkeys(
            one.name
            for one in kept_routines(memory.store)
            if one.retired_at is None and one.body is not None
        )


def _subjects(ctx: click.Context) -> Iterator[str]:
    from em.memory import Memory
    from em.state.subjects import subjects_of

    with Memory(_memory(ctx), create=False) as memory:
        yield from subjects_of(memory.store)


def _workflows(ctx: click.Context) -> Iterator[str]:
    from em.workflows.definition import WorkflowFile

    yield from WorkflowFile(ctx.params.get("file")).values()


Names = Callable[[click.Context], Iterator[str]]
BY_NAME: dict[str, Names] = {
    "routine": _routines,
    "ref": _routines,
    "subject": _subjects,
    "subjects": _subjects,
}
"""What parameters of these names are."""


@command("completion")
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
