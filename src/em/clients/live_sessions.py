"""The sessions that go on: each transcript is read while its agent writes it.

A hook names the session's transcript, so a session that is recorded as it goes and the same file
imported later are one trace, by construction. Of a program that has its sessions in a database
(opencode) the session is read from there, whenever it goes idle.
"""

from contextlib import suppress
from pathlib import Path

from em.errors import EmError
from em.memory import Memory
from em.traces.transcripts import FileImport, import_session, is_database, opened
from em.traces.watch import GrowingFiles


class LiveSessions:
    """The transcripts that are being written, by path, and the sessions in databases."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._files = GrowingFiles(memory.store, source="agent")
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
        for path in [*self._files.paths, *self._awaited]:
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
        paths = [*self._files.paths, *self._awaited]
        of_files = [trace_id for path in paths for trace_id in self._end(path)]
        return of_files + [
            trace_id
            for path, session in [*self._in_databases]
            for trace_id in self.end(path, session)
        ]

    def _read(self, path: Path) -> list[str]:
        with suppress(EmError):  # it is read from its beginning the next time
            found = self._read_file(path)
            return [] if found is None else list(found.progress().traces)
        return []

    def _end(self, path: Path) -> list[str]:
        with suppress(EmError):  # as above
            found = self._read_file(path)
            if found is not None:
                self._files.finish(path)
                return list(found.progress().traces)
        return []

    def _read_file(self, path: Path) -> FileImport | None:
        store = self._memory.store
        if self._times_lost != store.times_lost:
            self._times_lost = store.times_lost
            # Nothing of the open files is in the memory that there is now.
            self._files = GrowingFiles(store, source="agent")
        if not path.exists():
            self._awaited[path] = None  # a session's first hooks come before its transcript
            return None
        self._awaited.pop(path, None)
        return self._files.read_on(path)


def _sub_agents(path: Path) -> list[Path]:
    """Return the transcripts of a session's sub-agents, as Claude Code names them."""
    return sorted(path.with_suffix("").glob("subagents/*.jsonl"))


def _is_database(path: Path) -> bool:
    if not path.is_file():
        return False
    with opened(path) as file:
        return is_database(file)
