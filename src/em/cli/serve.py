"""`em serve`: the HTTP service."""

import click
import msgspec

from em.cli.options import everywhere
from em.serve.server import serve
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
def command(ctx: click.Context, host: str | None, port: int | None) -> int:
    """Serve the memory: pages at /ui, and a JSON API described at /docs.

    The log goes to standard error; `em ui` opens the pages in a browser.

    Other machines are served only with EM_API_TOKEN set; docs/service.md has the settings.
    """
    settings = Settings.load()
    given = {"host": host, "port": port}
    api = msgspec.structs.replace(
        settings.api, **{name: value for name, value in given.items() if value is not None}
    )
    return serve(ctx.obj["db"], msgspec.structs.replace(settings, api=api))
