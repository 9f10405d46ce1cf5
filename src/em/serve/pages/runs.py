"""Pages of runs, of routines and workflows: lists, one run as a waterfall, prompts to answer."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from litestar import Response, get, post

from em.compiler.checks import to_strike, value_in_words
from em.errors import EmError, NotFound, StoreBusy, UsageError
from em.log.event import run_stream
from em.log.summary import Cursor
from em.memory import Memory
from em.runner.history import (
    RETRIED,
    STATUSES,
    PastRun,
    PastStep,
    RunFilter,
    RunKind,
    cancel_run,
    find_runs,
    read_run,
    read_stored_run,
    refuse_retry,
    retry_problem,
    savings,
)
from em.runner.journal import how_to_resume
from em.runner.package import find_routine, routine_of
from em.runner.run import INPUTS
from em.serve.auth import PAGES, Caller
from em.serve.pages.forms import acted, prompt_fields, read_fields
from em.serve.pages.table import ROWS, SINCE, SUBJECT, UNTIL, Column, Filter, ListShape, ListView
from em.serve.pages.view import address, go_to, page, parameter
from em.serve.service import AnyRequest, Service, service_of
from em.store.protocol import Store
from em.values.canonical import Json
from em.values.times import new_id, now
from em.workflows.inspection import PastWorkflow, view_of

AT_ONCE = 8
FIRST_NOTE = 10.0
"""Seconds to wait for the first event of a run before showing its page."""
MOST_STEPS = 500


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

    def retry(self, past: PastRun, by: str) -> None:
        """Take up a run that failed or was cancelled, where it stopped."""
        refuse_retry(past, UsageError)
        resume = self._resume(past)
        self._do(past.run_id, past.pos, lambda: resume(past.run_id, retry=True, by=by))

    def answer(self, past: PastRun, answers: dict[str, Any]) -> None:
        """Resume a run with answers to its prompt or gate."""
        resume = self._resume(past)
        self._do(past.run_id, past.pos, lambda: resume(past.run_id, answers=answers))

    def _resume(self, past: PastRun) -> Callable[..., object]:
        return self._memory.workflows().resume if past.is_workflow else self._memory.resume

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


def _shape(path: str, noun: str, kind: RunKind) -> ListShape:
    label = kind.capitalize()
    columns = Column(label), Column("Status"), Column("Began"), Column("Steps", True)
    words = Filter("q", "Words", "words", hint="name, id or input", is_first=True)
    status = Filter("status", "Status", "choice", STATUSES, is_first=True)
    filters = words, status, Filter(kind, label), SUBJECT, SINCE, UNTIL
    return ListShape(path, noun, (*columns, Column("Details")), filters)


SHAPES = {
    "routine": _shape("/runs", "runs", "routine"),
    "workflow": _shape("/workflows", "workflow runs", "workflow"),
}


@get(f"{PAGES}/runs", include_in_schema=False, sync_to_thread=True)
def get_runs(request: AnyRequest) -> Response[str]:
    """Show runs of routines: searched, filtered, page by page."""
    return _list(request, "routine", "runs.html")


@get(f"{PAGES}/workflows", include_in_schema=False, sync_to_thread=True)
def get_workflows(request: AnyRequest) -> Response[str]:
    """Show runs of workflows: searched, filtered, page by page."""
    return _list(request, "workflow", "workflows.html")


def _list(request: AnyRequest, kind: RunKind, template: str) -> Response[str]:
    service = service_of(request)
    service.caller(request).must_see(None)
    view = ListView(SHAPES[kind], request)
    chosen: RunFilter = {
        "name": view.get(kind) or None,
        "status": view.get("status"),
        "subjects": [view.get("subject")] if view.get("subject") else None,
        "since": view.time("since"),
        "until": view.time("until"),
    }
    found = find_runs(
        service.store,
        kind,
        words=view.get("q"),
        before=Cursor.of(view.cursor),
        limit=ROWS,
        **chosen,
    )
    return page(request, template, view=view, runs=view.go_on(found.runs, found.older))


@get(f"{PAGES}/run", include_in_schema=False, sync_to_thread=True)
def get_run(request: AnyRequest) -> Response[str]:
    """Show one run, of a routine or of a workflow."""
    service = service_of(request)
    service.caller(request).must_see(None)
    return _show(request, service, parameter(request, "id"))


def _show(
    request: AnyRequest, service: Service, run_id: str, problem: EmError | None = None
) -> Response[str]:
    newest = service.memory.log.head_seq()  # first: what comes meanwhile is announced
    past = read_run(service.store, run_id, None)
    prompt = past.prompt
    # More may come, also the result of a call that a cancelled run waits for.
    grows = not past.is_over or (past.status == "cancelled" and bool(past.restored.in_flight))
    of_kind = _of_workflow(past) if past.is_workflow else _of_routine(service.store, past)
    return page(
        request,
        "workflow.html" if past.is_workflow else "run.html",
        code=200 if problem is None else 400,
        run=past,
        seconds=None if past.ended is None else (past.ended - past.began).total_seconds(),
        retry_problem=retry_problem(past) if past.status in RETRIED else None,
        told=address("/live", stream=run_stream(run_id), after=newest) if grows else "",
        is_live=past.status == "running",
        prompt=prompt,
        fields=prompt_fields(prompt.get("fields", ())) if prompt else [],
        problem=problem,
        **of_kind,
    )


def _of_workflow(past: PastRun) -> Json:
    seen = view_of(PastWorkflow(past))
    return {
        "seen": seen,
        "most": max((step.tokens.full for step in seen.steps if step.tokens), default=0) or 1,
        "retry": how_to_resume(past.run_id, f"--retry {seen.resume_with}"),
    }


def _of_routine(store: Store, past: PastRun) -> Json:
    lines = [_timed(line, past.ended) for line in past.timeline]
    began = [(line.began.timestamp(), line.duration_ms / 1e3) for line in lines]
    kinds = _kinds(store, past)
    reason = past.result().reason if past.reason is not None else None
    recorded = (past.reason or {}).get("recorded")
    failure = past.failure or {}
    return {
        "marks": marks,
        "lines": list(zip(lines, spans(began), strict=True))[:MOST_STEPS],
        "left_out": max(0, len(lines) - MOST_STEPS),
        "kinds": kinds,
        "to_come": _to_come(past, kinds),
        "is_now": past.status == "running" and all(one.status != "under way" for one in lines),
        "saved": savings(store, past) if past.status == "ok" else [],
        "stopped_by": failure.get("error_type", ""),
        "done": (failure.get("context") or {}).get("done", ()),
        "resume": how_to_resume(past.run_id, past.resume_with),
        "retry": how_to_resume(past.run_id, f"--retry {past.resume_with}"),
        "recorded": value_in_words(recorded) if isinstance(recorded, dict) else recorded,
        "to_strike": to_strike(store, past.stored, reason) if reason and past.stored else None,
    }


class StepSpan(NamedTuple):
    """The position of a step in a run, in thousandths of the run's duration."""

    x: float
    width: float


def spans(starts_and_seconds: Sequence[tuple[float, float]]) -> list[StepSpan]:
    """Lay out steps as a waterfall, from their starts and durations in seconds."""
    first = min((start for start, _ in starts_and_seconds), default=0.0)
    last = max((start + took for start, took in starts_and_seconds), default=0.0)
    whole = (last - first) or 1.0
    found = []
    for start, took in starts_and_seconds:
        width = max(4.0, 1_000 * took / whole)
        found.append(
            StepSpan(round(min(1_000 * (start - first) / whole, 1_000 - width), 1), round(width, 1))
        )
    return found


def _timed(line: PastStep, ended: datetime | None) -> PastStep:
    """Return a step that has no result with the time that it took until the end, or until now."""
    if line.duration_ms or line.status not in ("under way", "failed"):
        return line
    took = ((ended or now()) - line.began).total_seconds() * 1e3
    return msgspec.structs.replace(line, duration_ms=max(0.0, took))


def _kinds(store: Store, past: PastRun) -> dict[str, Any]:
    """Return the steps of a stored routine by id; empty for one in a folder."""
    try:
        routine = routine_of(find_routine(store, past.stored))
    except EmError:
        return {}
    return {step.id: step for step in routine.all_steps}


def _to_come(past: PastRun, kinds: Mapping[str, Any]) -> Sequence[Any]:
    """Return the steps of a stored routine behind the last one that the journal has."""
    if past.status not in ("running", "needs_input", "cancelled"):
        return []
    known = {line.step for line in past.timeline} | {*past.restored.answers}
    names = [*kinds]
    reached = max((names.index(name) for name in known if name in kinds), default=-1)
    return [kinds[name] for name in names[reached + 1 :]]


def marks(line: PastStep) -> str:
    """Return the CSS class of a row of the waterfall."""
    if line.status == "failed" or (line.error and not line.fix):
        return "failed"
    return "fixed" if line.fix or line.status == "defaulted" else line.status.replace(" ", "-")


Act = Callable[[Service, str, Json, Caller], object]
"""Does something with a run: takes its id, the form, and who wants it."""


async def _change_run(request: AnyRequest, act: Act) -> Response[str]:
    """Do what a form on the page of a run asks for, and show the run again."""

    def do(service: Service, form: Json, caller: Caller) -> Response[str]:
        caller.must_see(None)
        run_id = str(form.get("id", ""))
        try:
            act(service, run_id, form, caller)
        except NotFound:
            raise
        except EmError as problem:
            return _show(request, service, run_id, problem)
        return go_to(address("/run", id=run_id))

    return await acted(request, do)


@post(f"{PAGES}/run/answer", include_in_schema=False)
async def post_answer(request: AnyRequest) -> Response[str]:
    """Answer a run's prompt or gate, and resume the run."""

    def act(service: Service, run_id: str, form: Json, _caller: Caller) -> None:
        past = read_run(service.store, run_id, None)
        prompt = past.prompt
        if prompt is None:
            raise UsageError(
                f"the run is not waiting for an answer: {past.status}", place=f"run {run_id}"
            )
        read_stored_run(service.store, run_id, "workflow" if past.is_workflow else "routine")
        answer = read_fields(prompt_fields(prompt.get("fields", ())), form)
        if prompt["step_id"] == INPUTS:
            # An empty field is a value that is still missing.
            answer = {name: value for name, value in answer.items() if value != ""}
        background_of(request).answer(past, {str(prompt["step_id"]): answer})

    return await _change_run(request, act)


@post(f"{PAGES}/run/cancel", include_in_schema=False)
async def post_cancel(request: AnyRequest) -> Response[str]:
    """Stop a run before its next step."""

    def act(service: Service, run_id: str, _form: Json, caller: Caller) -> None:
        cancel_run(service.store, run_id, by=caller.name)

    return await _change_run(request, act)


@post(f"{PAGES}/run/retry", include_in_schema=False)
async def post_retry(request: AnyRequest) -> Response[str]:
    """Take up a run where it stopped."""

    def act(service: Service, run_id: str, _form: Json, caller: Caller) -> None:
        past = read_run(service.store, run_id, None)
        if not past.is_workflow:
            read_stored_run(service.store, run_id)
        background_of(request).retry(past, caller.name)

    return await _change_run(request, act)


HANDLERS = [get_runs, get_workflows, get_run, post_answer, post_cancel, post_retry]
