"""`em serve`: serve the memory over HTTP, and open its pages in a browser."""

import json
import os
import sys
import threading
import urllib.error
import urllib.request
import webbrowser

import click
import msgspec

from em.cli.command import command
from em.cli.options import database
from em.cli.output import emit
from em.serve.server import serve as run_service
from em.settings import Settings


@command("serve")
@click.option("--host", help="The address to listen on.  [EM_API_HOST, em.yaml, else 127.0.0.1]")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="0 chooses a free port, which is logged.  [EM_API_PORT, em.yaml, else 8765]",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="How many processes serve.  [EM_API_WORKERS, em.yaml, else 1]",
)
@click.option("--open", "opens", is_flag=True, help="Open the pages in a browser.")
def serve(host: str | None, port: int | None, workers: int | None, opens: bool) -> int:
    """Serve the memory over HTTP: web pages at /ui, and a JSON API described at /docs.

    Requests are logged on standard error. Other machines are served only if EM_API_TOKEN is set;
    see docs/service.md. --open prints the address of the pages and opens them in a browser; where
    a service runs at this port already, that one is used, with the memory that it serves.

    SIGTERM finishes the requests under way, then stops. With several --workers, SIGHUP replaces the
    processes one by one, with the code and settings of now.
    """
    settings = Settings.load()
    given = {"host": host, "port": port, "workers": workers}
    api = msgspec.structs.replace(
        settings.api, **{name: value for name, value in given.items() if value is not None}
    )
    settings = msgspec.structs.replace(settings, api=api)
    if not opens:
        return run_service(database(), settings)
    if api.port and _is_ours(f"http://{_reachable(api.host)}:{api.port}/health"):
        _show_pages(api.host, api.port, started=False)
        return 0
    return run_service(database(), settings, on_listening=_show_pages)


def _show_pages(host: str, port: int, *, started: bool = True) -> None:
    """Print the address of the pages, and open them if there is a browser."""
    url = f"http://{_reachable(host)}:{port}/ui"
    emit({"url": url, "started": started}, url)
    sys.stdout.flush()
    if _has_browser():
        # In a thread: with some browsers, open() returns only when the window is closed.
        opening = threading.Thread(target=webbrowser.open, args=(url,), daemon=True)
        opening.start()
        if not started:
            opening.join(10)


def _reachable(host: str) -> str:
    """Return the host as a browser on this machine must name it."""
    here = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - to be replaced
    return f"[{here}]" if ":" in here and not here.startswith("[") else here


def _is_ours(health: str) -> bool:
    """Return whether an em service answers at this address."""
    try:
        with urllib.request.urlopen(health, timeout=2) as answer:  # noqa: S310 - made of our settings
            health_report = json.load(answer)
    except (urllib.error.URLError, OSError, ValueError):
        return False
    return isinstance(health_report, dict) and {"status", "store", "version"} <= set(health_report)


def _has_browser() -> bool:
    """Return whether a browser window can open. A browser in this terminal does not count."""
    windowless = sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER")
    )
    try:
        return not windowless and webbrowser.get() is not None
    except webbrowser.Error:
        return False
