"""Which code a person has read: kept on that person's side, by hash.

Neither in a package nor in a database: both may come from somebody else (`.em/em.db` lies in the
working folder, as does `em.yaml`). It is a folder of the user's own, one small file for each piece
of code; `XDG_DATA_HOME` moves it, nothing in a project can.
"""

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from em.errors import UsageError


class Trusted(msgspec.Struct, frozen=True):
    """A person has read this code: where it was, how long it was, and when."""

    path: str
    size: int
    at: str


def trust_folder() -> Path:
    """Where trust is kept: one file for each hash."""
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path("~/.local/share").expanduser()
    return base / "em" / "trusted"


def is_trusted(sha256: str) -> bool:
    """Whether a person of this account has read the code with this hash."""
    file = trust_folder() / f"{sha256}.json"
    try:
        found = [file.lstat(), file.parent.stat()]
    except (FileNotFoundError, NotADirectoryError):
        return False
    _check_owner(file, found)
    return stat.S_ISREG(found[0].st_mode)


def trust(sha256: str, path: Path, size: int) -> Trusted:
    """Remember that a person has read the code with this hash."""
    folder = trust_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    entry = Trusted(path=str(path.resolve()), size=size, at=datetime.now(UTC).isoformat())
    unfinished = folder / f".{sha256}.{os.getpid()}"
    unfinished.touch(mode=0o600)
    unfinished.write_bytes(msgspec.json.encode(entry))
    unfinished.replace(folder / f"{sha256}.json")
    return entry


def revoke(sha256: str, path: Path) -> list[str]:
    """Forget it, for this code and for whatever was trusted at this path; the hashes."""
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
                "others may write what says that you trust code",
                place=str(file.parent),
                fix=f"chmod -R go-w {file.parent}, after a look at what is in there",
            )
