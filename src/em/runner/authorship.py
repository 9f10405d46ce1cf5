"""Who wrote the code of a package: `written_by.json` marks what a model wrote, by its hash.

The mark travels with the package and can only take rights away: code with a mark runs in the
sandbox. Also where its hash is another one by now (somebody changed the file, and nothing says who)
or the mark can't be read. What gives rights, that a person has read the code, is kept on that
person's side (`trust.py`) and never in the package.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from em.errors import RoutineError, UsageError
from em.log.event import Draft
from em.log.kinds import event_body
from em.values.canonical import Json

WRITTEN_BY = "written_by.json"


class Mark(msgspec.Struct, frozen=True):
    """One file that a model wrote: its hash then, and which model."""

    sha256: str
    by: str = "model"
    model: str = ""


def code_hash(code: bytes) -> str:
    """The hash by which a piece of code is known."""
    return hashlib.sha256(code).hexdigest()


def render_marks(files: dict[str, bytes], model: str) -> str:
    """The text of `written_by.json` for files that a model wrote."""
    marks = {name: Mark(sha256=code_hash(code), model=model) for name, code in files.items()}
    return msgspec.json.format(msgspec.json.encode(marks), indent=2).decode() + "\n"


def is_model_written(folder: Path, name: str) -> bool:
    """Whether a file of a package is marked. A mark that can't be read counts for every file."""
    try:
        text = (folder / WRITTEN_BY).read_bytes()
    except FileNotFoundError:
        return os.path.lexists(folder / WRITTEN_BY)  # a link that leads nowhere
    except OSError:
        return True
    try:
        return name in read_marks(text)
    except RoutineError:
        return True


def model_of(folder: Path, name: str) -> str:
    """Which model wrote a file of a package, as its mark says."""
    try:
        marks = read_marks((folder / WRITTEN_BY).read_bytes())
    except (OSError, RoutineError):
        return ""
    return marks[name].model if name in marks else ""


def runs_in_sandbox(path: Path, code: bytes) -> bool:
    """Whether this is a model's code that no person has read."""
    if not any(is_model_written(file.parent, file.name) for file in {path, path.resolve()}):
        return False
    from em.runner.trust import is_trusted

    return not is_trusted(code_hash(code))


def refuse_unread(path: Path, code: bytes) -> None:
    """What a model wrote and no person has read is not loaded into this process."""
    if runs_in_sandbox(path, code):
        raise UsageError(
            "a model wrote this and nobody has read it: it can't be loaded into this process",
            place=str(path),
            fix=f"read it, then say so: em trust {path.resolve().parent}",
        )


def read_marks(text: bytes | str) -> dict[str, Mark]:
    """The marks that `written_by.json` holds."""
    try:
        return msgspec.json.decode(text, type=dict[str, Mark])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RoutineError(
            f"it can't be read, so nobody knows what a model wrote here: {error}",
            place=WRITTEN_BY,
            fix="put the one back that em wrote",
        ) from None


def code_notes(
    files: Mapping[str, str], routine: str, from_events: Sequence[str] = ()
) -> list[Draft]:
    """What the log is told of the files of a package that a model wrote."""
    notes = []
    for name, mark in read_marks(files.get(WRITTEN_BY, "{}")).items():
        if name not in files:
            raise RoutineError(
                f"it marks {name!r}, which the package does not have",
                place=WRITTEN_BY,
                fix="put the file back, or take its mark away",
            )
        sha256 = code_hash(files[name].encode())
        body: Json = {"file": name, "sha256": sha256, "model": mark.model, "routine": routine}
        if from_events:
            body["from_events"] = list(from_events)
        notes.append(Draft(stream=f"code/{sha256}", kind="code_written", body=body))
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
    """A person said that they have read this code. A record of it; it gives no rights."""

    file: str
    sha256: str
    size: int = 0


@event_body("code_distrusted")
class CodeDistrusted(msgspec.Struct, frozen=True):
    """A person took back that they trust this code."""

    file: str
    sha256: str
