"""What a person trusts: code and the em.yaml of a folder by their hashes, and databases.

Trust lies with the person's account, never in a package, a folder or a database: what comes from
elsewhere can't bring it along.
"""

import hashlib
import os
import re
import stat
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from em.errors import UntrustedDatabase, UsageError
from em.values.files import path_from_text, path_to_text, shown

FOLDERS = "EM_TRUSTED_FOLDERS"
"""The variable with folders that are trusted with all below them, whatever they hold."""
DATABASES = "EM_TRUSTED_DATABASES"
"""The variable with databases that are trusted: ids, paths or addresses, separated by commas."""
MANY = 1_000
"""With more entries than this, those of databases that are gone are removed."""


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


def is_in_trusted_folder(place: Path) -> bool:
    """Return whether EM_TRUSTED_FOLDERS names this place, or a folder above it."""
    place = place.resolve()
    return any(
        os.path.isabs(known) and place.is_relative_to(Path(known).resolve())
        for known in os.environ.get(FOLDERS, "").split(os.pathsep)
    )


_made_here: set[str] = set()
"""Databases that this process made: they count though the list can't be written."""


class Database(msgspec.Struct, frozen=True):
    """A database: the id that em gave it, and its path or address. One in memory has no id.

    Both count: a copy that went through other hands comes back to another place.
    """

    id: str
    place: str

    @property
    def hash(self) -> str:
        """What stands for it in the list of what a person trusts."""
        return content_hash(f"database\n{self.id}\n{self.place}".encode(errors="surrogateescape"))

    @property
    def is_trusted(self) -> bool:
        """Whether the person of this account trusts it, or em made it for them."""
        if not self.id or self.hash in _made_here:
            return True
        for name in filter(None, os.environ.get(DATABASES, "").split(",")):
            if name == self.id or _place(name) == self.place:
                return True
        if "://" not in self.place and is_in_trusted_folder(Path(self.place)):
            return True
        return is_trusted(self.hash)

    def trust(self) -> Trusted:
        """Put it on the list."""
        return trust(self.hash, self.place, 0)

    def note_as_own(self) -> None:
        """Put a database that em has just made on the list."""
        _made_here.add(self.hash)
        try:
            self.trust()
            _drop_gone()
        except OSError:
            return  # no home to write to: it counts for this process only

    def refuse_code(self, what: str) -> None:
        """Raise UntrustedDatabase, unless code that comes from the database may run."""
        if not self.is_trusted:
            raise UntrustedDatabase(
                f"{what} did not run: this memory is not on your list of memories, so what it"
                " holds counts as data",
                place=shown(self.place),
                fix=f"if it is yours, run: em trust --memory --db {shown(self.place)}",
            )


def _place(name: str) -> str:
    """Return a path or an address as `Database.place` has it: absolute; without a password."""
    if "://" in name:
        return re.sub(r"(://[^:/@]*):[^/@]*@", r"\1@", name.partition("?")[0])
    return str(Path(name).expanduser().resolve())


def _drop_gone() -> None:
    """Remove the entries of databases whose files are gone, once there are many entries."""
    files = list(trust_folder().glob("*.json"))
    if len(files) > MANY:
        for file in files:
            path = _path_of(file)
            if path.endswith(".db") and not os.path.exists(path_from_text(path)):
                file.unlink(missing_ok=True)


def trust(sha256: str, path: Path | str, size: int) -> Trusted:
    """Store that a person trusts what has this hash."""
    folder = trust_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    where = path_to_text(path if isinstance(path, str) else path.resolve())
    entry = Trusted(path=where, size=size, at=datetime.now(UTC).isoformat())
    unfinished = folder / f".{sha256}.{os.getpid()}"
    unfinished.touch(mode=0o600)
    unfinished.write_bytes(msgspec.json.encode(entry))
    unfinished.replace(folder / f"{sha256}.json")
    return entry


def revoke(sha256: str, path: Path | str) -> list[str]:
    """Stop trusting this and everything trusted at this path; return the hashes."""
    gone = []
    where = path_to_text(path if isinstance(path, str) else path.resolve())
    for file in sorted(trust_folder().glob("*.json")):
        if file.stem == sha256 or _path_of(file) == where:
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
