"""Who wrote the code of a package, and who has read it.

`written_by.json` in the package marks files that a model wrote. A mark only takes rights away:
marked code runs in the sandbox, also if its hash has changed since (nothing says who changed it) or
the mark can't be read. Trust gives rights: a person has read the code with this hash. It is stored
with that person's account, never in the package.
"""

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from em.errors import RoutineError, UsageError
from em.log.event import Draft, code_stream
from em.log.kinds import event_body
from em.values.canonical import Json

WRITTEN_BY = "written_by.json"


class Mark(msgspec.Struct, frozen=True):
    """A mark on a file that a model wrote: its hash then, and which model."""

    sha256: str
    by: str = "model"
    model: str = ""


def code_hash(code: bytes) -> str:
    """Return the hash that identifies a piece of code."""
    return hashlib.sha256(code).hexdigest()


def render_marks(files: dict[str, bytes], model: str) -> str:
    """Return the text of `written_by.json` for files that a model wrote."""
    marks = {name: Mark(sha256=code_hash(code), model=model) for name, code in files.items()}
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

    return not is_trusted(code_hash(code))


def refuse_unread(path: Path, code: bytes) -> None:
    """Raise if a model wrote this code and no person has read it."""
    if runs_in_sandbox(path, code):
        raise UsageError(
            "a model wrote this and no person has read it: it can't be loaded into this process",
            place=str(path),
            fix=f"read it, then run: em trust {path.resolve().parent}",
        )


def read_marks(text: bytes | str) -> dict[str, Mark]:
    """Parse the marks of a `written_by.json`."""
    try:
        return msgspec.json.decode(text, type=dict[str, Mark])
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
        sha256 = code_hash(files[name].encode())
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


class Trusted(msgspec.Struct, frozen=True):
    """A person has read this code: where it was, how long it was, and when."""

    path: str
    size: int
    at: str


def trust_folder() -> Path:
    """Return the folder that stores trust: one file for each hash."""
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path("~/.local/share").expanduser()
    return base / "em" / "trusted"


def is_trusted(sha256: str) -> bool:
    """Return whether the person of this account has read the code with this hash."""
    file = trust_folder() / f"{sha256}.json"
    try:
        found = [file.lstat(), file.parent.stat()]
    except (FileNotFoundError, NotADirectoryError):
        return False
    _check_owner(file, found)
    return stat.S_ISREG(found[0].st_mode)


def trust(sha256: str, path: Path, size: int) -> Trusted:
    """Store that a person has read the code with this hash."""
    folder = trust_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    entry = Trusted(path=str(path.resolve()), size=size, at=datetime.now(UTC).isoformat())
    unfinished = folder / f".{sha256}.{os.getpid()}"
    unfinished.touch(mode=0o600)
    unfinished.write_bytes(msgspec.json.encode(entry))
    unfinished.replace(folder / f"{sha256}.json")
    return entry


def revoke(sha256: str, path: Path) -> list[str]:
    """Stop trusting this code and everything trusted at this path; return the hashes."""
    gone = []
    for file in sorted(trust_folder().glob("*.json")):
        if file.stem == sha256 or _path_of(file) == str(path.resolve()):
            file.unlink(missing_ok=True)
            gone.append(file.stem)
    return gone


def _path_of(file: Path) -> str:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Trusted).path
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _check_owner(file: Path, found: list[os.stat_result]) -> None:
    for status in found:
        theirs = status.st_uid not in (os.geteuid(), 0)
        if theirs or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise UsageError(
                "other users can write to the folder that stores which code you trust",
                place=str(file.parent),
                fix=f"check its files, then run: chmod -R go-w {file.parent}",
            )
