"""Importing: files of transcripts into the log, as far as they are not there yet.

That a file was read to its end is an event of its own stream, so that a file that has not changed
since is passed over unread. What is new in one that has is found by its traces' own streams.
"""

import glob
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import msgspec

from em.errors import Conflict, InputError, NotFound, NoTranscript
from em.log.event import Draft, EventQuery
from em.store.protocol import Store
from em.traces.builder import Known
from em.traces.formats import Reader, importer_of
from em.traces.intake import Intake, Problem
from em.traces.transcripts import Progress, Shape, Value, end, find_shape, lines_of, tell, values_of

SUFFIXES = frozenset({".jsonl", ".json", ".ndjson", ".traj"})
"""Of a folder, files that end so are looked at."""
TRIES = 3
"""So often a file is read anew because another process wrote of the same traces."""


class FileRead(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one file. `new` counts events; `skipped` says why it was not read."""

    path: str
    format: str = ""
    traces: Sequence[str] = ()
    new_traces: int = 0
    new: int = 0
    calls: int = 0
    unknown: int = 0
    problems: Sequence[Problem] = ()
    skipped: str = ""


def _silent(_count: int) -> None:
    """No progress to show."""


def files_in(paths: Sequence[str | Path]) -> Iterator[tuple[Path, bool]]:
    """The files that paths, folders and patterns stand for; whether each was named itself."""
    for given in paths:
        path = Path(os.path.expanduser(given))
        if path.is_dir():
            yield from ((file, False) for file in transcripts_in(path))
        elif path.exists():
            yield path, True
        else:
            found = sorted(glob.glob(str(path), recursive=True))
            if not found:
                raise NotFound("there is no such file", place=str(given))
            for one in found:
                yield from files_in([one]) if os.path.isdir(one) else iter([(Path(one), True)])


def transcripts_in(folder: Path) -> list[Path]:
    """The files of a folder, and of those in it, that may be transcripts, the oldest first."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in (".git", "node_modules"))
        found += [Path(place, name) for name in names if Path(name).suffix in SUFFIXES]
    return sorted(found, key=lambda path: (_age(path), path))


def _age(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def import_paths(
    store: Store,
    paths: Sequence[str | Path],
    *,
    format_: str | None = None,
    subject: str | None = None,
    progress: Progress | None = None,
) -> list[FileRead]:
    """Import files; a file of a folder that is no transcript is passed over, not refused."""
    if format_ is not None:
        importer_of(format_)
    read = []
    for path, named in files_in(paths):
        try:
            with opened(path) as file:
                read.append(
                    import_file(
                        store, file, str(path), path=path, format_=format_, subject=subject,
                        progress=progress or _silent,
                    )
                )  # fmt: skip
        except NoTranscript as error:
            if named:
                raise
            read.append(FileRead(path=str(path), skipped=error.message))
    return read


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file to read; that it can't be is an error of its own."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"it can't be read: {error.strerror}", place=str(path)) from None
    with file:
        yield file


def import_file(
    store: Store,
    file: IO[bytes],
    name: str,
    *,
    path: Path | None = None,
    format_: str | None = None,
    subject: str | None = None,
    progress: Progress = _silent,
) -> FileRead:
    """Import one seekable file; `path` is where it will be found the next time."""
    state = FileState(store, path)
    if state.unchanged and format_ in (None, state.format):
        progress(state.size)
        return FileRead(path=name, format=state.format, skipped="unchanged")
    shape = find_shape(file, name, format_)
    for tries in range(1, TRIES + 1):
        reading = Reading(store, shape, state, name, subject=subject)
        try:
            reading.read_all(file, progress)
            return reading.finish()
        except Conflict:
            if tries == TRIES:
                raise
            file.seek(0)
    raise AssertionError("every try ended above")


class FileState:
    """What the log knows of a file: how large and how old it was when it was read to its end."""

    def __init__(self, store: Store, path: Path | None) -> None:
        self.path = None if path is None else path.resolve()
        self.size = self.modified = 0
        self.previous: dict[int, Known] = {}
        self.format, self.unchanged = "", False
        name = "-" if self.path is None else _digest(str(self.path))
        self.stream = f"transcript/{name}"
        if self.path is None:
            return
        self.look()
        query = EventQuery(stream=self.stream, kinds=["transcript_read"], limit=1, newest=True)
        for event in store.read(query):
            body = event.body or {}
            self.format = str(body.get("format", ""))
            known = [Known(**one) for one in body.get("traces", ())]
            self.previous = dict(enumerate(known))
            before = (body.get("size"), body.get("modified"))
            self.unchanged = before == (self.size, self.modified)

    def look(self) -> None:
        """How large and how old the file is now."""
        assert self.path is not None
        try:
            stat = self.path.stat()
        except OSError:
            return
        self.size, self.modified = stat.st_size, stat.st_mtime_ns

    def read_to_the_end(self, format_: str, known: dict[int, Known]) -> Draft | None:
        """The event that says so."""
        if self.path is None:
            return None
        body = {
            "path": str(self.path),
            "format": format_,
            "size": self.size,
            "modified": self.modified,
            "traces": [one._asdict() for one in known.values()],
        }
        return Draft(stream=self.stream, kind="transcript_read", body=body)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:28]


class Reading:
    """One file being read. Lines can be read on where it was left off, as the file grows."""

    def __init__(
        self, store: Store, shape: Shape, state: FileState, name: str, *, subject: str | None = None
    ) -> None:
        self._store, self._shape, self._state, self._name = store, shape, state, name
        self._intake = Intake(store, stream=state.stream, previous=state.previous, subject=subject)
        self._reader: Reader = shape.importer.reader(self._intake)
        self.offset = 0
        self._number = 0

    def read_all(self, file: IO[bytes], progress: Progress = _silent) -> None:
        """Everything that is there."""
        done = 0
        for value in values_of(file, self._shape, self._name):
            self._tell(value)
            progress(value.end - done)
            done = value.end

    def read_on(self, file: IO[bytes]) -> bool:
        """The whole lines that came since; whether there were any. One under way is left."""
        file.seek(self.offset)
        before = self.offset
        for value in lines_of(file, self._number):
            if value.problem.startswith("the line is cut off"):
                break
            self._tell(value)
        end(self._reader, self._intake, self._name)
        self._intake.pause()
        return self.offset > before

    @property
    def added(self) -> int:
        """How many events it brought."""
        return self._intake.added

    def _tell(self, value: Value) -> None:
        tell(self._reader, self._intake, value, self._name)
        self.offset, self._number = value.end, value.number

    def finish(self) -> FileRead:
        """It was read to its end, for now."""
        intake = self._intake
        end(self._reader, intake, self._name)
        intake.end_traces()
        if self.offset:
            self._state.size = self.offset
        done = self._state.read_to_the_end(self._shape.importer.name, intake.now_known)
        if done is not None:
            intake.put(done, None)  # in the same commit as the last of its traces
        intake.write()
        added = intake.added - (done is not None)
        return msgspec.structs.replace(self.progress(), new=added)

    def progress(self) -> FileRead:
        """What it brought so far."""
        intake = self._intake
        return FileRead(
            path=self._name,
            format=self._shape.importer.name,
            traces=list(intake.trace_ids),
            new_traces=intake.new_traces,
            new=intake.added,
            calls=intake.calls,
            unknown=intake.unknown_count,
            problems=list(intake.problems),
        )


def total_size(paths: Sequence[str | Path]) -> int:
    """How many bytes an import will read at most."""
    return sum(path.stat().st_size for path, _ in files_in(paths) if path.is_file())


def as_json(read: FileRead) -> dict[str, Any]:
    """What became of a file, for programs."""
    told: dict[str, Any] = msgspec.to_builtins(read)
    told["problems"] = [problem._asdict() for problem in read.problems]
    return told
