"""Runs: the list, one run as a waterfall, and answering what it asks."""

import asyncio
from typing import Any

from litestar import Response, get, post

from em.errors import EmError, NotFound, UsageError
from em.runner.history import PastRun, PastStep, find_runs, read_run, savings
from em.runner.journal import how_to_resume
from em.runner.library import find_routine, routine_of
from em.runner.routine import Routine
from em.serve.auth import PAGES
from em.serve.pages.drawing import spans
from em.serve.pages.forms import prompt_fields, read_fields
from em.serve.pages.login import form_of
from em.serve.pages.view import address, asked, go_to, number, page, pages_of
from em.serve.service import AnyRequest, Service, service_of
from em.store.protocol import Store

MOST_STEPS = 500
STATUSES = ("ok", "failed", "needs_input", "running")


@get(f"{PAGES}/runs", include_in_schema=False, sync_to_thread=True)
def get_runs(request: AnyRequest) -> Response[str]:
    """Runs, newest first, by words and by status."""
    service = service_of(request)
    service.caller(request).must_see(None)
    words, status = asked(request, "q"), asked(request, "status")
    before = number(request, "before")
    status = status if status in STATUSES else ""
    found = find_runs(service.store, words=words, status=status, before=before, limit=25)
    return page(
        request,
        "runs.html",
        runs=found.runs,
        older=found.older,
        q=words,
        status=status,
        before=before,
        statuses=STATUSES,
    )


@get(f"{PAGES}/run", include_in_schema=False, sync_to_thread=True)
def get_run(request: AnyRequest) -> Response[str]:
    """One run."""
    service = service_of(request)
    service.caller(request).must_see(None)
    return _show(request, service, asked(request, "id"))


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
        fields=prompt_fields(prompt.get("fields", ())) if prompt else [],
        resume=how_to_resume(run_id, past.resume_with),
        is_live=past.status == "running",
        problem=problem,
    )


def _seconds(past: PastRun) -> float | None:
    return None if past.ended is None else (past.ended - past.began).total_seconds()


def _kinds(store: Store, past: PastRun) -> dict[str, Any]:
    """What each step of the routine is, where the routine is kept."""
    try:
        routine: Routine = routine_of(find_routine(store, past.stored))
    except EmError:
        return {}
    return {step.id: step for step in routine.steps}


@post(f"{PAGES}/answer", include_in_schema=False)
async def post_answer(request: AnyRequest) -> Response[str]:
    """Answer what a run asks; it goes on."""
    form = await form_of(request)
    service = service_of(request)
    service.caller(request, "write").must_see(None)
    run_id = str(form.get("id", ""))

    def work() -> Response[str]:
        past = read_run(service.store, run_id)
        prompt = past.prompt
        if prompt is None:
            raise UsageError(f"this run asks nothing now: {past.status}", place=f"run {run_id}")
        if not past.stored:
            raise NotFound("this run is not of a routine that is kept", place=f"run {run_id}")
        try:
            answer = read_fields(prompt_fields(prompt.get("fields", ())), form)
            pages_of(request).background.answer(run_id, {str(prompt["step_id"]): answer})
        except EmError as problem:
            return _show(request, service, run_id, problem)
        return go_to(address("/run", id=run_id))

    return await asyncio.to_thread(work)


def marks(line: PastStep) -> str:
    """What a row of the waterfall is coloured by."""
    if line.status == "failed" or (line.error and not line.fix):
        return "failed"
    return "fixed" if line.fix or line.status == "defaulted" else line.status.replace(" ", "-")


HANDLERS = [get_runs, get_run, post_answer]
