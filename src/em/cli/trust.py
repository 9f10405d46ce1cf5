"""`em trust`: code that a model wrote, the em.yaml of a folder, and a memory."""

import sys
from collections import Counter
from pathlib import Path

import click
import msgspec

from em.cli.command import command
from em.cli.options import open_memory
from em.cli.output import emit, note, wants_json
from em.errors import NotFound, UsageError
from em.log.event import code_stream
from em.runner.authorship import is_model_written
from em.runner.package import UDF
from em.settings import FILE, folder_hash, is_folder_trusted, named_settings
from em.trust import content_hash, revoke
from em.trust import trust as trust_content
from em.values.canonical import Json
from em.values.paths import path_to_text


@command("trust")
@click.argument(
    "package", metavar="[DIR]", required=False, type=click.Path(exists=True, file_okay=False)
)
@click.option(
    "--folder",
    metavar="PATH",
    type=click.Path(exists=True, file_okay=False),
    help="Trust the em.yaml of this folder instead of a routine's functions.",
)
@click.option(
    "--memory",
    "of_memory",
    is_flag=True,
    help="Trust the memory that --db, EM_DB or em.yaml names: code in it may run.",
)
@click.option("--revoke", "take_back", is_flag=True, help="Revoke the trust.")
@click.option("--yes", is_flag=True, help="Don't ask: you have read it elsewhere.")
def trust(
    package: str | None, folder: str | None, of_memory: bool, take_back: bool, yes: bool
) -> int:
    """Show what is to be trusted, and trust it after you have read it.

    With DIR: the functions of the routine in this folder. Code that a model wrote runs in the
    sandbox until it is trusted.

    With --folder: what the em.yaml of a folder names: addresses, variables, programs, code,
    databases. Until then em ignores these settings, and says so.

    With --memory: a memory that em has not made for you, or that was moved. Until then what it
    holds counts as data: classes and rules of states, and functions of routines, don't run.

    Trust is stored for the hash of what you have read, in your user folder and not in DIR: when it
    changes, or on another machine, it must be trusted again. In scripts, pass --yes, or set
    EM_TRUSTED_FOLDERS to folders whose em.yaml and memories always count, with all below them, or
    EM_TRUSTED_DATABASES to ids, paths or addresses of memories, separated by commas.

    \b
    Examples:
      em trust routines/refund
      em trust --folder .
      em trust --folder . --revoke
      em trust --memory --db .em/em.db
    """
    if sum((package is not None, folder is not None, of_memory)) != 1:
        raise UsageError(
            "name a routine's folder, or --folder PATH, or --memory", fix="em trust --folder ."
        )
    if of_memory:
        return _trust_memory(take_back, yes)
    if folder is not None:
        return _trust_folder(Path(folder), take_back, yes)
    return _trust_code(Path(str(package)) / UDF, take_back, yes)


def _trust_folder(folder: Path, take_back: bool, yes: bool) -> int:
    path = folder / FILE
    if not path.is_file():
        raise UsageError("there is no em.yaml", place=str(folder), fix="name its folder")
    facts: Json = {
        "file": str(path.resolve()),
        "sha256": folder_hash(folder),
        "settings": named_settings(folder),
    }
    if take_back:
        return _revoke(facts, path)
    if not facts["settings"]:
        emit(facts, f"{facts['file']}: it names nothing that needs trust")
        return 0
    if is_folder_trusted(folder):
        emit(facts, f"{facts['file']}: is trusted already")
        return 0
    shown = msgspec.yaml.encode(facts["settings"])
    question = "May em use these addresses, variables, programs, code and databases?"
    if not yes and not _confirmed(shown, facts["file"], facts["file"], question):
        note("nothing was changed")
        return 1
    entry = trust_content(facts["sha256"], path, path.stat().st_size)
    emit({**facts, "trusted_at": entry.at}, f"{facts['file']}: trusted until it changes")
    return 0


def _trust_memory(take_back: bool, yes: bool) -> int:
    store = open_memory().store
    database = store.database
    held = Counter(artefact.kind for artefact in store.artefacts())
    facts: Json = {"file": database.place, "sha256": database.hash, "id": database.id}
    facts["artefacts"] = dict(held)
    if take_back:
        return _revoke(facts, database.place)
    if database.is_trusted:
        emit(facts, f"{database.place}: is trusted already")
        return 0
    shown = "".join(f"{kind}: {number:,}\n" for kind, number in sorted(held.items()))
    question = "Is this memory yours, and may code that it holds do all that you may do?"
    if not yes and not _confirmed(shown.encode(), database.place, database.place, question):
        note("nothing was changed")
        return 1
    entry = database.trust()
    emit({**facts, "trusted_at": entry.at}, f"{database.place}: trusted in this place")
    return 0


def _trust_code(path: Path, take_back: bool, yes: bool) -> int:
    try:
        code = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"can't be read: {error.strerror}",
            place=str(path),
            fix="name the folder of a routine that has functions",
        ) from None
    facts: Json = {
        "file": str(path.resolve()),
        "sha256": content_hash(code),
        "size": len(code),
        "marked": is_model_written(path.parent, UDF),
    }
    if take_back:
        return _revoke(facts, path, logged=True)
    unmarked = "" if facts["marked"] else " (not marked as written by a model)"
    what = f"{facts['file']}: {facts['size']:,} bytes, {facts['sha256']}{unmarked}"
    question = "Have you read this code, and may it do all that you may do?"
    if not yes and not _confirmed(code, facts["file"], what, question):
        note("nothing was changed")
        return 1
    entry = trust_content(facts["sha256"], path, len(code))
    _log("code_trusted", {name: facts[name] for name in ("file", "sha256", "size")})
    emit(
        {**facts, "trusted_at": entry.at},
        f"{facts['file']}: trusted; it runs in em's process from now on",
    )
    return 0


def _revoke(facts: Json, path: Path | str, *, logged: bool = False) -> int:
    revoked = revoke(facts["sha256"], path)
    for sha256 in revoked if logged else ():
        _log("code_distrusted", {"file": facts["file"], "sha256": sha256})
    result = "no longer trusted" if revoked else "was not trusted"
    emit({**facts, "revoked": revoked}, f"{facts['file']}: {result}")
    return 0


def _confirmed(content: bytes, file: str, what: str, question: str) -> bool:
    if wants_json() or not sys.stdin.isatty():
        raise UsageError(
            "can't ask for confirmation here",
            place=file,
            fix="read the file, then pass --yes",
        )
    click.echo(_readable(content), err=True)
    note(what)
    return click.confirm(question, err=True)


def _readable(code: bytes) -> str:
    """Return the code with every character visible: control and bidi characters are escaped."""
    text = code.decode(errors="backslashreplace")
    shown = (char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    return "".join(shown)


def _log(kind: str, body: Json) -> None:
    """Append it to the memory's log too, if there is one."""
    try:
        memory = open_memory()
    except NotFound:
        return
    body |= {"file": path_to_text(body["file"])}
    memory.log.append(code_stream(body["sha256"]), kind, body)
