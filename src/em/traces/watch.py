"""Watch a folder: import what agents write while they write it.

The folder is polled: listing ten thousand names takes some hundredths of a second, so a library for
file events is not worth its weight. The log has which files were read to their end, so that a watch
that is started again continues.
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

from em.errors import Conflict, EmError, InputError, NoTranscript
from em.store.protocol import Store
from em.traces.trace import Source
from em.traces.transcripts import (
    FileImport,
    FileRead,
    FileState,
    find_shape,
    import_file,
    opened,
    transcripts_in,
)
from em.values.files import shown

INTERVAL = 2.0
"""Seconds between two polls."""
SETTLED = 30.0
"""Seconds without a change after which a file counts as complete, for now."""
MOST_OPEN = 64
"""How many growing files stay open in memory; others are read again from the start."""


class _FileStamp(NamedTuple):
    size: int
    modified: int


class GrowingFiles:
    """Files of lines that somebody is writing: each is read on from where it was."""

    def __init__(
        self,
        store: Store,
        *,
        format_: str | None = None,
        subject: str | None = None,
        source: Source = "imported",
    ) -> None:
        self._store, self._format = store, format_
        self._subject, self._source = subject, source
        self._open: OrderedDict[Path, FileImport] = OrderedDict()

    @property
    def paths(self) -> list[Path]:
        """The files that are open."""
        return [*self._open]

    def read_on(self, path: Path) -> FileImport | None:
        """Store what is new in a file, and return its import; None for a document.

        If it can't be stored now, the file is read from its beginning the next time: another
        process imports it, the disk is full, or the memory is gone. What is stored already is found
        there then.
        """
        try:
            with opened(path) as file:
                found = self._import_of(path, file)
                if found is not None:
                    found.read_on(file)
                return found
        except EmError:
            self._open.pop(path, None)
            raise

    def _import_of(self, path: Path, file: IO[bytes]) -> FileImport | None:
        found = self._open.get(path)
        if found is not None and found.offset <= os.fstat(file.fileno()).st_size:
            self._open.move_to_end(path)
            return found
        shape = find_shape(file, str(path), self._format)
        if shape.is_document:
            return None
        found = self._open[path] = FileImport(
            self._store,
            shape,
            FileState(self._store, path),
            str(path),
            subject=self._subject,
            source=self._source,
        )
        if len(self._open) > MOST_OPEN:
            self.finish(next(iter(self._open)))
        return found

    def finish(self, path: Path) -> None:
        """Store that a file was read to its end. Read it again if others wrote to its traces."""
        try:
            self._open.pop(path).finish()
        except Conflict:
            with suppress(InputError):  # a file that is gone has nothing to read again
                self.import_whole(path)

    def import_whole(self, path: Path) -> FileRead:
        """Import all of a file."""
        with opened(path) as file:
            return import_file(
                self._store, file, str(path), path=path, format_=self._format,
                subject=self._subject, source=self._source,
            )  # fmt: skip


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
        self._store, self._folder, self._settled = store, folder, settled
        self._files = GrowingFiles(store, format_=format_, subject=subject)
        self._seen: dict[Path, _FileStamp] = {}
        self._grown: dict[Path, float] = {}

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
                continue
            if read is not None:
                yield read
        before = time.monotonic() - self._settled
        for path in self._files.paths:
            if self._grown[path] < before:
                self._files.finish(path)

    def finish(self) -> None:
        """Close the files that are still growing."""
        for path in self._files.paths:
            self._files.finish(path)

    def _read(self, path: Path) -> FileRead | None:
        """Import what is new in a file; None if nothing is, or it is not a transcript."""
        if path not in self._files.paths and FileState(self._store, path).unchanged:
            return None
        try:
            found = self._files.read_on(path)
            if found is None:
                read = self._files.import_whole(path)
                return read if read.new else None
        except NoTranscript:
            return None  # it may be half written: try again when it changes
        except InputError as error:
            return FileRead(path=shown(path), skipped=error.message)
        self._grown[path] = time.monotonic()
        return found.progress() if found.has_news else None


def _stat(path: Path) -> _FileStamp | None:
    try:
        stat = path.stat()
    except OSError:  # gone since its folder was listed
        return None
    return _FileStamp(stat.st_size, stat.st_mtime_ns)
