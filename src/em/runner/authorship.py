"""Who wrote the code of a package: `written_by.json` marks what a model wrote, by its hash.

The mark travels with the package and can only take rights away: code with a mark runs in the
sandbox. Also where its hash is another one by now (somebody changed the file, and nothing says who)
or the mark can't be read. What gives rights, that a person has read the code, is kept on that
person's side (`trust.py`) and never in the package.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from em.models.canonical import Json
from em.models.event import Draft

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
        return False
    except OSError:
        return True
    try:
        return name in msgspec.json.decode(text, type=dict[str, Mark])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return True


def code_notes(
    files: Mapping[str, str], routine: str, from_events: Sequence[str] = ()
) -> list[Draft]:
    """What the log is told of the files of a package that a model wrote."""
    marks = msgspec.json.decode(files.get(WRITTEN_BY, "{}"), type=dict[str, Mark])
    notes = []
    for name, mark in marks.items():
        sha256 = code_hash(files[name].encode())
        body: Json = {"file": name, "sha256": sha256, "model": mark.model, "routine": routine}
        if from_events:
            body["from_events"] = list(from_events)
        notes.append(Draft(stream=f"code/{sha256}", kind="code_written", body=body))
    return notes
