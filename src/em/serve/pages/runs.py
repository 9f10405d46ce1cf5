"""Pages of runs, of routines and workflows: lists, one run as a waterfall, prompts to answer."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from litestar import Response, get, post

from em.compiler.checks import Check, to_strike, value_in_words
from em.errors import EmError, NotFound, StoreBusy, UsageError
from em.log.event import run_stream
from em.log.summary import Cursor
from em.memory import Memory
from em.runner.cancellation import cancel_run
from em.runner.history import (
    STATUSES,
    PastRun,
    PastStep,
    RunFilter,
    RunKind,
    RunSummary,
    find_runs,
    read_run,
    read_stored_run,
    savings,
)
from em.runner.journal import how_to_resume
from em.runner.package import find_routine, routine_of
from em.runner.retry import RETRIED, refuse_retry, retry_problem
from em.runner.routine import Routine
from em.runner.run import INPUTS
from em.serve.auth import PAGES
from em.serve.pages.drawing import spans
from em.serve.pages.forms import form_of, prompt_fields, read_fields
from em.serve.pages.table import SINCE, SUBJECT, UNTIL, Column, Filter, Found, ListShape, ListView
from em.serve.pages.view import address, go_to, page, parameter
from em.serve.service import AnyRequest, Service, service_of
from em.store.protocol import Store
from em.values.canonical import Json
from em.values.times import new_id, now
from em.workflows.inspection import PastWorkflow, inspect_run, view_of

AT_ONCE = 8
FIRST_NOTE = 10.0
"""Seconds to wait for the first event of a run before showing its page."""


class Background:
    """Start and resume runs in threads. A run that dies with the process can be resumed."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._free = threading.BoundedSemaphore(AT_ONCE)

    def start(self, ref: str, input_data: Json) -> str:
        """Start a run of a stored routine and return its id, or raise if it can't start."""
        # Pass the routine itself: the name alone could be taken for a folder on this machine.
        routine = routine_of(find_routine(self._memory.store, ref))
        run_id = new_id()
        self._do(run_id, 0, lambda: self._memory.run(routine, input_data, run_id=run_id))
        return run_id

    def retry(self, run_id: str, by: str, kind: RunKind) -> None:
        """Take up a run that failed or was cancelled, where it stopped."""
        past = read_stored_run(self._memory.store, run_id, kind)
        refuse_retry(past, UsageError)
        resume = self._memory.resume if kind == "routine" else self._memory.workflows().resume
        self._do(run_id, past.pos, lambda: resume(run_id, retry=True, by=by))

    def answer(self, run_id: str, answers: dict[str, Any]) -> None:
        """Resume a run with answers to its prompt."""
        pos = read_run(self._memory.store, run_id).pos
        self._do(run_id, pos, lambda: self._memory.resume(run_id, answers=answers))

    def answer_workflow(self, run_id: str, answers: dict[str, Any]) -> None:
        """Resume a run of a workflow with answers to its prompt or gate."""
        pos = self._memory.store.head(run_stream(run_id))[0]
        runner = self._memory.workflows()
        self._do(run_id, pos, lambda: runner.resume(run_id, answers=answers))

    def finish(self, seconds: float) -> None:
        """Wait for the runs in progress, at most this long."""
        deadline = time.monotonic() + seconds
        for _ in range(AT_ONCE):
            if not self._free.acquire(timeout=max(deadline - time.monotonic(), 0)):
                return

    def _do(self, run_id: str, pos: int, work: Callable[[], object]) -> None:
        if not self._free.acquire(blocking=False):
            raise StoreBusy(
                f"{AT_ONCE} runs are in progress already", fix="wait until one of them ends"
            )
        problem: list[BaseException] = []
        done = threading.Event()

        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - raised to the waiting request below
                problem.append(error)
            finally:
                self._free.release()
                done.set()

        threading.Thread(target=run, daemon=True, name=f"em-run-{run_id}").start()
        deadline = time.monotonic() + FIRST_NOTE
        while not done.wait(0.02) and time.monotonic() < deadline:
            if self._memory.store.head(run_stream(run_id))[0] > pos:
                break
        if problem and isinstance(problem[0], EmError):
            raise problem[0]
        if problem:
            raise EmError("the run could not be started") from problem[0]


def background_of(request: AnyRequest) -> Background:
    """Return the background runs of the service that a request came to."""
    found: Background = request.app.state.background
    return found


MOST_STEPS = 500


_COLUMNS = (
    Column("Status"),
    Column("Began", "began"),
    Column("Steps", "steps", is_number=True),
    Column("Details"),
)
_WORDS = Filter("q", "Words", "words", hint="name, id or input", is_first=True)
_STATUS = Filter("status", "Status", "choice", STATUSES, is_first=True)
RUNS = ListShape(
    "/runs",
    "runs",
    (Column("Routine", "routine"), *_COLUMNS),
    (_WORDS, _STATUS, Filter("routine", "Routine"), SUBJECT, SINCE, UNTIL),
    "began",
)
WORKFLOWS = ListShape(
    "/workflows",
    "workflow runs",
    (Column("Workflow", "workflow"), *_COLUMNS),
    (_WORDS, _STATUS, Filter("workflow", "Workflow"), SUBJECT, SINCE, UNTIL),
    "began",
)


@get(f"{PAGES}/runs", include_in_schema=False, sync_to_thread=True)
def get_runs(request: AnyRequest) -> Response[str]:
    """Show runs of routines: searched, filtered, sorted, page by page."""
    service = service_of(request)
    service.caller(request).must_see(None)
    view = ListView(RUNS, request)
    return page(request, "runs.html", view=view, runs=_runs(service.store, "routine", view))


def _runs(store: Store, kind: RunKind, view: ListView) -> Sequence[RunSummary]:
    subject = view.get("subject")
    chosen: RunFilter = {
        "name": view.get(kind) or None,
        "status": view.get("status"),
        "subjects": [subject] if subject else None,
        "since": view.time("since"),
        "until": view.time("until"),
    }

    def read(place: str, oldest: bool, limit: int) -> Found[RunSummary]:
        before = Cursor.of(place)
        words = view.get("q")
        found = find_runs(
            store, kind, words=words, before=before, limit=limit, oldest=oldest, **chosen
        )
        return Found(found.runs, str(found.first or ""), str(found.older or ""))

    return view.page(
        read, {kind: lambda run: run.routine.casefold(), "steps": lambda run: run.steps}
    )


@get(f"{PAGES}/run", include_in_schema=False, sync_to_thread=True)
def get_run(request: AnyRequest) -> Response[str]:
    """Show one run."""
    service = service_of(request)
    service.caller(request).must_see(None)
    return _show(request, service, parameter(request, "id"))


def _show(
    request: AnyRequest, service: Service, run_id: str, problem: EmError | None = None
) -> Response[str]:
    past = read_run(service.store, run_id)
    lines = [_timed(line, past.ended) for line in past.timeline]
    began = [(line.began.timestamp(), line.duration_ms / 1e3) for line in lines]
    prompt, kinds = past.prompt, _kinds(service.store, past)
    return page(
        request,
        "run.html",
        code=200 if problem is None else 400,
        marks=marks,
        run=past,
        lines=list(zip(lines, spans(began), strict=True))[:MOST_STEPS],
        left_out=max(0, len(lines) - MOST_STEPS),
        kinds=kinds,
        to_come=_to_come(past, kinds),
        is_now=past.status == "running" and all(line.status != "under way" for line in lines),
        seconds=_seconds(past),
        saved=savings(service.store, past) if past.status == "ok" else [],
        prompt=prompt,
        stopped_by=(past.failure or {}).get("error_type", ""),
        done=((past.failure or {}).get("context") or {}).get("done", ()),
        fields=prompt_fields(prompt.get("fields", ())) if prompt else [],
        resume=how_to_resume(run_id, past.resume_with),
        retry=how_to_resume(run_id, f"--retry {past.resume_with}"),
        retry_problem=_retry_problem(past),
        is_told=_may_grow(past),
        is_live=past.status == "running",
        recorded=_recorded(past),
        to_strike=_to_strike(service.store, past),
        problem=problem,
    )


def _to_strike(store: Store, past: PastRun) -> tuple[str, list[Check]] | None:
    """Return the version and the checks of it that a person can strike after a hand-over."""
    reason = past.result().reason if past.reason is not None else None
    return to_strike(store, past.stored, reason) if reason is not None and past.stored else None


def _recorded(past: PastRun) -> Any:
    """Return what the check of a hand-over expects: in words, if it is a schema."""
    recorded = (past.reason or {}).get("recorded")
    return value_in_words(recorded) if isinstance(recorded, dict) else recorded


def _may_grow(past: PastRun) -> bool:
    """Return whether more may come: also the result of a call that a cancelled run waits for."""
    is_waiting = past.status == "cancelled" and bool(past.restored.in_flight)
    return is_waiting or not past.is_over


def _retry_problem(past: PastRun) -> str | None:
    """Return why a run can't be retried, empty if it can; None where the question is not there."""
    return retry_problem(past) if past.status in RETRIED else None


def _timed(line: PastStep, ended: datetime | None) -> PastStep:
    """Return a step that has no result with the time that it took until the end, or until now."""
    if line.duration_ms or line.status not in ("under way", "failed"):
        return line
    took = ((ended or now()) - line.began).total_seconds() * 1e3
    return msgspec.structs.replace(line, duration_ms=max(0.0, took))


def _to_come(past: PastRun, kinds: Mapping[str, Any]) -> list[Any]:
    """Return the steps of a stored routine behind the last one that the journal has."""
    if past.status not in ("running", "needs_input", "cancelled"):
        return []
    known = {line.step for line in past.timeline} | ({*past.restored.answers} & kinds.keys())
    names = [*kinds]
    reached = max((names.index(name) for name in known if name in kinds), default=-1)
    return [kinds[name] for name in names[reached + 1 :]]


def _seconds(past: PastRun) -> float | None:
    return None if past.ended is None else (past.ended - past.began).total_seconds()


def _kinds(store: Store, past: PastRun) -> dict[str, Any]:
    """Return the steps of a stored routine by id; empty for one in a folder."""
    try:
        routine: Routine = routine_of(find_routine(store, past.stored))
    except EmError:
        return {}
    return {step.id: step for step in routine.all_steps}


@post(f"{PAGES}/answer", include_in_schema=False)
async def post_answer(request: AnyRequest) -> Response[str]:
    """Answer a run's prompt and resume the run."""
    form = await form_of(request)
    service = service_of(request)
    service.caller(request, "write").must_see(None)
    run_id = str(form.get("id", ""))

    def work() -> Response[str]:
        past = read_run(service.store, run_id)
        prompt = past.prompt
        if prompt is None:
            raise UsageError(
                f"the run is not waiting for an answer: {past.status}", place=f"run {run_id}"
            )
        if not past.stored:
            raise NotFound(
                "only runs of stored routines can be resumed here", place=f"run {run_id}"
            )
        try:
            answer = read_fields(prompt_fields(prompt.get("fields", ())), form)
            if prompt["step_id"] == INPUTS:
                # An empty field is a value that is still missing.
                answer = {name: value for name, value in answer.items() if value != ""}
            background_of(request).answer(run_id, {str(prompt["step_id"]): answer})
        except EmError as problem:
            return _show(request, service, run_id, problem)
        return go_to(address("/run", id=run_id))

    return await asyncio.to_thread(work)


def marks(line: PastStep) -> str:
    """Return the CSS class of a row of the waterfall."""
    if line.status == "failed" or (line.error and not line.fix):
        return "failed"
    return "fixed" if line.fix or line.status == "defaulted" else line.status.replace(" ", "-")


Act = Callable[[Background, Service, str, str], object]
"""Does something with a run: takes its id, and the name of who wants it."""


async def _act(request: AnyRequest, kind: RunKind, act: Act) -> Response[str]:
    """Do what a form on the page of a run asks for, and show the run again."""
    form = await form_of(request)
    service = service_of(request)
    caller = service.caller(request, "write")
    caller.must_see(None)
    run_id = str(form.get("id", ""))
    show = _show_workflow if kind == "workflow" else _show

    def work() -> Response[str]:
        try:
            act(background_of(request), service, run_id, caller.name)
        except NotFound:
            raise
        except EmError as problem:
            return show(request, service, run_id, problem)
        return go_to(address("/workflow" if kind == "workflow" else "/run", id=run_id))

    return await asyncio.to_thread(work)


def _cancel(kind: RunKind, _: Background, service: Service, run_id: str, by: str) -> None:
    cancel_run(service.store, run_id, by=by, kind=kind)


def _retry(kind: RunKind, background: Background, _: Service, run_id: str, by: str) -> None:
    background.retry(run_id, by, kind)


@post(f"{PAGES}/run/cancel", include_in_schema=False)
async def post_cancel(request: AnyRequest) -> Response[str]:
    """Stop a run before its next step."""
    return await _act(request, "routine", partial(_cancel, "routine"))


@post(f"{PAGES}/run/retry", include_in_schema=False)
async def post_retry(request: AnyRequest) -> Response[str]:
    """Take up a run where it stopped."""
    return await _act(request, "routine", partial(_retry, "routine"))


@post(f"{PAGES}/workflow/cancel", include_in_schema=False)
async def post_workflow_cancel(request: AnyRequest) -> Response[str]:
    """Stop a run of a workflow before its next step."""
    return await _act(request, "workflow", partial(_cancel, "workflow"))


@post(f"{PAGES}/workflow/retry", include_in_schema=False)
async def post_workflow_retry(request: AnyRequest) -> Response[str]:
    """Take up a run of a workflow where it stopped."""
    return await _act(request, "workflow", partial(_retry, "workflow"))


@get(f"{PAGES}/workflows", include_in_schema=False, sync_to_thread=True)
def get_workflows(request: AnyRequest) -> Response[str]:
    """Show runs of workflows: searched, filtered, sorted, page by page."""
    service = service_of(request)
    service.caller(request).must_see(None)
    view = ListView(WORKFLOWS, request)
    return page(request, "workflows.html", view=view, runs=_runs(service.store, "workflow", view))


@get(f"{PAGES}/workflow", include_in_schema=False, sync_to_thread=True)
def get_workflow(request: AnyRequest) -> Response[str]:
    """Show one run of a workflow, step by step."""
    service = service_of(request)
    service.caller(request).must_see(None)
    return _show_workflow(request, service, parameter(request, "id"))


def _show_workflow(
    request: AnyRequest, service: Service, run_id: str, problem: EmError | None = None
) -> Response[str]:
    past = PastWorkflow.read(service.store, run_id)
    seen = view_of(past)
    most = max((step.tokens.full for step in seen.steps if step.tokens), default=0) or 1
    prompt = seen.pending_prompt
    return page(
        request,
        "workflow.html",
        code=200 if problem is None else 400,
        seen=seen,
        most=most,
        run=past.run,
        seconds=_seconds(past.run),
        retry_problem=_retry_problem(past.run),
        is_told=_may_grow(past.run),
        retry=how_to_resume(run_id, f"--retry {seen.resume_with}"),
        fields=[] if prompt is None else prompt_fields(prompt.fields),
        is_live=seen.status == "running",
        problem=problem,
    )


@post(f"{PAGES}/workflow/answer", include_in_schema=False)
async def post_workflow_answer(request: AnyRequest) -> Response[str]:
    """Answer the prompt or gate of a workflow's run, and resume it."""
    form = await form_of(request)
    service = service_of(request)
    service.caller(request, "write").must_see(None)
    run_id = str(form.get("id", ""))

    def work() -> Response[str]:
        prompt = inspect_run(service.store, run_id).pending_prompt
        if prompt is None:
            raise UsageError("the run is not waiting for an answer", place=f"run {run_id}")
        try:
            answer = read_fields(prompt_fields(prompt.fields), form)
            background_of(request).answer_workflow(run_id, {prompt.step_id: answer})
        except EmError as problem:
            return _show_workflow(request, service, run_id, problem)
        return go_to(address("/workflow", id=run_id))

    return await asyncio.to_thread(work)


HANDLERS = [
    get_runs,
    get_run,
    post_answer,
    post_cancel,
    post_retry,
    get_workflows,
    get_workflow,
    post_workflow_answer,
    post_workflow_cancel,
    post_workflow_retry,
]
