"""Completion: what the TAB key offers, in bash, zsh and fish, with names out of the memory."""

import warnings
from collections.abc import Callable

import click
from click.shell_completion import CompletionItem, get_completion_class

from em.cli.command import command
from em.errors import EmError

SHELLS = ("bash", "zsh", "fish")
MOST = 200
"""Names that are offered at once."""


def offered(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names in the memory that begin as typed. A memory that can't be read has none."""
    is_argument = isinstance(param, click.Argument)
    what = BY_NAME.get(param.name or "")
    if param.name == "name" and is_argument:
        what = _workflows if ctx.command_path.startswith("em workflow ") else _routines
    try:
        with warnings.catch_warnings(action="ignore"):
            names = what(ctx) if what else ()
            found = [name for name in names if name.startswith(incomplete)]
    except (EmError, OSError):
        # A message would stand in the middle of what the person types.
        return []
    return [CompletionItem(name) for name in found[:MOST]]


def _routines(ctx: click.Context) -> list[str]:
    from em.memory import Memory
    from em.runner.package import kept_routines

    with Memory(ctx.obj["db"], create=False) as memory:
        kept = [one for one in kept_routines(memory.store) if one.body is not None]
        return [*dict.fromkeys(one.name for one in kept if one.retired_at is None)]


def _subjects(ctx: click.Context) -> list[str]:
    from em.memory import Memory
    from em.state.subjects import subjects_of

    with Memory(ctx.obj["db"], create=False) as memory:
        return [*subjects_of(memory.store)]


def _workflows(ctx: click.Context) -> list[str]:
    from em.workflows.definition import WorkflowFile

    return [*WorkflowFile(ctx.params.get("file")).values()]


BY_NAME: dict[str, Callable[[click.Context], list[str]]] = {
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
