"""Pages of queued work: the list of jobs, and one job with its runs, failures and buttons."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, get_args

from litestar import Response, get, post

from em.errors import EmError, NotFound
from em.log.event import run_stream
from em.serve.auth import PAGES, Caller
from em.serve.pages.forms import acted
from em.serve.pages.table import ROWS, SUBJECT, Column, Filter, ListShape, ListView
from em.serve.pages.view import address, go_to, page, parameter
from em.serve.service import AnyRequest, Service, service_of
from em.values.canonical import Json
from em.work.job import OPEN, JobView, Kind, State

if TYPE_CHECKING:
    from em.work.queue import Queue

MOST_RUNS = 50
"""Runs, or failures, of a job that its page lists."""
ITEM_PAGES = {"checkpoint": ("/state", "subject"), "reflect": ("/trace", "id")}
"""The page of an item by the kind of its job, and the name of its parameter."""
JOBS = ListShape(
    "/jobs",
    "jobs",
    (Column("Job"), Column("State"), Column("Items", True), Column("Queue"), Column("Queued")),
    (
        Filter("state", "State", "choice", get_args(State), is_first=True),
        Filter("kind", "Kind", "choice", get_args(Kind), is_first=True),
        Filter("queue", "Queue"),
        SUBJECT,
    ),
)


@get(f"{PAGES}/jobs", include_in_schema=False, sync_to_thread=True)
def get_jobs(request: AnyRequest) -> Response[str]:
    """Show queued work: filtered, page by page."""
    service = service_of(request)
    service.caller(request).must_see(None)
    view = ListView(JOBS, request)
    jobs: Sequence[JobView] = ()
    queue = service.made_queue()
    if queue is not None:
        chosen = {one.name: view.get(one.name) or None for one in JOBS.filters}
        found = queue.jobs(offset=view.number, limit=ROWS + 1, **chosen)  # type: ignore[arg-type]  # of filters
        further = view.number + ROWS if len(found) > ROWS else None
        jobs = view.go_on(found[:ROWS], further)
    workers = 0 if queue is None else len(queue.workers())
    return page(request, "jobs.html", view=view, jobs=jobs, title_of=title_of, workers=workers)


def title_of(view: "JobView") -> str:
    """Return the title of a job: its kind and what it runs; its id once that was forgotten."""
    return f"{view.kind} {view.name}".strip() or view.id


@get(f"{PAGES}/job", include_in_schema=False, sync_to_thread=True)
def get_job(request: AnyRequest) -> Response[str]:
    """Show one job: its state, its runs, and what failed."""
    service_of(request).caller(request).must_see(None)
    return _show(request, parameter(request, "id"))


def _show(request: AnyRequest, job_id: str, problem: EmError | None = None) -> Response[str]:
    service = service_of(request)
    queue = _queue_of(service, job_id)
    view = queue.job(job_id)
    named = queue.runs([job_id]) if view.kind else []
    return page(
        request,
        "job.html",
        code=200 if problem is None else 400,
        job=view,
        title=title_of(view),
        runs=[one for one in named[:MOST_RUNS] if service.store.head(run_stream(one))[0]],
        more_runs=len(named[MOST_RUNS:]),
        items=[] if named or not view.kind else [one.id for one in queue.what(job_id).items],
        item_page=ITEM_PAGES.get(view.kind),
        most=MOST_RUNS,
        is_live=view.state in OPEN,
        problem=problem,
    )


@post(f"{PAGES}/job/cancel", include_in_schema=False)
async def post_cancel(request: AnyRequest) -> Response[str]:
    """Cancel a job, and show it."""
    return await _change_job(request, lambda queue, job_id, by: queue.cancel(job_id, by=by).id)


@post(f"{PAGES}/job/retry", include_in_schema=False)
async def post_retry(request: AnyRequest) -> Response[str]:
    """Queue what failed in a job again, and show the new job."""
    return await _change_job(request, lambda queue, job_id, _by: queue.retry(job_id))


Act = Callable[["Queue", str, str], str]
"""Takes the queue, the job and who acts; returns the id of the job to show."""


async def _change_job(request: AnyRequest, act: Act) -> Response[str]:
    def do(service: Service, form: Json, caller: Caller) -> Response[str]:
        caller.must_see(None)
        job_id = str(form.get("id", ""))
        try:
            shown = act(_queue_of(service, job_id), job_id, caller.name)
        except NotFound:
            raise
        except EmError as problem:
            return _show(request, job_id, problem)
        return go_to(address("/job", id=shown))

    return await acted(request, do)


def _queue_of(service: Service, job_id: str) -> "Queue":
    queue = service.made_queue()
    if queue is None:
        raise NotFound(f"there is no job {job_id!r}", fix="nothing was queued yet")
    return queue


HANDLERS = [get_jobs, get_job, post_cancel, post_retry]
