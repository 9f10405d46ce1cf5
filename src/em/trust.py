"""What a person has read and trusts: code, and the em.yaml of a folder, each by its hash.

Trust lies with the person's account, never in a package or a folder: what comes from elsewhere
can't bring it along.
"""

import hashlib
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from em.errors import UsageError

FOLDERS = "EM_TRUSTED_FOLDERS"
"""The variable with folders that are trusted with all below them, whatever they hold."""


def content_hash(content: bytes) -> str:
    """Return the hash that identifies a piece of code, or another content."""
    return hashlib.sha256(content).hexdigest()


class Trusted(msgspec.Struct, frozen=True):
    """A person has read this: where it was, how long it was, and when."""

    path: str
    size: int
    at: str


def trust_folder() -> Path:
    """Return the folder that stores trust: one file for each hash."""
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path("~/.local/share").expanduser()
    return base / "em" / "trusted"


def is_trusted(sha256: str) -> bool:
    """Return whether the person of this account has read what has this hash."""
    file = trust_folder() / f"{sha256}.json"
    try:
        found = [file.lstat(), file.parent.stat()]
    except (FileNotFoundError, NotADirectoryError):
        return False
    _check_owner(file, found)
    return stat.S_ISREG(found[0].st_mode)


def trust(sha256: str, path: Path, size: int) -> Trusted:
    """Store that a person has read what has this hash."""
    folder = trust_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    entry = Trusted(path=str(path.resolve()), size=size, at=datetime.now(UTC).isoformat())
    unfinished = folder / f".{sha256}.{os.getpid()}"
    unfinished.touch(mode=0o600)
    unfinished.write_bytes(msgspec.json.encode(entry))
    unfinished.replace(folder / f"{sha256}.json")
    return entry


def revoke(sha256: str, path: Path) -> list[str]:
    """Stop trusting this and everything trusted at this path; return the hashes."""
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
                "other users can write to the folder that stores what you trust",
                place=str(file.parent),
                fix=f"check its files, then run: chmod -R go-w {file.parent}",
            )
