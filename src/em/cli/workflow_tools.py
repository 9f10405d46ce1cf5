"""`--tools`: Python functions that workflows may call."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from em.cli.output import only_results_on_stdout
from em.runner.tools import ToolRegistry

F = TypeVar("F", bound=Callable[..., Any])


def with_tools(command: F) -> F:
    """Take `--tools`."""
    return click.option("--tools", metavar="MODULE|FILE", help="Python functions as tools.")(
        command
    )


def load_tools(source: str | None) -> ToolRegistry | None:
    """The functions that `--tools` names."""
    with only_results_on_stdout():
        return ToolRegistry.load(source) if source else None
