"""An installation: the files that em adds to a program's settings, shown first, undone completely.

What was written is noted beside it. A file that nobody changed since is restored byte for byte, by
cutting out what was inserted; of a changed one only em's own parts are removed. Contents of a
person's files are not copied: they may have secrets.
"""

import difflib
import hashlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from em.clients.json_text import Insertion, insertions, value_of, with_insertions, without
from em.errors import EmError, InputError, NotFound, UsageError

NOTE = "installed-by-em.json"


class Edit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value that a JSON file must have at a path. item: append it to the list there."""

    path: tuple[str, ...]
    value: Any
    item: bool = False


class FileEdit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is done to one file: it is created with a text, or texts are inserted into it.

    edits: the values that a JSON file gets. after: a digest of the file as em leaves it.
    comments: a JSON file that may have comments.
    """

    path: str
    created: bool
    after: str
    insertions: Sequence[Insertion] = ()
    edits: Sequence[Edit] = ()
    skeleton: str = ""
    comments: bool = False


class Note(msgspec.Struct, frozen=True):
    """What an installation did, noted so that it can be undone."""

    client: str
    files: Sequence[FileEdit]
    folders: Sequence[str]
    socket: str = ""


class Change(msgspec.Struct, frozen=True):
    """A file before and after. None: there is no such file."""

    path: Path
    before: str | None
    after: str | None

    def diff(self) -> str:
        """Return the change as a unified diff."""
        old = "/dev/null" if self.before is None else str(self.path)
        new = "/dev/null" if self.after is None else str(self.path)
        lines = difflib.unified_diff(
            (self.before or "").splitlines(), (self.after or "").splitlines(), old, new, lineterm=""
        )
        return "\n".join(lines)


class Installation:
    """The files of an installation, collected before anything is written.

    home: em's own folder in the program's settings; the note is stored there.
    socket: where the service of its hooks listens.
    leftovers: folders that the program makes for em, removed with the rest if they are empty.
    """

    def __init__(self, client: str, home: Path, socket: str) -> None:
        self.client, self.home, self.socket = client, home, socket
        self._files: list[FileEdit] = []
        self.changes: list[Change] = []
        self.leftovers: list[Path] = []

    def create(self, path: Path, text: str) -> None:
        """Add a file of em's own."""
        if path.exists():
            raise UsageError("this file exists, and em did not write it", place=str(path))
        self._files.append(FileEdit(str(path), True, _digest(text)))
        self.changes.append(Change(path, None, text))

    def edit(
        self, path: Path, edits: Sequence[Edit], skeleton: Any = None, *, comments: bool = False
    ) -> None:
        """Add values to a JSON file; `skeleton` is the file where there is none.

        comments: its program allows comments in it.
        """
        before = _read(path)
        start = msgspec.json.encode({} if skeleton is None else skeleton).decode()
        text = msgspec.json.format(start, indent=2) + "\n" if before is None else before
        if not text.strip():
            raise UsageError("the file is empty", place=str(path), fix="remove it, or write {}")
        made: list[Insertion] = []
        for edit in edits:
            try:
                more = insertions(text, edit.path, edit.value, item=edit.item, comments=comments)
            except InputError as error:
                raise UsageError(
                    error.message,
                    place=str(path),
                    fix=f"add {'.'.join(edit.path)} by hand, or correct the file",
                ) from None
            made += more
            text = with_insertions(text, more)
        self._add(path, before, text, made, edits=edits, skeleton=start, comments=comments)

    def insert(self, path: Path, made: Sequence[Insertion]) -> None:
        """Insert texts into a file, each at its place after the ones before it."""
        before = _read(path)
        self._add(path, before, with_insertions(before or "", made), made)

    def _add(
        self,
        path: Path,
        before: str | None,
        after: str,
        made: Sequence[Insertion],
        *,
        edits: Sequence[Edit] = (),
        skeleton: str = "",
        comments: bool = False,
    ) -> None:
        if after == before:
            return
        created = before is None
        file = FileEdit(
            str(path), created, _digest(after), [*made], [*edits], skeleton, comments=comments
        )
        self._files.append(file)
        self.changes.append(Change(path, before, after))

    def apply(self) -> None:
        """Write everything, the note first: also half an installation can be undone."""
        folders = sorted({*self._new_folders(), *map(str, self.leftovers)})
        note = Note(self.client, self._files, folders, self.socket)
        _write(self.home / NOTE, msgspec.json.format(msgspec.json.encode(note), indent=1).decode())
        for change in self.changes:
            assert change.after is not None
            _write(change.path, change.after)

    def _new_folders(self) -> Iterator[str]:
        for path in [self.home / NOTE, *(change.path for change in self.changes)]:
            for folder in path.parents:
                if folder.exists():
                    break
                yield str(folder)


def is_installed(home: Path) -> bool:
    """Return whether an installation is noted in a folder."""
    return (home / NOTE).exists()


class Removal:
    """An installation that is to be undone: `changes` shows how, `apply` does it.

    left: the files of which em's part could not be found; nothing is done to them.
    """

    def __init__(self, home: Path) -> None:
        try:
            self._note = msgspec.json.decode((home / NOTE).read_bytes(), type=Note)
        except FileNotFoundError:
            raise NotFound("em is not installed there", place=str(home)) from None
        self._home = home
        self.changes: list[Change] = []
        self.left: list[Path] = []
        for file in self._note.files:
            self._plan(file)

    @property
    def socket(self) -> str:
        """Where the service of its hooks listens."""
        return self._note.socket

    def _plan(self, file: FileEdit) -> None:
        path = Path(file.path)
        before = _read(path)
        if before is None:
            return
        if _digest(before) == file.after:
            after = None if file.created else _cut(before, file.insertions)
        elif file.edits:
            after = self._without_edits(path, before, file)
        else:
            after = _cut_found(before, file.insertions)
            if after is None or (file.created and not file.insertions):
                self.left.append(path)
                return
        if after != before:
            self.changes.append(Change(path, before, after))

    def _without_edits(self, path: Path, text: str, file: FileEdit) -> str | None:
        """Return a JSON file without em's values, or None if nothing else is in it."""
        whole = text
        try:
            for edit in reversed(file.edits):
                text = without(text, edit.path, edit.value, item=edit.item, comments=file.comments)
            rest = value_of(text, comments=file.comments)
        except EmError:
            self.left.append(path)
            return whole
        skeleton = msgspec.json.decode(file.skeleton)
        empty = {name: value for name, value in skeleton.items() if value != {}}
        return None if file.created and rest in ({}, skeleton, empty) else text

    def apply(self) -> None:
        """Restore the files, and remove em's folders and its note."""
        for change in self.changes:
            if change.after is None:
                change.path.unlink(missing_ok=True)
            else:
                _write(change.path, change.after)
        (self._home / NOTE).unlink()
        for folder in sorted(self._note.folders, reverse=True):
            _remove_empty(Path(folder))


def _cut(text: str, made: Sequence[Insertion]) -> str:
    for one in reversed(made):
        text = text[: one.at] + text[one.at + len(one.text) :]
    return text


def _cut_found(text: str, made: Sequence[Insertion]) -> str | None:
    """Cut out insertions wherever they are now; None if one is not there exactly once."""
    for one in reversed(made):
        if text.count(one.text) != 1:
            return None
        text = text.replace(one.text, "")
    return text


def _remove_empty(folder: Path) -> None:
    for cache in folder.glob("__pycache__/*.pyc"):
        cache.unlink()
    try:
        if (folder / "__pycache__").is_dir():
            (folder / "__pycache__").rmdir()
        folder.rmdir()
    except OSError:
        return  # it has files of somebody else


def _read(path: Path) -> str | None:
    try:
        # newline="": the file's own line endings are kept.
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the file can't be read: {error}", place=str(path)) from None


def _write(path: Path, text: str) -> None:
    """Replace a file in one step, with its permissions; a link stays one."""
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".em-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
