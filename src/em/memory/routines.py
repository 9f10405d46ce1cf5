"""Traces come in, become routines, and run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from em.memory.base import Opened
from em.runner.run import RunResult
from em.traces.catalogue import find_traces, get_traces, trace_events
from em.traces.trace import KeptTrace, Outcome, Trace, read_trace
from em.values.call import Effect
from em.values.canonical import Json, canonical
from em.values.ids import new_id

if TYPE_CHECKING:
    from typing import Unpack

    from em.compiler.heal import Healing
    from em.compiler.suggestions import Suggestion
    from em.llm.interface import LlmClient
    from em.runner.attempts import AutoFix
    from em.runner.engine import RunOptions, Tools
    from em.runner.library import KeptRoutine
    from em.runner.routine import Routine
    from em.traces.recorder import Recording
    from em.traces.transcripts import FileRead, Progress


class Routines(Opened):
    """Traces and routines."""

    def add_trace(self, trace: Trace | Mapping[str, Any], *, subject: str | None = None) -> str:
        """Keep one attempt at a task; the id of the trace, whose stream is `trace/ID`.

        A mapping is read as the native format, or as a trajectory.
        """
        if not isinstance(trace, Trace):
            trace = read_trace(canonical(trace, "trace")[0], "trace")
        trace_id = new_id()
        self.log.append_many(trace_events(trace, trace_id, subject=subject))
        return trace_id

    def import_files(
        self,
        paths: "str | Path | Sequence[str | Path]",
        *,
        format: str | None = None,  # noqa: A002 - the name users know from the command
        subject: str | None = None,
        progress: "Progress | None" = None,
    ) -> "list[FileRead]":
        """Keep the traces in transcripts that agents left on disk; what became of each file.

        A path is a file, a folder or a pattern. The format is found, if it is not named. What is
        there already is not kept twice; a file that has grown brings only what is new.
        """
        from em.traces.transcripts import import_paths

        given = [paths] if isinstance(paths, str | Path) else paths
        return import_paths(self.store, given, format_=format, subject=subject, progress=progress)

    def traces(self, task: str | None = None, outcome: Outcome | None = None) -> list[KeptTrace]:
        """The traces in this memory, oldest first; `task` is some words of their goal."""
        return list(find_traces(self.store, task=task, outcome=outcome))

    def record(
        self,
        goal: str | None = None,
        input_summary: Json | None = None,
        *,
        app: str = "",
        subject: str | None = None,
    ) -> "Recording":
        """Record an agent: as a context manager, or as a decorator of a plain or an async agent.

        The trace is kept when the agent is done. Tools are recorded that were made so by
        `recorder.tool`, or by `em.traces.recorder.recorded_tool` wherever they are.
        """
        from em.traces.recorder import Recording

        def keep(trace: Trace) -> str:
            return self.add_trace(trace, subject=subject)

        return Recording(keep, goal, input_summary, app=app)

    def suggest(
        self, task: str | None = None, *, at_least: int = 2, limit: int = 10
    ) -> "list[Suggestion]":
        """Which traces went the same way and are worth compiling, the most worth first."""
        from em.compiler.suggestions import suggest

        return suggest(find_traces(self.store, task=task), at_least=at_least, limit=limit)

    def compile(
        self,
        trace_ids: str | Sequence[str],
        *,
        name: str | None = None,
        declared: Mapping[str, Effect | None] | None = None,
        keep_all: bool = False,
        client: "LlmClient | None" = None,
    ) -> "KeptRoutine":
        """Compile a trace of this memory into a routine, kept as a new version.

        Of several traces of one task, the way that most of them went is taken, and of those the
        shortest; the routine is proved by replaying the trace it was made of. With a `client` its
        model may improve it; what does not pass the same proof is dropped.
        """
        from em.compiler.compilation import compile_several
        from em.runner.library import keep_routine

        ids = [trace_ids] if isinstance(trace_ids, str) else trace_ids
        kept = get_traces(self.store, ids)
        made = compile_several(kept, name=name, declared=declared, keep_all=keep_all, client=client)
        return keep_routine(self.store, made.files, made.from_events)

    def run(
        self,
        routine: "str | Path | Routine",
        input_data: Json | None = None,
        tools: "Tools" = None,
        auto_fix_fn: "AutoFix | None" = None,
        *,
        run_id: str | None = None,
        **options: "Unpack[RunOptions]",
    ) -> RunResult:
        """Run a routine; every step is journalled in this memory.

        routine: its folder, or a routine of this memory: its name, `name@version`, or itself.
        Tools that the routine declares may use what `allow` names, else what the settings allow.
        """
        from em.runner.engine import run_routine
        from em.runner.library import opened

        options.setdefault("allow", self._allow)
        with opened(self.store, routine) as package:
            return run_routine(
                package,
                input_data,
                tools,
                auto_fix_fn,
                store=self.store,
                run_id=run_id,
                **options,
            )

    def resume(
        self,
        run_id: str,
        tools: "Tools" = None,
        auto_fix_fn: "AutoFix | None" = None,
        *,
        input_data: Json | None = None,
        **options: "Unpack[RunOptions]",
    ) -> RunResult:
        """Go on with a run that was interrupted or waits; no completed step runs again."""
        from em.runner.engine import resume_run

        options.setdefault("allow", self._allow)
        return resume_run(self.store, run_id, tools, auto_fix_fn, input_data=input_data, **options)

    def heal(self, run_id: str, *, dry_run: bool = False) -> "Healing":
        """Write the fixes that a run needed into its routine, as a new version.

        The run is made again with what its journal holds: the healed routine must need no fix and
        give the same output. The old version is kept; with `dry_run` nothing is written.
        """
        from em.compiler.heal import healing_of
        from em.runner.journal import read_run
        from em.runner.library import files_in, keep_routine, package_of
        from em.runner.package import write_files

        past = read_run(self.store, run_id)
        with package_of(self.store, past) as package:
            package.check_unchanged(past.routine_hash)
            old = files_in(package.folder)
            healing, new = healing_of(package.routine, old, past)
        if dry_run or not healing.changed:
            return healing
        before = past.stored or keep_routine(self.store, old).ref
        after = keep_routine(self.store, new).ref
        if past.folder:
            write_files(new, Path(past.folder))
        return msgspec.structs.replace(healing, old=before, new=after)
