"""The service that answers the hooks of coding agents, on a socket of this user only.

Each hook is answered in a thread of its own, at once; what is to be recorded is put in a queue, and
one thread reads the transcripts. That thread also looks at the open sessions from time to time, so
that a call needs no hook to be recorded. When sessions have been quiet for a while, another process
looks whether they belong to tasks that recur, and stores what is proven as proposals.
"""

import fcntl
import json
import os
import queue
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from em.clients.advice import Advice
from em.clients.hook import missed, starting
from em.clients.plugin import private_folder
from em.clients.retention import forget_recordings
from em.clients.skill import Skill
from em.compiler.proposals import note_told
from em.errors import EmError
from em.memory import Memory
from em.traces.intake import is_left_alone
from em.traces.transcripts import FileImport, import_session, is_database, opened
from em.traces.watch import GrowingFiles
from em.values.canonical import Json

LARGEST = 16 * 1024 * 1024
"""Bytes of a hook that are read at most."""
LOOK = 2.0
"""Seconds between two looks at the open sessions."""
SWEEP = 6 * 3600.0
"""Seconds between two looks for recordings that are too old."""


class HookService:
    """Answers hooks for one memory until none came for `idle` seconds.

    proposer: the command that proposes what recurs, without the traces to look at.
    keep_days: forget recordings that are older.
    """

    def __init__(
        self,
        memory: Memory,
        address: Path,
        *,
        idle: float = 1800.0,
        proposer: Sequence[str] = (),
        keep_days: float | None = None,
    ) -> None:
        self._memory, self._address, self._idle = memory, address, idle
        self._advice = Advice(memory)
        self._skill = Skill(memory.store)
        self._plugins: dict[Path, None] = {}
        self._proposer = Proposer(proposer)
        self._keep_days, self._next_sweep = keep_days, 0.0
        self._sessions = LiveSessions(memory)
        self._traces: dict[str, list[str]] = {}
        self._to_record: queue.Queue[Json | None] = queue.Queue()
        self._last = monotonic()

    def run(self) -> None:
        """Serve until idle. Return at once if another service of this memory runs."""
        private_folder(self._address.parent)
        with self._address.with_suffix(".lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            recorder = threading.Thread(target=self._record_all)
            recorder.start()
            try:
                self._serve()
            finally:
                self._to_record.put(None)
                recorder.join()

    def _serve(self) -> None:
        with suppress(FileNotFoundError):
            self._address.unlink()  # of a service that was killed: we have the lock
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(self._address))
            os.chmod(self._address, 0o600)
            listener.listen(64)
            Path(starting(str(self._address))).unlink(missing_ok=True)
            listener.settimeout(min(self._idle, 5.0))
            try:
                while monotonic() - self._last < self._idle:
                    self._take_missed()
                    with suppress(TimeoutError):
                        connection, _ = listener.accept()
                        self._last = monotonic()
                        threading.Thread(target=self._answer, args=(connection,)).start()
            finally:
                self._address.unlink(missing_ok=True)

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(5.0)
            try:
                said = self.answer(self._event(_received(connection)))
                if said is not None:
                    connection.sendall(json.dumps(said).encode())
            except (OSError, ValueError):
                return  # the hook has gone, or it is none

    def _event(self, question: bytes) -> Any:
        """Return the event of a hook; remember from which plugin it came."""
        plugin, _, event = question.rpartition(b"\0")
        if plugin:
            self._plugins[Path(os.fsdecode(plugin))] = None
        return json.loads(event)

    def _take_missed(self) -> None:
        """Record the hooks that came while this service was being started."""
        file = Path(missed(str(self._address)))
        try:
            lines = file.read_bytes().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            with suppress(ValueError):
                self._note(self._event(line))  # nobody waits for an answer any more
        file.unlink()  # at last: a service that is ended here leaves them for the next

    def answer(self, event: Any) -> Json | None:
        """Return the answer to a hook, or None; and remember what is to be recorded."""
        if not self._note(event):
            return None
        try:
            said = self._advice.to(event)
        except EmError:
            return None  # the agent works on without advice
        name = event.get("hook_event_name")
        output = {"hookEventName": name, "additionalContext": said}
        return {"hookSpecificOutput": output} if said else None

    def _note(self, event: Any) -> bool:
        """Remember a hook to be recorded; False if its folder is left alone."""
        if not isinstance(event, dict) or is_left_alone(Path(str(event.get("cwd") or "/"))):
            return False
        self._to_record.put(event)
        return True

    def _record_all(self) -> None:
        """Record until the service ends."""
        self._guarded(self._advice.prepare)
        self._guarded(self._refresh_skills)
        while True:
            try:
                event = self._to_record.get(timeout=LOOK)
            except queue.Empty:
                self._guarded(self._note_told)
                self._guarded(self._sessions.read_on_all)
                self._guarded(self._proposer.look)
                self._guarded(self.sweep)
                continue
            if event is None:
                self._guarded(self._note_told)
                self._guarded(lambda: self._learn(self._sessions.end_all()))
                self._guarded(self._proposer.end)
                return
            self._guarded(partial(self.record, event))
            self._guarded(self._refresh_skills)
            self._guarded(self._note_told)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:  # noqa: BLE001 - a session that can't be read must not end the others
            return

    def record(self, event: Json) -> None:
        """Record what is new in the session of a hook; learn from a session that ended."""
        path = event.get("transcript_path")
        if not isinstance(path, str):
            return
        session, name = str(event.get("session_id") or ""), event.get("hook_event_name")
        if name == "SessionEnd":
            trace_ids = self._sessions.end(Path(path), session)
            self._note_told()
            self._memory.heuristics.judge_session(session, trace_ids)
            self._traces.pop(session, None)
            self._learn(trace_ids)
        else:
            read = self._sessions.read_on(Path(path), session)
            self._traces[session] = read or self._traces.get(session, [])
            self._proposer.add(read if name == "Stop" else ())

    def _refresh_skills(self) -> None:
        for plugin in [*self._plugins]:
            self._skill.refresh(plugin)

    def _learn(self, trace_ids: list[str]) -> None:
        self._proposer.add(trace_ids)
        if trace_ids:
            self._memory.reflect(trace_ids)

    def sweep(self) -> None:
        """Forget old recordings, from time to time."""
        if self._keep_days is not None and monotonic() >= self._next_sweep:
            self._next_sweep = monotonic() + SWEEP
            forget_recordings(self._memory, timedelta(days=self._keep_days))

    def _note_told(self) -> None:
        """Store what sessions were told: the service may end before they do."""
        lessons, self._advice.told = self._advice.told, {}
        for session, heuristic_ids in lessons.items():
            known = self._traces.get(session, [])
            self._memory.heuristics.note_told(session, heuristic_ids, known)
        proposals, self._advice.to_note = self._advice.to_note, []
        note_told(self._memory.store, proposals)


def end_service(address: Path) -> None:
    """End the service at an address, if one runs, and remove its files."""
    lock = address.with_suffix(".lock")
    if not lock.exists():
        return
    with lock.open("a+") as file:
        for _ in range(300):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                pid = file.read()
                if pid.isdecimal():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGTERM)
                sleep(0.1)
        else:
            return  # it does not end: it has its files still
        others = (missed(str(address)), starting(str(address)))
        for path in (address, lock, *map(Path, others)):
            path.unlink(missing_ok=True)


def _received(connection: socket.socket) -> bytes:
    parts, size = [], 0
    while part := connection.recv(65_536):
        parts.append(part)
        size += len(part)
        if size > LARGEST:
            raise ValueError("the hook is too large")
    return b"".join(parts)


class LiveSessions:
    """The transcripts that are being written, by path, and the sessions in databases.

    A hook names the session's transcript, so a session that is recorded as it goes and the same
    file imported later are one trace. Sessions of opencode are in a database; they are read from
    there whenever they go idle.
    """

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


QUIET = 10.0
"""Seconds without a new session before it looks."""
MOST_SECONDS = 180.0
MOST_TRACES = 50
"""Sessions that are looked at together; a computer that was off may have many."""


class Proposer:
    """Starts a command with the traces that are new, once they are quiet; one at a time.

    To compile and prove takes a processor for a while, and hooks must be answered at once. So a
    process of its own does it, with a low priority, and is ended if it takes too long. It only
    reads traces and stores proposals: it calls no tool.
    """

    def __init__(self, command: Sequence[str], *, quiet: float = QUIET) -> None:
        self._command, self._quiet = command, quiet
        self._new: dict[str, None] = {}
        self._last = self._began = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, trace_ids: Iterable[str]) -> None:
        """Note traces that have news."""
        for trace_id in trace_ids:
            self._new[trace_id] = None
            self._last = monotonic()

    def look(self) -> None:
        """Start the command if it is time to, or end one that takes too long."""
        now = monotonic()
        if self._process is not None:
            if self._process.poll() is None and now - self._began > MOST_SECONDS:
                self._process.kill()
            if self._process.poll() is None:
                return
            self._process = None
        if not self._new or not self._command or now - self._last < self._quiet:
            return
        traces, self._new = [*self._new][-MOST_TRACES:], {}
        about = [part for trace_id in traces for part in ("--about", trace_id)]
        self._began = now
        self._process = subprocess.Popen(  # noqa: S603 - em's own command
            [*self._command, *about],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, 10)

    def end(self) -> None:
        """End a command that still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
