"""`em traces secrets`: which secrets stand in transcripts on this disk."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from em.cli.command import command
from em.cli.output import count, emit, note, print_table, printable, progress
from em.errors import InputError, UsageError
from em.settings import Settings

if TYPE_CHECKING:
    from em.clients.exposure import Progress, SearchedFile
    from em.redaction.redactor import Redactor


@command("secrets")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--redact", is_flag=True, help="Also write copies without the secrets.")
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder of the copies.  [redacted]",
)
def secrets(paths: tuple[str, ...], redact: bool, output: Path | None) -> None:
    """List the secrets in transcripts by file and kind, without showing or storing them.

    PATH is a file, a folder or a pattern; by default where Claude Code, Codex, opencode and pi keep
    their sessions. Nothing is imported, and no file is changed: `--redact` writes copies of those
    that have secrets. What is found is no longer secret to whoever reads these files: revoke it.
    """
    from em.clients.exposure import places
    from em.store import redactor_of
    from em.traces.transcripts import files_in, total_size

    if output is not None and not redact:
        raise UsageError("-o is the folder of the copies", place="-o", fix="add --redact")
    chosen = [*paths] or [*map(str, places())]
    files = [*files_in(chosen)]
    folder = (output or Path("redacted")) if redact else None
    if folder is not None and folder.exists():
        raise UsageError(
            "this folder exists, and copies replace nothing",
            place=str(folder),
            fix="name a new folder with -o, or remove it",
        )
    redactor = redactor_of(Settings.load(tells=False))
    with progress("looking", total_size(chosen), unit_bytes=True) as advance:
        looked = [_look(path, named, folder, redactor, advance) for path, named in files]
    rows = [
        (one.path, found.kind, f"{found.different:,}", f"{found.times:,}", f"{found.line:,}")
        for one in looked
        for found in one.found
    ]

    def text() -> None:
        if rows:
            print_table(("file", "kind", "different", "times", "first line"), rows)
        _print_totals(looked, chosen, redact=redact)

    emit({"files": [msgspec.to_builtins(one) for one in looked if _is_telling(one)],
          "looked_at": len(looked)}, text)  # fmt: skip


def _look(
    path: Path, named: bool, folder: Path | None, redactor: "Redactor", advance: "Progress"
) -> "SearchedFile":
    """Look at a file, and write its copy. One that can't be read is an error if it was named."""
    from em.clients.exposure import SearchedFile, look, place_of_copy, write_copy
    from em.redaction.masker import Echoes
    from em.values.files import shown

    echoes = Echoes()
    try:
        looked = look(path, redactor, echoes, advance)
    except InputError as error:
        if named:
            raise
        return SearchedFile(path=shown(path), skipped=error.message)
    if folder is None or not looked.found:
        return looked
    copy = place_of_copy(path, folder)
    write_copy(path, copy, redactor, echoes)
    return msgspec.structs.replace(looked, copy=shown(copy))


def _is_telling(one: "SearchedFile") -> bool:
    return bool(one.found or one.skipped)


def _print_totals(looked: "Sequence[SearchedFile]", chosen: Sequence[str], *, redact: bool) -> None:
    for one in looked:
        if one.skipped:
            note(f"{printable(one.path)}: {one.skipped}")
        if one.copy:
            click.echo(f"{printable(one.path)} -> {printable(one.copy)}")
    having = [one for one in looked if one.found]
    where = ", ".join(map(printable, chosen)) or "the folders of coding agents"
    click.echo(f"{len(having):,} of {count(len(looked), 'file')} in {where} with secrets")
    if having and not redact:
        click.echo(
            "revoke what is still valid; `em traces secrets --redact` writes copies without them"
        )
