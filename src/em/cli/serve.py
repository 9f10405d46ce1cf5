"""`em serve`, `em ui`: serve the memory over HTTP and in a browser."""

import json
import os
import sys
import threading
import urllib.error
import urllib.request
import webbrowser

import click
import msgspec

from em.cli.options import database, everywhere
from em.cli.output import emit
from em.serve.server import serve as run_service
from em.settings import Settings


@click.command("serve")
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
@everywhere
def serve(host: str | None, port: int | None, workers: int | None) -> int:
    """Serve the memory over HTTP: web pages at /ui, and a JSON API described at /docs.

    Requests are logged on standard error. `em ui` opens the pages in a browser. Other machines are
    served only if EM_API_TOKEN is set; see docs/service.md.

    SIGTERM finishes the requests under way, then stops. With several --workers, SIGHUP replaces the
    processes one by one, with the code and settings of now; no request is lost.
    """
    settings = Settings.load()
    given = {"host": host, "port": port, "workers": workers}
    api = msgspec.structs.replace(
        settings.api, **{name: value for name, value in given.items() if value is not None}
    )
    return run_service(database(), msgspec.structs.replace(settings, api=api))


@click.command("ui")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="0 chooses a free port.  [EM_API_PORT, em.yaml, else 8765]",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@everywhere
def ui(port: int | None, no_browser: bool) -> int:
    """Open the memory in a browser, and print its address.

    If a service already runs at this port, it is used, with the memory that it serves. Otherwise
    one is started and runs until Ctrl-C. Without a browser, only the address is printed.
    """
    settings = Settings.load()
    api = settings.api if port is None else msgspec.structs.replace(settings.api, port=port)

    def show(host: str, port: int, *, started: bool = True) -> None:
        url = f"http://{_reachable(host)}:{port}/ui"
        emit({"url": url, "started": started}, url)
        sys.stdout.flush()
        if not no_browser and _has_browser():
            # In a thread: with some browsers, open() returns only when the window is closed.
            opening = threading.Thread(target=webbrowser.open, args=(url,), daemon=True)
            opening.start()
            if not started:
                opening.join(10)

    if api.port and _is_ours(f"http://{_reachable(api.host)}:{api.port}/health"):
        show(api.host, api.port, started=False)
        return 0
    return run_service(database(), msgspec.structs.replace(settings, api=api), on_listening=show)


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
