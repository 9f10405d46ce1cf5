"""Who wrote the code of a package, and who has read it.

`written_by.json` in the package marks files that a model wrote. A mark only takes rights away:
marked code runs in the sandbox, also if its hash has changed since (nothing says who changed it) or
the mark can't be read. Trust gives rights: a person has read the code with this hash. It is stored
with that person's account, never in the package.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from em.errors import RoutineError, UsageError
from em.log.event import Draft, code_stream
from em.log.kinds import event_body
from em.trust import content_hash, is_trusted
from em.values.canonical import Json

WRITTEN_BY = "written_by.json"


class CodeMark(msgspec.Struct, frozen=True):
    """A mark on a file that a model wrote: its hash then, and which model."""

    sha256: str
    by: str = "model"
    model: str = ""


def render_marks(files: dict[str, bytes], model: str) -> str:
    """Return the text of `written_by.json` for files that a model wrote."""
    marks = {name: CodeMark(sha256=content_hash(code), model=model) for name, code in files.items()}
    return msgspec.json.format(msgspec.json.encode(marks), indent=2).decode() + "\n"


def is_model_written(folder: Path, name: str) -> bool:
    """Return whether a file of a package is marked. If the marks can't be read, every file is."""
    try:
        text = (folder / WRITTEN_BY).read_bytes()
    except FileNotFoundError:
        return os.path.lexists(folder / WRITTEN_BY)  # a broken link
    except OSError:
        return True
    try:
        return name in read_marks(text)
    except RoutineError:
        return True


def model_of(folder: Path, name: str) -> str:
    """Return which model wrote a file of a package, from its mark."""
    try:
        marks = read_marks((folder / WRITTEN_BY).read_bytes())
    except (OSError, RoutineError):
        return ""
    return marks[name].model if name in marks else ""


def runs_in_sandbox(path: Path, code: bytes) -> bool:
    """Return whether a model wrote this code and no person has read it."""
    if not any(is_model_written(file.parent, file.name) for file in {path, path.resolve()}):
        return False

    return not is_trusted(content_hash(code))


def refuse_unread(path: Path, code: bytes) -> None:
    """Raise if a model wrote this code and no person has read it."""
    if runs_in_sandbox(path, code):
        raise UsageError(
            "a model wrote this and no person has read it: it can't be loaded into this process",
            place=str(path),
            fix=f"read it, then run: em trust {path.resolve().parent}",
        )


def read_marks(text: bytes | str) -> dict[str, CodeMark]:
    """Parse the marks of a `written_by.json`."""
    try:
        return msgspec.json.decode(text, type=dict[str, CodeMark])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RoutineError(
            f"the marks of files that a model wrote can't be read: {error}",
            place=WRITTEN_BY,
            fix="restore the file that em wrote",
        ) from None


def code_notes(
    files: Mapping[str, str], routine: str, from_events: Sequence[str] = ()
) -> list[Draft]:
    """Return the events that record the files of a package that a model wrote."""
    notes = []
    for name, mark in read_marks(files.get(WRITTEN_BY, "{}")).items():
        if name not in files:
            raise RoutineError(
                f"it marks {name!r}, which is not in the package",
                place=WRITTEN_BY,
                fix="restore the file, or remove its mark",
            )
        sha256 = content_hash(files[name].encode())
        body: Json = {"file": name, "sha256": sha256, "model": mark.model, "routine": routine}
        if from_events:
            body["from_events"] = list(from_events)
        notes.append(Draft(stream=code_stream(sha256), kind="code_written", body=body))
    return notes


@event_body("code_written")
class CodeWritten(msgspec.Struct, frozen=True):
    """A model wrote code that a routine runs."""

    file: str
    sha256: str
    model: str = ""
    routine: str = ""
    from_events: list[str] = []


@event_body("code_trusted")
class CodeTrusted(msgspec.Struct, frozen=True):
    """A person declared that they have read this code. The event gives no rights."""

    file: str
    sha256: str
    size: int = 0


@event_body("code_distrusted")
class CodeDistrusted(msgspec.Struct, frozen=True):
    """A person no longer trusts this code."""

    file: str
    sha256: str
