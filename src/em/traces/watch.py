"""Watch a folder: import what agents write while they write it.

The folder is polled: listing ten thousand names takes some hundredths of a second, so a library for
file events is not worth its weight. The log has which files were read to their end, so that a watch
that is started again continues.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from em.errors import Conflict, InputError, NoTranscript
from em.store.protocol import Store
from em.traces.transcripts import (
    FileImport,
    FileRead,
    FileState,
    find_shape,
    import_file,
    opened,
    transcripts_in,
)
from em.values.paths import shown

INTERVAL = 2.0
"""Seconds between two polls."""
SETTLED = 30.0
"""Seconds without a change after which a file counts as complete, for now."""
MOST_OPEN = 64
"""How many growing files stay open in memory; others are read again from the start."""


class _FileStamp(NamedTuple):
    size: int
    modified: int


class _GrowingFile:
    """A file of lines that is still growing."""

    def __init__(self, reading: FileImport) -> None:
        self.reading = reading
        self.last = time.monotonic()


class Watch:
    """Import what is new in a folder: `look` once, `run` for ever."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        *,
        format_: str | None = None,
        subject: str | None = None,
        settled: float = SETTLED,
    ) -> None:
        self._store, self._folder = store, folder
        self._format, self._subject, self._settled = format_, subject, settled
        self._seen: dict[Path, _FileStamp] = {}
        self._live: dict[Path, _GrowingFile] = {}

    def run(
        self, every: float = INTERVAL, sleep: Callable[[float], None] = time.sleep
    ) -> Iterator[FileRead]:
        """Yield what is imported, until the generator is closed; then finish open files."""
        try:
            while True:
                yield from self.look()
                sleep(every)
        finally:
            self.finish()

    def look(self) -> Iterator[FileRead]:
        """Yield what is new since the last look."""
        for path in transcripts_in(self._folder):
            seen = _stat(path)
            if seen is None or self._seen.get(path) == seen:
                continue
            self._seen[path] = seen
            try:
                read = self._read(path)
            except Conflict:  # another process imports the same: look again
                self._seen.pop(path, None)
                self._live.pop(path, None)
                continue
            if read is not None:
                yield read
        self._settle()

    def finish(self) -> None:
        """Close the files that are still growing."""
        for path in [*self._live]:
            self._finish(path)

    def _finish(self, path: Path) -> None:
        """Close a file that was growing; read it again if somebody else wrote to its traces."""
        try:
            self._live.pop(path).reading.finish()
        except Conflict:
            # A file that is gone has nothing to read again.
            with suppress(InputError), opened(path) as file:
                self._import(file, path)

    def _import(self, file: IO[bytes], path: Path) -> FileRead:
        return import_file(
            self._store, file, str(path), path=path, format_=self._format, subject=self._subject
        )

    def _read(self, path: Path) -> FileRead | None:
        """Import what is new in a file; None if nothing is, or it is not a transcript."""
        try:
            with opened(path) as file:
                live = self._live.get(path)
                if live is not None and live.reading.offset <= self._seen[path].size:
                    live.last = time.monotonic()
                    return live.reading.progress() if live.reading.read_on(file) else None
                state = FileState(self._store, path)
                if state.unchanged:
                    return None
                shape = find_shape(file, str(path), self._format)
                if shape.is_document:
                    file.seek(0)
                    read = self._import(file, path)
                    return read if read.new else None
                reading = FileImport(self._store, shape, state, str(path), subject=self._subject)
                self._make_room()
                self._live[path] = _GrowingFile(reading)
                reading.read_on(file)
                return reading.progress() if reading.added else None
        except (NoTranscript, InputError) as error:
            # It may be half written, or not a transcript: try again when it changes.
            return (
                None
                if isinstance(error, NoTranscript)
                else FileRead(path=shown(path), skipped=error.message)
            )

    def _settle(self) -> None:
        before = time.monotonic() - self._settled
        for path in [path for path, live in self._live.items() if live.last < before]:
            self._finish(path)

    def _make_room(self) -> None:
        if len(self._live) >= MOST_OPEN:
            self._finish(min(self._live, key=lambda path: self._live[path].last))


def _stat(path: Path) -> _FileStamp | None:
    try:
        stat = path.stat()
    except OSError:  # gone since its folder was listed
        return None
    return _FileStamp(stat.st_size, stat.st_mtime_ns)
