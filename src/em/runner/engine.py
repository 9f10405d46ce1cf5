"""Running a routine: `run_routine`, and `arun_routine` for asyncio."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from em.errors import RoutineError, UsageError
from em.models.canonical import Json
from em.models.run import RunResult, StepReport
from em.runner.drivers import Running, WriteNotes, adrive, drive
from em.runner.journal import (
    Journal,
    Note,
    PastRun,
    answered_note,
    keepable,
    new_run_id,
    read_run,
    started_note,
)
from em.runner.machine import AutoFix, Machine
from em.runner.package import Package
from em.runner.secrets import Given, Secrets
from em.runner.tools import Function, ToolRegistry
from em.store.protocol import Store
from em.store.redact import MARKER

Tools = ToolRegistry | Mapping[str, Function] | None


def run_routine(
    routine_dir: str | Path | Package,
    input_data: Json | None = None,
    tool_registry: Tools = None,
    auto_fix_fn: AutoFix | None = None,
    *,
    udfs: Mapping[str, Function] | None = None,
    answers: Mapping[str, Json] | None = None,
    on_step: Callable[[StepReport], None] | None = None,
    on_start: Callable[[str], None] | None = None,
    store: Store | None = None,
    run_id: str | None = None,
    secrets: Given = None,
) -> RunResult:
    """Run a routine with no model call.

    It raises only for what can't be run at all (no such routine, no YAML); a failing step is told
    in the result. `answers` maps the ids of prompts to what a person said. `on_start` is told the
    id of each step when it begins, `on_step` what became of it. With a `store` every step is
    journalled, and a run that was interrupted can be resumed by its `run_id`. `secrets` gives the
    routine's secrets by name (a mapping or a function); the environment has the others.
    """
    run = _Run(routine_dir, tool_registry, auto_fix_fn, udfs, answers, on_step, on_start, secrets)
    machine, write = run.begin(_input(input_data), store, run_id)
    return run.secrets.result(drive(machine, write))


async def arun_routine(
    routine_dir: str | Path | Package,
    input_data: Json | None = None,
    tool_registry: Tools = None,
    auto_fix_fn: AutoFix | None = None,
    *,
    udfs: Mapping[str, Function] | None = None,
    answers: Mapping[str, Json] | None = None,
    on_step: Callable[[StepReport], None] | None = None,
    on_start: Callable[[str], None] | None = None,
    store: Store | None = None,
    run_id: str | None = None,
    secrets: Given = None,
) -> RunResult:
    """`run_routine` for asyncio: coroutines are awaited, other tools run in threads."""
    run = _Run(routine_dir, tool_registry, auto_fix_fn, udfs, answers, on_step, on_start, secrets)
    machine, write = run.begin(_input(input_data), store, run_id)
    return run.secrets.result(await adrive(machine, write))


def resume_run(
    store: Store,
    run_id: str,
    tool_registry: Tools = None,
    auto_fix_fn: AutoFix | None = None,
    *,
    udfs: Mapping[str, Function] | None = None,
    answers: Mapping[str, Json] | None = None,
    on_step: Callable[[StepReport], None] | None = None,
    on_start: Callable[[str], None] | None = None,
    input_data: Json | None = None,
    secrets: Given = None,
) -> RunResult:
    """Go on with a run that was interrupted, or that waits for an answer.

    No completed step runs again. A step that was in flight is made again only if it is a read or
    declares an idempotency key; else the run asks (`needs_input`) what became of it.
    """
    past = read_run(store, run_id)
    if input_data is not None:
        past.input = _input(input_data)
    if MARKER.search(msgspec.json.encode([past.input, past.restored.answers]).decode()):
        raise RoutineError(
            "what this run was given holds a secret, which the journal did not keep",
            place=f"run {run_id}",
            fix="give the input again (input_data, or --input), and the answers",
        )
    if past.status in ("ok", "failed"):
        raise RoutineError(f"this run is over: {past.status}", place=f"run {run_id}")
    run = _Run(past.folder, tool_registry, auto_fix_fn, udfs, answers, on_step, on_start, secrets)
    if run.package.content_hash != past.routine_hash:
        raise RoutineError(
            "the routine was changed since this run began",
            place=past.folder,
            fix="put the old one back, or start a new run",
        )
    run.secrets.check()  # raised, since a run that ends for want of one could not go on later
    machine, write = run.go_on(past, store)
    return run.secrets.result(drive(machine, write))


class _Run:
    """What a run needs, put together."""

    def __init__(
        self,
        routine_dir: str | Path | Package,
        tools: Tools,
        auto_fix: AutoFix | None,
        udfs: Mapping[str, Function] | None,
        answers: Mapping[str, Json] | None,
        on_step: Callable[[StepReport], None] | None,
        on_start: Callable[[str], None] | None,
        secrets: Given,
    ) -> None:
        self.package = routine_dir if isinstance(routine_dir, Package) else Package(routine_dir)
        self._answers = answers
        self.secrets = Secrets(self.package.routine.secrets, secrets)
        self._options: dict[str, Any] = {
            "tools": tools if isinstance(tools, ToolRegistry) else ToolRegistry(tools),
            "udfs": {**self.package.udfs(), **(udfs or {})},
            "auto_fix": self.secrets.asking(auto_fix),
            "answers": answers,
            "on_step": self.secrets.telling(on_step),
            "on_start": on_start,
            "secrets": self.secrets,
        }

    def begin(
        self, input_data: Json, store: Store | None, run_id: str | None = None
    ) -> tuple[Running, WriteNotes]:
        """A new run; its first note is written with its first step's."""
        run_id = run_id or new_run_id()
        notes: list[Note] | None = None
        write: WriteNotes = _keep_nothing
        if store is not None:
            folder, name = str(self.package.folder.resolve()), self.package.routine.name
            kept = keepable(input_data, "input")
            notes = [started_note(folder, name, self.package.content_hash, kept)]
            if self._answers:
                notes.append(answered_note(self._answers))
            write = self.secrets.writing(Journal(store, run_id).write)
        machine = Machine(self.package.program, run_id=run_id, notes=notes, **self._options)
        return machine.run(input_data), write

    def go_on(self, past: PastRun, store: Store) -> tuple[Running, WriteNotes]:
        """A run that began before."""
        notes = [answered_note(self._answers)] if self._answers else []
        machine = Machine(
            self.package.program,
            run_id=past.run_id,
            notes=notes,
            restored=past.restored,
            **self._options,
        )
        write = Journal(store, past.run_id, past.pos).write
        return machine.run(past.input), self.secrets.writing(write)


def _keep_nothing(_notes: list[Note]) -> None:
    """There is no journal."""


def _input(input_data: Any) -> Json:
    if input_data is None:
        return {}
    if not isinstance(input_data, dict):
        raise UsageError(
            f"input is names with values, not a {type(input_data).__name__}", place="input_data"
        )
    return input_data
