"""The ensemble: the steps of a workflow on the runner's machine, led by the conductor.

They run one by one in their order, or side by side, each as soon as it can.
"""

import contextvars
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from em.errors import EmError
from em.runner.drivers import CallTool, WriteNotes, drive
from em.runner.journal import Note, Notebook
from em.runner.machine import Calls, Machine, Steps
from em.runner.routine import CompiledStep
from em.runner.run import Declined, Failed, Failure, Pause, failure_of
from em.workflows.conductor import Conductor, StepEnd


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
