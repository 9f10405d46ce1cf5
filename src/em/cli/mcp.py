"""`em mcp`: serve the memory to the agent that starts it. It imports little, to be ready soon."""

import sys
from importlib.util import find_spec

import click

from em.cli.command import command
from em.cli.options import load_tools, open_memory
from em.errors import MissingExtra
from em.serve.auth import Caller
from em.serve.mcp.handshake import serve_stdio
from em.settings import Settings


@command("mcp")
@click.option("--tools", metavar="MODULE|FILE", help="Python functions that routines may call.")
@click.option("--read-only", is_flag=True, help="Record no observations and run no routines.")
@click.option("--subject", "subjects", multiple=True, help="Serve only this subject. Repeatable.")
@click.option(
    "--beside-hooks",
    is_flag=True,
    help="List less: for an agent that `em install` gave hooks, which tell it lessons.",
)
def mcp(tools: str | None, read_only: bool, subjects: tuple[str, ...], beside_hooks: bool) -> None:
    """Serve the memory to the agent that starts this command: remember, ask, brief, and more.

    Routines in use are tools too. They may do what em.yaml allows. `em serve` has
    the same over HTTP at /mcp. docs/mcp.md explains how to add it to an agent.
    """
    if find_spec("mcp") is None:
        raise MissingExtra("mcp", "the MCP server")
    caller = Caller("local", frozenset(subjects) or None, "read" if read_only else "write")
    registry = load_tools(tools)
    memory = open_memory(create=True)
    if sys.stdin is not None and sys.stdin.isatty():
        click.echo(
            "MCP server on standard input and output, for agents to start; end with Ctrl-C",
            err=True,
        )
    serve_stdio(memory, Settings.load(), caller, registry, beside_hooks=beside_hooks)
