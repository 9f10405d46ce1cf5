"""Pages of runs, of routines and workflows: lists, one run as a waterfall, prompts to answer."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from litestar import Response, get, post

from em.errors import EmError, NotFound, StoreBusy, UsageError
from em.log.event import run_stream
from em.log.summary import Cursor
from em.memory import Memory
from em.runner.agreement import INPUTS
from em.runner.history import (
    STATUSES,
    PastRun,
    PastStep,
    RunFilter,
    RunKind,
    RunSummary,
    find_runs,
    read_run,
    savings,
)
from em.runner.journal import how_to_resume
from em.runner.package import find_routine, routine_of
from em.runner.routine import Routine
from em.serve.auth import PAGES
from em.serve.pages.drawing import spans
from em.serve.pages.forms import form_of, prompt_fields, read_fields
from em.serve.pages.table import SINCE, SUBJECT, UNTIL, Column, Filter, Found, ListShape, ListView
from em.serve.pages.view import address, go_to, page, parameter
from em.serve.service import AnyRequest, Service, service_of
from em.store.protocol import Store
from em.values.canonical import Json
from em.values.ids import new_id
from em.workflows.inspection import inspect_run

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
    lines = past.timeline
    began = [(line.began.timestamp(), line.duration_ms / 1e3) for line in lines]
    prompt = past.prompt
    return page(
        request,
        "run.html",
        code=200 if problem is None else 400,
        marks=marks,
        run=past,
        lines=list(zip(lines, spans(began), strict=True))[:MOST_STEPS],
        left_out=max(0, len(lines) - MOST_STEPS),
        kinds=_kinds(service.store, past),
        seconds=_seconds(past),
        saved=savings(service.store, past) if past.status == "ok" else [],
        prompt=prompt,
        asks_inputs=(prompt or {}).get("step_id") == INPUTS,
        stopped_by=(past.failure or {}).get("error_type", ""),
        done=((past.failure or {}).get("context") or {}).get("done", ()),
        fields=prompt_fields(prompt.get("fields", ())) if prompt else [],
        resume=how_to_resume(run_id, past.resume_with),
        is_live=past.status == "running",
        problem=problem,
    )


def _seconds(past: PastRun) -> float | None:
    return None if past.ended is None else (past.ended - past.began).total_seconds()


def _kinds(store: Store, past: PastRun) -> dict[str, Any]:
    """Return the steps of a stored routine by id; empty for one in a folder."""
    try:
        routine: Routine = routine_of(find_routine(store, past.stored))
    except EmError:
        return {}
    return {step.id: step for step in routine.steps}


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
    pos = service.store.head(run_stream(run_id))[0]
    seen = inspect_run(service.store, run_id)
    most = max((step.tokens.full for step in seen.steps if step.tokens), default=0) or 1
    prompt = seen.pending_prompt
    return page(
        request,
        "workflow.html",
        code=200 if problem is None else 400,
        seen=seen,
        most=most,
        pos=pos,
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


HANDLERS = [get_runs, get_run, post_answer, get_workflows, get_workflow, post_workflow_answer]
