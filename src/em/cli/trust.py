"""`em trust`: a person has read the code that a model wrote."""

import sys
from pathlib import Path
from typing import Any

import click

from em.cli.options import everywhere, open_memory
from em.cli.output import print_json
from em.errors import NotFound, UsageError
from em.log.stream import code_stream
from em.runner.authorship import code_hash, is_model_written, revoke, trust
from em.runner.package import UDF
from em.values.canonical import Json


@click.command("trust")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False))
@click.option("--revoke", "taken_back", is_flag=True, help="Take it back.")
@click.option("--yes", is_flag=True, help="Don't ask: you have read it elsewhere.")
@everywhere
@click.pass_context
def command(ctx: click.Context, folder: str, taken_back: bool, yes: bool) -> int:
    """Show the functions of the routine in DIR, and remember that you have read them.

    Code that a model wrote runs in the sandbox until then. What is remembered is its hash, in a
    folder of yours outside of DIR: a change of the code, or another person's machine, needs trust
    of its own.
    """
    path = Path(folder) / UDF
    try:
        code = path.read_bytes()
    except OSError as error:
        raise UsageError(f"it can't be read: {error.strerror}", place=str(path)) from None
    facts: Json = {
        "file": str(path.resolve()),
        "sha256": code_hash(code),
        "size": len(code),
        "marked": is_model_written(path.parent, UDF),
    }
    if taken_back:
        gone = revoke(facts["sha256"], path)
        for sha256 in gone:
            _log(ctx, "code_distrusted", {"file": facts["file"], "sha256": sha256})
        return _tell(
            ctx, {**facts, "revoked": gone}, "taken back" if gone else "it was not trusted"
        )
    if not yes and not _confirmed(code, facts, as_json=ctx.obj["json"]):
        click.echo("nothing was changed", err=True)
        return 1
    entry = trust(facts["sha256"], path, len(code))
    logged = {name: facts[name] for name in ("file", "sha256", "size")}
    _log(ctx, "code_trusted", logged)
    return _tell(ctx, {**facts, "trusted_at": entry.at}, "trusted: it runs in the process from now")


def _confirmed(code: bytes, facts: Json, *, as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise UsageError(
            "nobody can be asked here", place=facts["file"], fix="read it, and give --yes"
        )
    click.echo(_readable(code), err=True)
    whose = "" if facts["marked"] else " (nothing marks it as a model's: it is trusted anyway)"
    click.echo(f"{facts['file']}: {facts['size']:,} bytes, {facts['sha256']}{whose}", err=True)
    return click.confirm("Have you read it, and may it do what you may do?", err=True)


def _readable(code: bytes) -> str:
    """The code with nothing hidden: what a terminal would act on, or turn around, is escaped."""
    text = code.decode(errors="backslashreplace")
    shown = (char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    return "".join(shown)


def _log(ctx: click.Context, kind: str, body: Json) -> None:
    """Keep it in the memory's log too, if there is one."""
    try:
        memory = open_memory(ctx)
    except NotFound:
        return
    memory.log.append(code_stream(body["sha256"]), kind, body)


def _tell(ctx: click.Context, report: dict[str, Any], words: str) -> int:
    if ctx.obj["json"]:
        print_json(report)
    else:
        click.echo(f"{report['file']}: {words}")
    return 0
