"""The sessions that go on: each transcript is read while its agent writes it.

A hook names the session's transcript, so a session that is recorded as it goes and the same file
imported later are one trace, by construction. Of a program that has its sessions in a database
(opencode) the session is read from there, whenever it goes idle.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from em.errors import EmError
from em.memory import Memory
from em.traces.transcripts import (
    FileImport,
    FileState,
    find_shape,
    import_session,
    is_database,
    opened,
)

MOST_OPEN = 32


class LiveSessions:
    """The transcripts that are being written, by path, and the sessions in databases."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._open: OrderedDict[Path, FileImport] = OrderedDict()
        self._awaited: dict[Path, None] = {}
        self._in_databases: dict[tuple[Path, str], None] = {}
        self._times_lost = memory.store.times_lost

    def read_on(self, path: Path, session: str = "") -> list[str]:
        """Store what is new in a transcript and its sub-agents'. Return the ids of the traces.

        A session in a database is only noted: it is read when it ends.
        """
        if _is_database(path):
            self._in_databases[path, session] = None
            return []
        return [one for file in (path, *_sub_agents(path)) for one in self._read(file)]

    def read_on_all(self) -> None:
        """Store what is new in every transcript that is open, or was not there yet."""
        for path in [*self._open, *self._awaited]:
            self._read(path)

    def end(self, path: Path, session: str = "") -> list[str]:
        """Store the rest of a session that ended, and of its sub-agents.

        Return the ids of its traces; of a session in a database those with news.
        """
        if _is_database(path):
            self._in_databases.pop((path, session), None)
            return import_session(self._memory.store, path, session)
        return [one for file in (path, *_sub_agents(path)) for one in self._end(file)]

    def end_all(self) -> list[str]:
        """Store the rest of every session. Return the ids of their traces."""
        paths = [*self._open, *self._awaited]
        of_files = [trace_id for path in paths for trace_id in self._end(path)]
        return of_files + [
            trace_id
            for path, session in [*self._in_databases]
            for trace_id in self.end(path, session)
        ]

    def _read(self, path: Path) -> list[str]:
        with self._begun_again_if_it_fails(path):
            reading = self._reading(path)
            if reading is None:
                return []
            with opened(path) as file:
                reading.read_on(file)
            return list(reading.progress().traces)
        return []

    def _end(self, path: Path) -> list[str]:
        with self._begun_again_if_it_fails(path):
            reading = self._reading(path)
            if reading is None:
                return []
            with opened(path) as file:
                reading.read_on(file)
            del self._open[path]
            return list(reading.finish().traces)
        return []

    @contextmanager
    def _begun_again_if_it_fails(self, path: Path) -> Iterator[None]:
        """Read a file from its beginning the next time if it can't be stored now.

        Another process imports it, the disk is full, or the memory is gone. What is stored already
        is found there then.
        """
        try:
            yield
        except EmError:
            self._open.pop(path, None)

    def _reading(self, path: Path) -> FileImport | None:
        if self._times_lost != self._memory.store.times_lost:
            self._times_lost = self._memory.store.times_lost
            self._open.clear()  # nothing of these files is in the memory that there is now
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found
        if not path.exists():
            self._awaited[path] = None  # a session's first hooks come before its transcript
            return None
        self._awaited.pop(path, None)
        with opened(path) as file:
            shape = find_shape(file, str(path))
        if shape.is_document:
            return None  # one line so far
        store = self._memory.store
        found = self._open[path] = FileImport(
            store, shape, FileState(store, path), str(path), source="agent"
        )
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)[1].finish()
        return found


def _sub_agents(path: Path) -> list[Path]:
    """Return the transcripts of a session's sub-agents, as Claude Code names them."""
    return sorted(path.with_suffix("").glob("subagents/*.jsonl"))


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with opened(path) as file:
        return is_database(file)
