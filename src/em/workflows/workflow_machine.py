"""The machine of a workflow: the runner's, with needs before each step and slices behind it.

In the order of the file, or, in a parallel workflow, each step as soon as what it waits for is
over: then every step has a notebook of its own and is written when it is done.
"""

import queue
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

import msgspec

from em.errors import EmError, WorkflowError
from em.runner.drivers import WriteNotes, drive
from em.runner.effects import CallTool, Effect
from em.runner.expressions.language import FUNCTIONS
from em.runner.journal import Note, Notebook, Restored
from em.runner.machine import Calls, Machine, Steps
from em.runner.run import Failed, Pause, Reports, RunResult, StepReport, failure_of
from em.runner.secrets import Secrets
from em.runner.tools import Tool
from em.values.canonical import Json
from em.workflows.builtins import Sourced
from em.workflows.needs import FETCHED, Need
from em.workflows.plan import APPROVE, ASK, Plan, PlannedStep
from em.workflows.slices import Brought, Context, as_record, failed_slice, recording, slices_of

Fetch = Callable[[Need, Sequence[Any]], Sourced]
"""Gets what a need asks for that is not of the run; its arguments are filled in."""


class Declined(WorkflowError):
    """A person did not agree."""

    code = "declined"


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal has of a step that is over."""

    status: str
    records: Sequence[Json]
    error: str = ""


class _Given:
    """What a step was given: by its needs, from elsewhere, and by a person."""

    __slots__ = ("answer", "brought", "fetched")

    def __init__(self, brought: Brought, fetched: Json) -> None:
        self.brought = brought
        self.fetched = fetched
        self.answer: Any = None


class _Worker:
    """What one line of steps uses: a notebook and reports, and the calls that fill them."""

    def __init__(self, notebook: Notebook, reports: Reports, calls: Calls) -> None:
        self.notebook = notebook
        self.reports = reports
        self.calls = calls


class WorkflowMachine(Machine):
    """One run of a workflow."""

    def __init__(
        self,
        plan: Plan,
        *,
        run_id: str,
        context: Context,
        tools: Mapping[str, Tool],
        fetch: Fetch,
        write: WriteNotes,
        notes: list[Note],
        answers: Mapping[str, Json],
        restored: Restored | None = None,
        done: Mapping[str, Done] | None = None,
        known: Mapping[str, Json] | None = None,
        secrets: Secrets | None = None,
        on_step: Callable[[StepReport], None] | None = None,
        on_start: Callable[[str], None] | None = None,
    ) -> None:
        self._plan = plan
        self._context = context
        self._fetch = fetch
        self._write_notes = write
        self._done = done or {}
        # What steps that were under way had been given from elsewhere.
        self._known_needs = known or {}
        self._given: dict[str, _Given] = {}
        self._from_events: dict[str, dict[str, None]] = {}
        self._lock = threading.Lock()
        self._wrapped = {
            name: recording(tool, name, lambda name=name: self._extras(name))  # type: ignore[misc]  # the name is bound early
            for name, tool in tools.items()
        }
        self._restored_before, self._said = restored, answers
        super().__init__(
            plan.program,
            run_id=run_id,
            tools=self._wrapped,
            udfs={},
            answers=answers,
            on_step=self._one_at_a_time(on_step),
            on_start=self._one_at_a_time(on_start),
            notes=notes,
            restored=restored,
            secrets=secrets,
        )
        self._notebook.sources = self._sources
        self._tell = self._one_at_a_time(on_step)
        self.outputs: dict[str, Any] = {}
        self.warnings: list[str] = []

    def _one_at_a_time(self, tell: Callable[[Any], None] | None) -> Callable[[Any], None] | None:
        """Who looks on is told by one thread at a time."""
        if tell is None:
            return None

        def told(what: Any) -> None:
            with self._lock:
                tell(what)

        return told

    def run(self, input_data: Json) -> Generator[Effect, Any, RunResult]:
        """Yield effects until there is a result."""
        self._base: Json = {**FUNCTIONS, "params": input_data, "run_id": self._run_id}
        return super().run({})

    def _steps(self) -> Steps:
        if self._plan.workflow.is_parallel:
            yield from self._notebook.announce([])
            yield CallTool(self._side_by_side, {})
        else:
            worker = _Worker(self._notebook, self._reports, self._calls)
            for step in self._plan.steps:
                yield from self._step(step, worker)
        order = {step.name: n for n, step in enumerate(self._plan.steps)}
        self._reports.made.sort(key=lambda report: order[report.id])
        ran = [step.name for step in self._plan.steps if step.name in self.outputs]
        return self.outputs[ran[-1]] if ran else None

    # One step.

    def _step(self, step: PlannedStep, worker: _Worker) -> Steps:
        start = time.perf_counter()
        if self._on_start is not None:
            self._on_start(step.name)
        before = self._over_before(step)
        if before is not None:
            self._take_up(step, before, worker, start)
            return
        try:
            scope, brought = yield from self._scope_for(step, worker)
            if step.when is not None and not step.when(scope):
                self._pass_over(step, worker, start)
                return
            agreed = self._agreed(step, scope)
        except EmError as error:
            failure = failure_of(step.name, error, {})
            worker.calls.given_up(step.call, failure, 0, start)
            self._note_failed(step, worker, failure.message)
            return
        if not agreed:
            refused = Declined("a person did not agree to this step", place=f"step {step.name}")
            worker.calls.given_up(step.call, failure_of(step.name, refused, {}), 0, start)
            self._note_failed(step, worker, refused.message)
            return
        value = yield from self._called(step, scope, worker, start)
        self._tell_warnings(step, brought)
        self._leave(step, value, worker)

    def _over_before(self, step: PlannedStep) -> Done | None:
        """A step that is over is taken from the journal; a redacted result is not all of it."""
        done = self._done.get(step.name)
        redacted = self._restored_before.redacted if self._restored_before else set()
        if done is None or any(key[0] == step.name for key in redacted):
            return None
        return done if step.call.for_each is None or done.status != "done" else None

    def _take_up(self, step: PlannedStep, done: Done, worker: _Worker, start: float) -> None:
        status = done.status if done.status in ("skipped", "defaulted") else "done"
        worker.reports.add(step.name, status, 0, start, done.error)  # type: ignore[arg-type]  # as the journal has it
        if status == "done":
            self._leave(step, done.records[0], worker)
        elif status == "defaulted":
            self._context.leave(step.name, [failed_slice(step.name, done.error)])

    def _scope_for(
        self, step: PlannedStep, worker: _Worker
    ) -> Generator[Effect, Any, tuple[Json, Brought]]:
        """What the step's templates see: its needs, the parameters, and nothing else."""
        fetched: Json = dict(self._known_needs.get(step.name) or {})
        place = f"step {step.name}"
        strict = self._plan.workflow.strict
        if any(need.kind in FETCHED and need.text not in fetched for need in step.needs):
            # What was done so far is kept before others are asked, which may take its time.
            yield from worker.notebook.announce([])
        for need in step.needs:
            if need.kind in FETCHED and need.text not in fetched:
                values, _ = self._context.memory_for(step.needs, fetched, step.before)
                scope = {**self._base, "memory": Brought(values, strict=False, place=place)}
                asked = [ask(scope) for ask in need.asks]
                found: Sourced = yield CallTool(self._fetch, {"need": need, "asked": asked})
                fetched[need.text] = found.value
                self.note_sources(step.name, found.from_events)
        values, unmet = self._context.memory_for(step.needs, fetched, step.before)
        brought = Brought(values, strict=strict, place=place)
        for text in unmet:
            if strict or any(need.must for need in step.needs if need.text == text):
                raise self._unmet(step, text)
            brought.unmet.append(f"nothing meets the need {text!r}")
        self._given[step.name] = _Given(brought, fetched)
        return {**self._base, "memory": brought}, brought

    def note_sources(self, step: str, event_ids: Sequence[str]) -> None:
        """The result of a step will hold something of these events."""
        with self._lock:
            self._from_events.setdefault(step, {}).update(dict.fromkeys(event_ids))

    def _sources(self, step: str) -> Sequence[str]:
        return [*self._from_events.get(step, ())]

    def _unmet(self, step: PlannedStep, text: str) -> WorkflowError:
        left = sorted({one.name for one in self._context.left_by(step.before) if one.name})
        return WorkflowError(
            f"nothing meets the need {text!r}",
            place=f"step {step.name}, field memory.needs",
            fix=f"there is output of: {', '.join(left)}" if left else "no step has left anything",
        )

    def _extras(self, name: str) -> Json:
        """What is kept with a step's result, so that `inspect` can show what it was given."""
        given = self._given[name]
        warnings = given.brought.warnings()
        if not warnings and not given.fetched:
            return {}
        extras: Json = {"memory": given.fetched} if given.fetched else {}
        return {**extras, "warnings": warnings} if warnings else extras

    def _tell_warnings(self, step: PlannedStep, brought: Brought) -> None:
        warnings = brought.warnings()
        if warnings:
            with self._lock:
                self.warnings += [f"step {step.name}: {text}" for text in warnings]

    def _pass_over(self, step: PlannedStep, worker: _Worker, start: float) -> None:
        worker.reports.add(step.name, "skipped", 0, start)
        worker.notebook.add("step_done", {"step": step.name, "status": "skipped"})

    def _note_failed(self, step: PlannedStep, worker: _Worker, message: str) -> None:
        """The workflow goes on after a step that failed before its call."""
        body = {"step": step.name, "status": "defaulted", "error": message, "attempts": 0}
        worker.notebook.add("step_done", body)
        self._context.leave(step.name, [failed_slice(step.name, message)])

    def _agreed(self, step: PlannedStep, scope: Json) -> bool:
        """Ask what there is to ask; what a person said to `ask` is its tool's result."""
        if step.prompt is None:
            return True
        answer = self._ask(step.prompt, scope)
        if step.definition.tool != ASK:
            return bool(answer[APPROVE])
        only = next(iter(answer.values())) if len(answer) == 1 else answer
        self._given[step.name].answer = only
        return True

    def answer_of(self, step: str) -> Any:
        """What was answered to `ask`: the function of its tool."""
        return self._given[step].answer

    def _called(self, step: PlannedStep, scope: Json, worker: _Worker, start: float) -> Steps:
        if step.call.for_each is None:
            return (yield from worker.calls.once(step.call, scope, None, start))
        try:
            items = step.call.for_each(scope)
        except EmError as error:
            raise Failed(failure_of(step.name, error, {})) from error
        return (yield from worker.calls.for_each(step.call, items, scope, start))

    def _leave(self, step: PlannedStep, value: Any, worker: _Worker) -> None:
        """What a person said of a call that nobody knew of is a result like any other."""
        last = next(report for report in reversed(worker.reports.made) if report.id == step.name)
        is_list = step.call.for_each is not None
        if not is_list and last.status == "defaulted":
            self._context.leave(step.name, [failed_slice(step.name, last.error)])
            return
        records = [
            one if isinstance(one, dict) and "output" in one else as_record(one)
            for one in (value if is_list else [value])
        ]
        slices = list(slices_of(step.name, records, is_list=is_list))
        self.outputs[step.name] = slices[-1].output
        self._context.leave(step.name, slices)

    # Side by side.

    def _side_by_side(self) -> None:
        """Run every step as soon as it may, some at a time; whoever waits for a person waits."""
        waiting = list(self._plan.steps)
        over: set[str] = set()
        running: set[str] = set()
        ended: queue.SimpleQueue[tuple[PlannedStep, _Worker, BaseException | None]]
        ended = queue.SimpleQueue()
        problems: list[tuple[int, BaseException]] = []
        order = {step.name: n for n, step in enumerate(self._plan.steps)}
        while running or (waiting and not problems):
            ready = [step for step in waiting if step.waits_for <= over]
            while ready and not problems and len(running) < self._plan.workflow.width:
                step = ready.pop(0)
                waiting.remove(step)
                running.add(step.name)
                self._start(step, ended)
            if not running:
                break
            step, worker, error = ended.get()
            running.discard(step.name)
            over.add(step.name)
            self._reports.made += worker.reports.made
            if error is not None:
                problems.append((order[step.name], error))
        if problems:
            # What failed ends the run; else it waits, for the first in the order of the file.
            problems.sort(key=lambda problem: (isinstance(problem[1], Pause), problem[0]))
            raise problems[0][1]

    def _start(self, step: PlannedStep, ended: "queue.SimpleQueue[Any]") -> None:
        worker = self._worker()

        def work() -> None:
            error: BaseException | None = None
            try:
                drive(self._alone(step, worker), self.write)
            except BaseException as problem:  # noqa: BLE001 - who waits for it raises it
                error = problem
            ended.put((step, worker, error))

        # A daemon: Ctrl-C does not wait for what runs on.
        threading.Thread(target=work, daemon=True).start()

    def _alone(self, step: PlannedStep, worker: _Worker) -> Generator[Effect, Any, Any]:
        try:
            yield from self._step(step, worker)
        except (Failed, Pause):
            # Also what was done before is kept.
            yield from worker.notebook.announce([])
            raise
        yield from worker.notebook.announce([])

    def write(self, notes: list[Note]) -> None:
        """Keep notes, one thread at a time."""
        with self._lock:
            self._write_notes(notes)

    def _worker(self) -> _Worker:
        notebook = Notebook([], self._restored_before, self._said, self._secrets, self._run_id)
        notebook.sources = self._sources
        reports = Reports(self._tell)
        calls = Calls(self._wrapped, {}, None, notebook, reports)
        return _Worker(notebook, reports, calls)
