"""`em trust`: code that a model wrote, the em.yaml of a folder, and a memory."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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
from em.trust import Trusted, content_hash, revoke
from em.trust import trust as trust_content
from em.values.canonical import Json
from em.values.files import path_to_text


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
    """
    if sum((package is not None, folder is not None, of_memory)) != 1:
        raise UsageError(
            "name a routine's folder, or --folder PATH, or --memory", fix="em trust --folder ."
        )
    if of_memory:
        wanted = _memory()
    elif folder is not None:
        wanted = _em_yaml(Path(folder))
    else:
        wanted = _code(Path(str(package)) / UDF)
    facts, file = wanted.facts, wanted.facts["file"]
    if take_back:
        revoked = revoke(facts["sha256"], wanted.place)
        for sha256 in revoked if wanted.is_code else ():
            _log("code_distrusted", {"file": file, "sha256": sha256})
        result = "no longer trusted" if revoked else "was not trusted"
        emit({**facts, "revoked": revoked}, f"{file}: {result}")
        return 0
    if wanted.already:
        emit(facts, f"{file}: {wanted.already}")
        return 0
    if not yes and not _confirmed(wanted.shown, file, wanted.about or file, wanted.question):
        note("nothing was changed")
        return 1
    entry = wanted.trust()
    if wanted.is_code:
        _log("code_trusted", {name: facts[name] for name in ("file", "sha256", "size")})
    emit({**facts, "trusted_at": entry.at}, f"{file}: {wanted.result}")
    return 0


class _Wanted(NamedTuple):
    """What is to be trusted: what a person reads of it and is asked, and how it is done.

    already: why there is nothing to do; empty if there is. result: what it means once trusted.
    """

    facts: Json
    place: Path | str
    shown: bytes
    question: str
    trust: Callable[[], Trusted]
    result: str
    already: str = ""
    about: str = ""
    is_code: bool = False


def _em_yaml(folder: Path) -> _Wanted:
    path = folder / FILE
    if not path.is_file():
        raise UsageError("there is no em.yaml", place=str(folder), fix="name its folder")
    settings = named_settings(folder)
    sha256 = folder_hash(folder)
    known = "is trusted already" if is_folder_trusted(folder) else ""
    return _Wanted(
        {"file": str(path.resolve()), "sha256": sha256, "settings": settings},
        path,
        msgspec.yaml.encode(settings),
        "May em use these addresses, variables, programs, code and databases?",
        lambda: trust_content(sha256, path, path.stat().st_size),
        "trusted until it changes",
        already=known if settings else "it names nothing that needs trust",
    )


def _memory() -> _Wanted:
    store = open_memory().store
    database = store.database
    held = Counter(artefact.kind for artefact in store.artefacts())
    shown = "".join(f"{kind}: {number:,}\n" for kind, number in sorted(held.items()))
    return _Wanted(
        {
            "file": database.place,
            "sha256": database.hash,
            "id": database.id,
            "artefacts": dict(held),
        },
        database.place,
        shown.encode(),
        "Is this memory yours, and may code that it holds do all that you may do?",
        database.trust,
        "trusted in this place",
        already="is trusted already" if database.is_trusted else "",
    )


def _code(path: Path) -> _Wanted:
    try:
        code = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"can't be read: {error.strerror}",
            place=str(path),
            fix="name the folder of a routine that has functions",
        ) from None
    sha256, file = content_hash(code), str(path.resolve())
    is_marked = is_model_written(path.parent, UDF)
    unmarked = "" if is_marked else " (not marked as written by a model)"
    return _Wanted(
        {"file": file, "sha256": sha256, "size": len(code), "marked": is_marked},
        path,
        code,
        "Have you read this code, and may it do all that you may do?",
        lambda: trust_content(sha256, path, len(code)),
        "trusted; it runs in em's process from now on",
        about=f"{file}: {len(code):,} bytes, {sha256}{unmarked}",
        is_code=True,
    )


def _confirmed(content: bytes, file: str, what: str, question: str) -> bool:
    """Show a person what it is, with every control and bidi character escaped, and ask."""
    if wants_json() or not sys.stdin.isatty():
        fix = "read the file, then pass --yes"
        raise UsageError("can't ask for confirmation here", place=file, fix=fix)
    text = content.decode(errors="backslashreplace")
    shown = (char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    click.echo("".join(shown), err=True)
    note(what)
    return click.confirm(question, err=True)


def _log(kind: str, body: Json) -> None:
    """Append it to the memory's log too, if there is one."""
    try:
        memory = open_memory()
    except NotFound:
        return
    body |= {"file": path_to_text(body["file"])}
    memory.log.append(code_stream(body["sha256"]), kind, body)
