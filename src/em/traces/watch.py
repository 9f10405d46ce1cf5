"""Watching a folder: what agents write comes in as they write it.

The folder is looked at again and again: agents append to a few files now and then, and looking at
ten thousand names takes some hundredths of a second, so that no library for it is worth its weight.
What was read to its end is noted in the log, so that a watch that is started again goes on.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from em.errors import Conflict, InputError, NoTranscript
from em.store.protocol import Store
from em.traces.transcripts import (
    FileRead,
    FileState,
    Reading,
    find_shape,
    import_file,
    opened,
    transcripts_in,
)

INTERVAL = 2.0
"""Seconds between two looks."""
SETTLED = 30.0
"""A file that nothing was added to for so many seconds is taken to be complete, for now."""
MOST_OPEN = 64
"""So many files are remembered with all that was read of them; others are read anew."""


class _Seen(NamedTuple):
    size: int
    modified: int


class _Live:
    """A file of lines that is being written."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.last = time.monotonic()


class Watch:
    """Looks at a folder. `look` is one look; `run` looks for ever."""

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
        self._seen: dict[Path, _Seen] = {}
        self._live: dict[Path, _Live] = {}

    def run(
        self, every: float = INTERVAL, sleep: Callable[[float], None] = time.sleep
    ) -> Iterator[FileRead]:
        """What comes in, as it comes; until it is closed, then what is open is finished."""
        try:
            while True:
                yield from self.look()
                sleep(every)
        finally:
            self.finish()

    def look(self) -> Iterator[FileRead]:
        """What came in since the last look."""
        for path in transcripts_in(self._folder):
            seen = _stat(path)
            if seen is None or self._seen.get(path) == seen:
                continue
            self._seen[path] = seen
            try:
                read = self._read(path)
            except Conflict:  # another process brings the same: look again
                self._seen.pop(path, None)
                self._live.pop(path, None)
                continue
            if read is not None:
                yield read
        self._settle()

    def finish(self) -> None:
        """Every file that is open is complete, for now."""
        for path in [*self._live]:
            self._live.pop(path).reading.finish()

    def _read(self, path: Path) -> FileRead | None:
        """What is new in a file; None if nothing is, or it is no transcript."""
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
                    read = import_file(
                        self._store, file, str(path), path=path, format_=self._format,
                        subject=self._subject,
                    )  # fmt: skip
                    return read if read.new else None
                reading = Reading(self._store, shape, state, str(path), subject=self._subject)
                self._make_room()
                self._live[path] = _Live(reading)
                reading.read_on(file)
                return reading.progress() if reading.added else None
        except (NoTranscript, InputError) as error:
            # It may be half written, or nothing of ours: the next change of it is looked at again.
            return (
                None
                if isinstance(error, NoTranscript)
                else FileRead(path=str(path), skipped=error.message)
            )

    def _settle(self) -> None:
        before = time.monotonic() - self._settled
        for path in [path for path, live in self._live.items() if live.last < before]:
            self._live.pop(path).reading.finish()

    def _make_room(self) -> None:
        if len(self._live) >= MOST_OPEN:
            oldest = min(self._live, key=lambda path: self._live[path].last)
            self._live.pop(oldest).reading.finish()


def _stat(path: Path) -> _Seen | None:
    try:
        stat = path.stat()
    except OSError:  # gone since its folder was listed
        return None
    return _Seen(stat.st_size, stat.st_mtime_ns)
