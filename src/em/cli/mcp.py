"""`em mcp`: the memory as an MCP server over standard input and output."""

import sys

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import only_results_on_stdout
from em.errors import MissingExtra
from em.runner.tools import ToolRegistry
from em.serve.auth import Caller
from em.settings import Settings


@click.command("mcp")
@click.option("--tools", metavar="MODULE|FILE", help="Tools that the routines may call.")
@click.option("--read-only", is_flag=True, help="Nothing is observed, and no routine is run.")
@click.option(
    "--subject", "subjects", multiple=True, help="Only this subject is served; may be repeated."
)
@everywhere
@click.pass_context
def command(
    ctx: click.Context, tools: str | None, read_only: bool, subjects: tuple[str, ...]
) -> None:
    """Serve the memory to an agent that starts this command: recall, brief, observe, and more.

    Every routine that is kept is a tool of its own. What routines may use is what em.yaml allows.
    Over HTTP, `em serve` has the same at /mcp. docs/mcp.md says how to add it to an agent.
    """
    try:
        from em.serve.mcp.stdio import serve_stdio
    except ImportError:
        raise MissingExtra("mcp", "the MCP server") from None
    caller = Caller("local", frozenset(subjects) or None, "read" if read_only else "write")
    with only_results_on_stdout():
        registry = ToolRegistry.load(tools) if tools else None
    memory = open_memory(ctx, create=True)
    if sys.stdin.isatty():
        click.echo("MCP on standard input and output; an agent starts this. Ctrl-C ends", err=True)
    serve_stdio(memory, Settings.load(), caller, registry)
