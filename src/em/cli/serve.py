"""`em serve`: the HTTP service."""

import json
import os
import sys
import threading
import urllib.error
import urllib.request
import webbrowser

import click
import msgspec

from em.cli.options import everywhere, open_memory
from em.cli.output import only_results_on_stdout, print_json
from em.errors import MissingExtra
from em.runner.tools import ToolRegistry
from em.serve.auth import Caller
from em.serve.server import serve as run_service
from em.settings import Settings


@click.command("serve")
@click.option("--host", help="Where to listen.  [EM_API_HOST, em.yaml, else 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="0 takes a free one; the log says which.  [EM_API_PORT, em.yaml, else 8765]",
)
@everywhere
@click.pass_context
def serve(ctx: click.Context, host: str | None, port: int | None) -> int:
    """Serve the memory: pages at /ui, and a JSON API described at /docs.

    The log goes to standard error; `em ui` opens the pages in a browser.

    Other machines are served only with EM_API_TOKEN set; docs/service.md has the settings.
    """
    settings = Settings.load()
    given = {"host": host, "port": port}
    api = msgspec.structs.replace(
        settings.api, **{name: value for name, value in given.items() if value is not None}
    )
    return run_service(ctx.obj["db"], msgspec.structs.replace(settings, api=api))


@click.command("ui")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="0 takes a free one.  [EM_API_PORT, em.yaml, else 8765]",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@everywhere
@click.pass_context
def ui(ctx: click.Context, port: int | None, no_browser: bool) -> int:
    """Open the pages of the memory in a browser, and print their address.

    A service that runs there already is used, with the memory that it serves. Else one is started
    and runs until Ctrl-C. Where there is no browser, the address is only printed.
    """
    settings = Settings.load()
    api = settings.api if port is None else msgspec.structs.replace(settings.api, port=port)

    def show(host: str, port: int, *, started: bool = True) -> None:
        url = f"http://{_reachable(host)}:{port}/ui"
        if ctx.obj["json"]:
            print_json({"url": url, "started": started})
        else:
            click.echo(url)
        sys.stdout.flush()
        if not no_browser and _has_browser():
            # In a thread: some browsers are waited for until they are closed.
            opening = threading.Thread(target=webbrowser.open, args=(url,), daemon=True)
            opening.start()
            if not started:
                opening.join(10)

    if api.port and _is_ours(f"http://{_reachable(api.host)}:{api.port}/health"):
        show(api.host, api.port, started=False)
        return 0
    return run_service(ctx.obj["db"], msgspec.structs.replace(settings, api=api), on_listening=show)


def _reachable(host: str) -> str:
    """The host as a browser on this machine reaches it."""
    here = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - to be replaced
    return f"[{here}]" if ":" in here and not here.startswith("[") else here


def _is_ours(health: str) -> bool:
    """Whether a service of ours answers there."""
    try:
        with urllib.request.urlopen(health, timeout=2) as answer:  # noqa: S310 - made of our settings
            told = json.load(answer)
    except (urllib.error.URLError, OSError, ValueError):
        return False
    return isinstance(told, dict) and {"status", "store", "version"} <= told.keys()


def _has_browser() -> bool:
    """Whether a window can open; a browser for terminals would take this one."""
    windowless = sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER")
    )
    try:
        return not windowless and webbrowser.get() is not None
    except webbrowser.Error:
        return False


@click.command("mcp")
@click.option("--tools", metavar="MODULE|FILE", help="Tools that the routines may call.")
@click.option("--read-only", is_flag=True, help="Nothing is observed, and no routine is run.")
@click.option(
    "--subject", "subjects", multiple=True, help="Only this subject is served; may be repeated."
)
@everywhere
@click.pass_context
def mcp(ctx: click.Context, tools: str | None, read_only: bool, subjects: tuple[str, ...]) -> None:
    """Serve the memory to an agent that starts this command: recall, brief, observe, and more.

    Every routine that is kept is a tool of its own. What routines may use is what em.yaml allows.
    Over HTTP, `em serve` has the same at /mcp. docs/mcp.md says how to add it to an agent.
    """
    try:
        from em.serve.mcp.server import serve_stdio
    except ImportError:
        raise MissingExtra("mcp", "the MCP server") from None
    caller = Caller("local", frozenset(subjects) or None, "read" if read_only else "write")
    with only_results_on_stdout():
        registry = ToolRegistry.load(tools) if tools else None
    memory = open_memory(ctx, create=True)
    if sys.stdin.isatty():
        click.echo("MCP on standard input and output; an agent starts this. Ctrl-C ends", err=True)
    serve_stdio(memory, Settings.load(), caller, registry)
