"""An installation: the files that em adds to a program's settings, shown first, undone completely.

What was written is noted beside it. A file that nobody changed since is restored byte for byte, by
cutting out what was inserted; of a changed one only em's own parts are removed. Contents of a
person's files are not copied: they may have secrets.

Skills are the only files that change later: `refresh_skills` writes them again, and notes it.
"""

import difflib
import fcntl
import hashlib
import os
import shlex
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
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
    comments: a JSON file that may have comments. is_skill: the file of a skill.
    """

    path: str
    created: bool
    after: str
    insertions: Sequence[Insertion] = ()
    edits: Sequence[Edit] = ()
    skeleton: str = ""
    comments: bool = False
    is_skill: bool = False


class Note(msgspec.Struct, frozen=True):
    """What an installation did, noted so that it can be undone.

    folders: those that em made. skills: the folder of the skills.
    """

    client: str
    files: Sequence[FileEdit]
    folders: Sequence[str]
    socket: str = ""
    skills: str = ""


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

    An earlier one is replaced: files are looked at as if it had been undone. `changes` is what then
    differs from the files that are there; it is empty if the same is installed already.

    home: em's own folder in the program's settings; the note is stored there.
    socket: where the service of its hooks listens.
    skills: where the program looks for skills.
    leftovers: folders that the program makes for em, removed with the rest if they are empty.
    """

    def __init__(self, client: str, home: Path, socket: str, skills: Path) -> None:
        self.client, self.home, self.socket, self.skills = client, home, socket, skills
        self._files: list[FileEdit] = []
        self._texts: dict[Path, str | None] = {}
        self.leftovers: list[Path] = []
        self.earlier = _read_note(home)
        """The note of the installation that this one replaces."""
        self._undone: dict[Path, str | None] = {}
        if self.earlier is not None:
            self._undo(self.earlier)

    def _undo(self, earlier: Note) -> None:
        """Look at the files as they were before an earlier installation.

        A skill that somebody changed stays; em's other files are em's, whatever is in them.
        """
        removal = Removal(self.home)
        self._undone = {change.path: change.after for change in removal.changes}
        for file in earlier.files:
            if Path(file.path) in removal.left and file.is_skill:
                self._files.append(file)
            elif Path(file.path) in removal.left and file.created and not file.insertions:
                self._undone[Path(file.path)] = None

    @property
    def changes(self) -> list[Change]:
        """Each file that becomes another one."""
        texts = {**self._undone, **self._texts}
        found = (Change(path, _read(path), after) for path, after in texts.items())
        return [change for change in found if change.before != change.after]

    def text_of(self, path: Path) -> str | None:
        """Return a file as it is without em; None if there is none."""
        return self._undone[path] if path in self._undone else _read(path)

    def create(self, path: Path, text: str, *, is_skill: bool = False) -> None:
        """Add a file of em's own."""
        if self.text_of(path) is not None:
            raise UsageError("this file exists, and em did not write it", place=str(path))
        self._files.append(FileEdit(str(path), True, _digest(text), is_skill=is_skill))
        self._texts[path] = text

    def create_skills(self, texts: Mapping[str, str]) -> None:
        """Add the skills of routines, by their paths; files that somebody else wrote stay."""
        for name, text in texts.items():
            if self.text_of(self.skills / name) is None:
                self.create(self.skills / name, text, is_skill=True)

    def edit(
        self, path: Path, edits: Sequence[Edit], skeleton: Any = None, *, comments: bool = False
    ) -> None:
        """Add values to a JSON file; `skeleton` is the file where there is none.

        comments: its program allows comments in it.
        """
        before = self.text_of(path)
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
        before = self.text_of(path)
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
        self._texts[path] = after

    def apply(self) -> None:
        """Write everything, the note first: also half an installation can be undone."""
        changes = self.changes
        paths = [self.home / NOTE, *(change.path for change in changes)]
        had = () if self.earlier is None else self.earlier.folders
        folders = sorted({*had, *_new_folders(paths), *map(str, self.leftovers)})
        note = Note(self.client, self._files, folders, self.socket, str(self.skills))
        _write_note(self.home, note)
        for change in changes:
            if change.after is None:
                change.path.unlink(missing_ok=True)
            else:
                _write(change.path, change.after)


def _new_folders(paths: Sequence[Path]) -> Iterator[str]:
    """Yield the folders of files that are not there yet."""
    for path in paths:
        for folder in path.parents:
            if folder.exists():
                break
            yield str(folder)


def is_installed(home: Path) -> bool:
    """Return whether an installation is noted in a folder."""
    return (home / NOTE).exists()


def socket_of_note(home: Path) -> str:
    """Return where the service of an installation listens; empty if none is noted there."""
    note = _read_note(home)
    return "" if note is None else note.socket


def programs_of(home: Path) -> list[str]:
    """Return the programs by which the agent of an installation starts em."""
    note = _read_note(home)
    found: dict[str, None] = {}
    for file in () if note is None else note.files:
        with suppress(OSError, ValueError, EmError):  # a file that is none of settings
            text = Path(file.path).read_text(encoding="utf-8")
            is_toml = file.path.endswith(".toml")
            values = tomllib.loads(text) if is_toml else value_of(text, comments=file.comments)
            found |= dict.fromkeys(_programs(values))
    return list(found)


def _programs(value: Any) -> Iterator[str]:
    """Yield the programs of commands that start em, in the settings of an agent."""
    if isinstance(value, list):
        for one in value:
            yield from _programs(one)
    elif isinstance(value, dict):
        given = value.get("command")
        words = shlex.split(given) if isinstance(given, str) else given
        if isinstance(words, list):
            words = [*words, *(value.get("args") or ())]
            if words[1:] and any(pair == ("-m", "em") for pair in pairwise(words)):
                yield str(words[0])
        for one in value.values():
            yield from _programs(one)


def refresh_skills(home: Path, wanted: Mapping[str, str]) -> None:
    """Let an installation have these skills, by their paths, and no others of em.

    A skill that somebody changed, or a file that somebody else wrote, is left as it is.
    """
    if not is_installed(home):
        return
    with _locked(home):
        note = _read_note(home)
        if note is None or not note.skills:
            return
        had = {Path(file.path): file for file in note.files if file.is_skill}
        texts = {Path(note.skills) / name: text for name, text in wanted.items()}
        own = {path for path, file in had.items() if _digest(_read(path) or "") == file.after}
        free = {path for path in texts if path not in had and not path.exists()}
        to_write = {
            path: text
            for path, text in texts.items()
            if path in free or (path in own and _digest(text) != had[path].after)
        }
        to_remove = own - texts.keys()
        if not to_write and not to_remove:
            return
        kept = [file for path, file in had.items() if path not in {*to_write, *to_remove}]
        new = [FileEdit(str(p), True, _digest(text), is_skill=True) for p, text in to_write.items()]
        others = [file for file in note.files if not file.is_skill]
        folders = sorted({*note.folders, *_new_folders([*to_write])})
        files = [*others, *kept, *new]
        _write_note(home, msgspec.structs.replace(note, files=files, folders=folders))
        for path, text in to_write.items():
            _write(path, text)
        for path in to_remove:
            path.unlink()
            _remove_empty(path.parent)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Let nobody else change an installation meanwhile."""
    folder = os.open(home, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _read_note(home: Path) -> Note | None:
    try:
        return msgspec.json.decode((home / NOTE).read_bytes(), type=Note)
    except (OSError, msgspec.DecodeError):
        return None


def _write_note(home: Path, note: Note) -> None:
    _write(home / NOTE, msgspec.json.format(msgspec.json.encode(note), indent=1).decode())


class Removal:
    """An installation that is to be undone: `changes` shows how, `apply` does it.

    left: the files of which em's part could not be found; nothing is done to them.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._look()

    def _look(self) -> None:
        note = _read_note(self._home)
        if note is None:
            raise NotFound("em is not installed there", place=str(self._home))
        self._note = note
        self.changes: list[Change] = []
        self.left: list[Path] = []
        for file in note.files:
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
        with _locked(self._home):
            self._look()  # skills may have changed while somebody read what is to be done
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
