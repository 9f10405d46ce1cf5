"""A shelf of routines: each compiled once from a file or from the log, and run as asked."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bench.right.recording import Recording
from bench.right.verdict import Ended
from bench.right.world import World

SOURCES = ("a file", "the log")


class Shelved(NamedTuple):
    """A compiled routine: its folder, the routine as `Memory.run` takes it, and its input."""

    folder: Path
    routine: Any
    input: dict[str, Any]
    declared: frozenset[str]


class Shelf:
    """Compiles recordings as a user would, and remembers the packages."""

    def __init__(self, folder: Path) -> None:
        from em import Memory

        self._folder = folder
        self.memory = Memory(folder / "right.db")
        self._made: dict[tuple[str, str], Shelved | str] = {}

    def compiled(self, recording: Recording, source: str) -> Shelved | str:
        """The routine of a recording, or why there is none."""
        from em.errors import EmError

        key = (recording.name, source)
        if key not in self._made:
            compile_ = self._from_file if source == "a file" else self._from_log
            try:
                self._made[key] = compile_(recording)
            except EmError as error:
                self._made[key] = f"{error.code}: {error}"
        return self._made[key]

    def _from_file(self, recording: Recording) -> Shelved:
        import msgspec

        from em.compiler.compile_trace import compile_trace_file
        from em.traces.transcripts import read_traces

        (kept,) = read_traces(recording.line, recording.name)
        stem = self._folder / "file" / recording.name.replace(":", "-")
        stem.parent.mkdir(exist_ok=True)
        path = stem.with_suffix(".json")
        path.write_bytes(msgspec.json.encode(kept.trace))
        compile_trace_file(path, stem)
        return _shelved(stem, stem)

    def _from_log(self, recording: Recording) -> Shelved:
        from em.runner.package import find_routine, texts_of, write_files

        source = self._folder / "log" / f"{recording.name.replace(':', '-')}.jsonl"
        source.parent.mkdir(exist_ok=True)
        source.write_bytes(recording.line)
        (read,) = self.memory.import_files(source)
        (trace,) = read.traces
        routine = self.memory.compile(trace)
        folder = source.with_suffix("")
        folder.mkdir()
        write_files(texts_of(find_routine(self.memory.store, routine.ref)), folder)
        return _shelved(folder, routine)

    def run(
        self, shelved: Shelved, given: Mapping[str, Any], world: World, *, journalled: bool
    ) -> Ended:
        """Run a routine with the tools of a world."""
        from em.errors import EmError
        from em.runner.engine import run_routine

        try:
            if journalled:
                ran = self.memory.run(shelved.routine, dict(given), world.tools())
            else:
                ran = run_routine(shelved.folder, dict(given), world.tools())
        except EmError as error:
            return Ended("raised", f"{error.code}: {error}")
        why = ran.failure or ran.pending_prompt or ran.reason
        return Ended(ran.status, "" if why is None else f"{why.step_id}: {why.message}")


def _shelved(folder: Path, routine: Any) -> Shelved:
    from em.runner.package import Package

    given = json.loads((folder / "input.json").read_bytes())
    schema = Package(folder).routine.input_schema or {}
    return Shelved(folder, routine, given, frozenset(schema.get("properties", ())))
