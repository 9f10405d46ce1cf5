"""The conductor: what a workflow does around each step of its run.

The machine runs the steps. Before each one the conductor gathers what the step needs, and nothing
else; after it, it keeps the slices that the step left for those that come later.
"""

import contextvars
import functools
import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from em.errors import EmError, WorkflowError
from em.runner.drivers import CallTool, WriteNotes, drive
from em.runner.expressions.functions import SCOPE
from em.runner.history import PastStep
from em.runner.journal import Note, Notebook, Restored
from em.runner.machine import Calls, Machine, Steps
from em.runner.routine import CompiledStep
from em.runner.run import Declined, Failed, Failure, Pause, StepStatus, failure_of
from em.runner.tools import Tool
from em.values.canonical import Json
from em.workflows.builtins import Sourced
from em.workflows.needs import FETCHED, Need
from em.workflows.plan import APPROVE, ASK, Plan, PlannedStep
from em.workflows.slices import (
    Brought,
    RunContext,
    failed_slice,
    record_of,
    recording,
    slice_of,
    slices_of,
)

Fetch = Callable[[Need, Sequence[Any]], Sourced]
"""Fetches what a need asks for from outside the run; the need's arguments are filled in."""


class StepEnd(NamedTuple):
    """How a step ended, and the value that its call returned."""

    status: StepStatus
    value: Any = None
    error: str = ""


class Conductor:
    """Gathers the context of each step of one run, and keeps what it leaves.

    done: how steps ended before the run was resumed. fetched: what they had been given from outside
    the run.
    """

    def __init__(
        self,
        plan: Plan,
        context: RunContext,
        fetch: Fetch,
        run_id: str,
        *,
        restored: Restored | None = None,
        done: Mapping[str, PastStep] | None = None,
        fetched: Mapping[str, Json] | None = None,
    ) -> None:
        self._plan = plan
        self._context = context
        self._fetch = fetch
        self._done = done or {}
        self._redacted = {step for step, _ in restored.redacted} if restored else set()
        self._fetched: dict[str, Json] = {name: dict(one) for name, one in (fetched or {}).items()}
        self._brought: dict[str, Brought] = {}
        self._answers: dict[str, Any] = {}
        self._base: Json = {**SCOPE, "params": context.params, "run_id": run_id}
        self._lock = threading.Lock()
        self._sources: dict[str, dict[str, None]] = {}
        self.sources = self._sources
        self.width = plan.workflow.width if plan.workflow.is_parallel else 0
        self.outputs: dict[str, Any] = {}
        self.warnings: list[str] = []

    def recorded(self, tools: Mapping[str, Tool]) -> Mapping[str, Tool]:
        """Make the tools of the steps, which are this run's own, return records."""
        for name, tool in tools.items():
            recording(
                tool,
                functools.partial(self._extras, name),
                functools.partial(self.note_sources, name),
            )
        return tools

    def waits_for(self, step: CompiledStep) -> Collection[str]:
        """Return the steps whose output it needs, and those it depends on."""
        return self._plan.step(step.id).waits_for

    def past(self, step: CompiledStep) -> StepEnd | None:
        """Return how a step ended before; None if its result was redacted or is one of many."""
        done = self._done.get(step.id)
        if done is None or step.id in self._redacted:
            return None
        if done.status in ("skipped", "defaulted"):
            return StepEnd(done.status, None, done.error)  # type: ignore[arg-type]  # one of these two
        return StepEnd("done", done.result or {}, done.error) if step.for_each is None else None

    def fetch(self, step: CompiledStep) -> Steps | None:
        """Fetch the needs of a step that come from outside the run."""
        planned = self._plan.step(step.id)
        fetched = self._fetched.setdefault(step.id, {})
        wanted = [
            need for need in planned.needs if need.kind in FETCHED and need.text not in fetched
        ]
        return self._fetching(planned, wanted) if wanted else None

    def _fetching(self, step: PlannedStep, wanted: Sequence[Need]) -> Steps:
        fetched = self._fetched[step.name]
        for need in wanted:
            values, _ = self._context.memory_for(step.needs, fetched, step.before)
            brought = Brought(values, strict=False, place=f"step {step.name}")
            asked = [ask({**self._base, "memory": brought}) for ask in need.asks]
            found: Sourced = yield CallTool(self._fetch, {"need": need, "asked": asked})
            fetched[need.text] = found.value
            self.note_sources(step.name, found.from_events)

    def scope(self, step: CompiledStep) -> Json:
        """Return what the step's templates see: its needs, the parameters, and nothing else."""
        planned, strict = self._plan.step(step.id), self._plan.workflow.strict
        fetched = self._fetched.get(step.id, {})
        values, unmet = self._context.memory_for(planned.needs, fetched, planned.before)
        brought = Brought(values, strict=strict, place=f"step {step.id}")
        for text in unmet:
            if strict or any(need.must for need in planned.needs if need.text == text):
                raise self._unmet(planned, text)
            brought.unmet.append(f"nothing meets the need {text!r}")
        self._brought[step.id] = brought
        return {**self._base, "memory": brought}

    def _unmet(self, step: PlannedStep, text: str) -> WorkflowError:
        left = sorted({one.name for one in self._context.left_by(step.before) if one.name})
        return WorkflowError(
            f"nothing meets the need {text!r}",
            place=f"step {step.name}, field memory.needs",
            fix=f"there is output of: {', '.join(left)}" if left else "no step has left anything",
        )

    def agree(self, step: CompiledStep, answer: Json) -> bool:
        """Take an approval; or the answer to `ask`, which is the result of its tool."""
        if self._plan.step(step.id).definition.tool != ASK:
            return bool(answer[APPROVE])
        self._answers[step.id] = next(iter(answer.values())) if len(answer) == 1 else answer
        return True

    def answer_of(self, step: str) -> Any:
        """Return what a person answered to `ask`: the function of its tool."""
        return self._answers[step]

    def note_sources(self, step: str, event_ids: Sequence[str]) -> None:
        """Note that the result of a step will contain something of these events."""
        if not event_ids:
            return
        with self._lock:
            self._sources.setdefault(step, {}).update(dict.fromkeys(event_ids))

    def _extras(self, name: str) -> Json:
        """Return what is stored with a step's result, so that `inspect` shows what it was given."""
        fetched, warnings = self._fetched.get(name), self._brought[name].warnings()
        extras: Json = {"memory": fetched} if fetched else {}
        return {**extras, "warnings": warnings} if warnings else extras

    def ended(self, step: CompiledStep, end: StepEnd) -> None:
        """Keep the slices that a step left."""
        brought = self._brought.get(step.id)
        warnings = [] if brought is None else brought.warnings()
        if warnings:
            with self._lock:
                self.warnings += [f"step {step.id}: {text}" for text in warnings]
        if end.status == "skipped":
            return
        if end.status == "defaulted":
            self._context.leave(step.id, [failed_slice(step.id, end.error)])
            return
        is_list = step.for_each is not None
        records = list(map(record_of, end.value)) if is_list else [record_of(end.value)]
        if not is_list and "saved" not in records[0]:
            slices = [slice_of(step.id, records[0])]  # as nearly every step
        else:
            slices = list(slices_of(step.id, records, is_list=is_list))
        self.outputs[step.id] = slices[-1].output
        self._context.leave(step.id, slices)

    def output(self) -> Any:
        """Return the output of the last step that has one."""
        ran = [step.name for step in self._plan.steps if step.name in self.outputs]
        return self.outputs[ran[-1]] if ran else None


# ---- the ensemble: the steps of a workflow on the runner's machine


class Ensemble(Machine):
    """One run of a workflow. In a parallel run the conductor is asked by several threads."""

    def __init__(
        self, *program: Any, conductor: Conductor, write: WriteNotes, **options: Any
    ) -> None:
        """Take what a machine takes. write: writes the notes of steps that run side by side."""
        self._conductor, self._write = conductor, write
        if conductor.width:
            options |= {name: _in_turn(options.get(name)) for name in ("on_start", "on_step")}
        super().__init__(*program, **options)

    def _line(self, notes: list[Note] | None) -> Calls:
        calls = super()._line(notes)
        calls.notebook.sources = self._conductor.sources
        return calls

    def _with_effects(self, failure: Failure) -> Failure:
        return failure  # what was done is in the slices

    def _steps(self) -> Steps:
        """Run the steps: in their order, or side by side."""
        if self._conductor.width:
            yield from self._notebook.announce()
            yield CallTool(self._side_by_side, {})
            order = {step.id: n for n, step in enumerate(self._program.steps)}
            self._reports.made.sort(key=lambda report: order[report.id])
        else:
            for step in self._program.steps:
                yield from self._guided(step, self._calls)
        return self._conductor.output()

    def _guided(self, step: CompiledStep, calls: Calls) -> Steps:
        """Run one step with what the conductor does around it."""
        start, conductor = time.perf_counter(), self._conductor
        if self._on_start is not None:
            self._on_start(step.id)
        past = conductor.past(step)
        if past is not None:
            calls.reports.add(step.id, past.status, 0, start, past.error)
            conductor.ended(step, past)
            return
        try:
            fetching = conductor.fetch(step)
            if fetching is not None:
                # Others may take their time to answer: store what was done before asking them.
                yield from calls.notebook.announce()
                yield from fetching
            scope = conductor.scope(step)
            if step.when is not None and not step.when(scope):
                calls.reports.add(step.id, "skipped", 0, start)
                calls.notebook.end_step(step.id, "skipped")
                return
            if step.gate is not None and not conductor.agree(step, self._ask(step.gate, scope)):
                raise Declined("a person did not agree to this step", place=f"step {step.id}")
        except EmError as error:
            failure = failure_of(step.id, error, {})
            calls.given_up(step, failure, 0, start)
            calls.notebook.end_step(step.id, "defaulted", failure.message)
            conductor.ended(step, StepEnd("defaulted", None, failure.message))
            return
        if step.for_each is None:
            value = yield from calls.once(step, scope, None, start)
            last = calls.reports.made[-1]
            conductor.ended(step, StepEnd(last.status, value, last.error))
        else:
            items = self._evaluated(step, step.for_each, scope)
            value = yield from calls.for_each(step, items, scope, start)
            conductor.ended(step, StepEnd("done", value))

    def _side_by_side(self) -> None:
        """Run every step as soon as it can, `width` at a time, each in a thread of its own.

        After a failure or a question no step begins. A failure ends the run; otherwise it pauses
        for the first question, in the order of the steps.
        """
        waiting = list(self._program.steps)
        order = {step.id: n for n, step in enumerate(waiting)}
        over: set[str] = set()
        running: set[str] = set()
        ended: queue.SimpleQueue[tuple[CompiledStep, Calls, BaseException | None]]
        ended = queue.SimpleQueue()
        problems: list[tuple[int, BaseException]] = []
        while running or (waiting and not problems):
            ready = [step for step in waiting if over.issuperset(self._conductor.waits_for(step))]
            while ready and not problems and len(running) < self._conductor.width:
                step = ready.pop(0)
                waiting.remove(step)
                running.add(step.id)
                self._start(step, ended)
            if not running:
                break
            step, calls, error = ended.get()
            running.discard(step.id)
            over.add(step.id)
            self._reports.made += calls.reports.made
            if error is not None:
                problems.append((order[step.id], error))
        if problems:
            problems.sort(key=lambda problem: (isinstance(problem[1], Pause), problem[0]))
            raise problems[0][1]

    def _start(self, step: CompiledStep, ended: "queue.SimpleQueue[Any]") -> None:
        calls = self._line([])

        def work() -> None:
            error: BaseException | None = None
            try:
                drive(_alone(self._guided(step, calls), calls.notebook), self._write)
            except BaseException as problem:  # noqa: BLE001 - the thread that waits raises it
                error = problem
            ended.put((step, calls, error))

        context = contextvars.copy_context()
        # A daemon: Ctrl-C does not wait for it.
        threading.Thread(target=context.run, args=(work,), daemon=True).start()


def _alone(steps: Steps, notebook: Notebook) -> Steps:
    """Run one step and write its notes at once, also if it fails or asks."""
    try:
        yield from steps
    except (Failed, Pause):
        yield from notebook.announce()
        raise
    yield from notebook.announce()


def _in_turn(notify: Callable[[Any], None] | None) -> Callable[[Any], None] | None:
    """Return a callback that one thread calls at a time."""
    if notify is None:
        return None
    lock = threading.Lock()

    def notified(what: Any) -> None:
        with lock:
            notify(what)

    return notified
