"""HTTP API of queued work: queue, list, read, cancel and retry jobs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from em.errors import InputError
from em.log.event import EventQuery, job_stream
from em.serve.api.shapes import JobIn, JobOut, Jobs, JobsQueued, Pagination, fill
from em.serve.auth import Caller
from em.serve.service import (
    AnyRequest,
    Key,
    Limit,
    Offset,
    Pending,
    errors,
    service_of,
)
from em.values.canonical import Json
from em.work.job import Kind, State

if TYPE_CHECKING:
    from em.work.queue import JobView, Queue

ONLY_WITH = {
    "inputs": ("routine", "workflow"),
    "prompt": ("workflow",),
    "review": ("compile",),
}
"""Fields of a request, and the kinds of jobs that take them."""


@post("/jobs", responses=errors(404, 409, 410), tags=["jobs"])
async def post_job(
    request: AnyRequest, data: JSONBody[JobIn], key: Key = None
) -> Response[JobsQueued]:
    """Queue work for `em worker` processes. With an Idempotency-Key it is queued once.

    A token that is limited to subjects can queue checkpoints of its subjects.
    """
    service = service_of(request)
    caller = service.caller(request, "write")
    _check(data, caller)

    def work(_clean: JobIn, pending: Pending) -> None:
        # As it was sent: the queue refuses a secret, which a job could not do without.
        queue = service.queue()
        ids = _add(queue, data, pending.key or None, caller)
        out = JobsQueued([_shown(view) for view in reversed(queue.jobs(ids=ids, limit=None))])
        found = [EventQuery(stream=job_stream(one), kinds=("job_queued",)) for one in ids]
        events = (event.id for query in found for event in service.store.read(query))
        pending.finish(service.store, out, 201, events)

    return await service.carry_out(request, key, data, work)


def _check(data: JobIn, caller: Caller) -> None:
    """Raise for a request that this caller may not make, or whose fields don't fit its kind."""
    if data.kind == "checkpoint" and data.subjects:
        for subject in data.subjects:
            caller.must_see(subject)
    else:
        caller.must_see(None)
    for field, kinds in ONLY_WITH.items():
        if getattr(data, field) and data.kind not in kinds:
            raise InputError(f"only {' and '.join(kinds)} jobs take {field}", place=field)
    if data.kind in ("routine", "workflow") and not data.name:
        raise InputError(f"name the {data.kind} to run", place="name")
    if data.kind == "compile" and not data.traces and (data.name or data.review):
        raise InputError("name the traces of this routine", place="traces")


def _add(queue: "Queue", data: JobIn, key: str | None, caller: Caller) -> list[str]:
    how = {"llm": True} if data.llm else {}
    if data.kind == "routine":
        return queue.add_runs(
            data.name, data.inputs or [{}], subject=data.subject, queue=data.queue, key=key
        )
    if data.kind == "workflow":
        return queue.add_workflow_runs(
            data.name,
            data.inputs or [None],
            prompt=data.prompt,
            subject=data.subject,
            queue=data.queue,
            key=key,
        )
    if data.kind == "compile":
        return _add_compilations(queue, data, key)
    if data.kind == "reflect":
        return queue.add_reflections(data.traces or None, queue=data.queue, how=how, key=key)
    if data.kind == "embed":
        return queue.add_embeddings(data.subjects or None, queue=data.queue, key=key)
    return _add_checkpoints(queue, data, key, caller)


def _add_compilations(queue: "Queue", data: JobIn, key: str | None) -> list[str]:
    """Queue the compilation of the traces, or of every task; a review is about one routine."""
    how: Json = {"llm": True} if data.llm else {}
    if data.name:
        how["name"] = data.name
    if data.review is not None:
        how |= msgspec.to_builtins(data.review)
    tasks = {data.name or "task": data.traces} if data.traces else None
    return queue.add_compilations(tasks, queue=data.queue, how=how, key=key)


def _add_checkpoints(queue: "Queue", data: JobIn, key: str | None, caller: Caller) -> list[str]:
    """Queue checkpoints. A job about one subject belongs to it, and whoever may see it sees it."""
    how = {"llm": True} if data.llm else {}
    named: Sequence[str] = data.subjects
    if not named or (caller.subjects is None and len(named) > 1):
        return queue.add_checkpoints(named or None, queue=data.queue, how=how, key=key)
    ids: list[str] = []
    for number, one in enumerate(named):
        own = None if key is None else f"{key}/{number}"
        ids += queue.add_checkpoints([one], queue=data.queue, how=how, subject=one, key=own)
    return ids


InState = Annotated[
    State | None, QueryParameter(name="state", description="Jobs in this state.")
]  # `state` alone is a name of the framework
InQueue = Annotated[
    str | None, QueryParameter(name="queue", description="Jobs of this queue.", max_length=512)
]
OfKind = Annotated[Kind | None, QueryParameter(name="kind", description="Jobs of this kind.")]
Subject = Annotated[
    str | None, QueryParameter(min_length=1, max_length=512, description="Jobs about this subject.")
]


@get("/jobs", responses=errors(), sync_to_thread=True, tags=["jobs"])
def list_jobs(
    request: AnyRequest,
    in_state: InState = None,
    kind: OfKind = None,
    queue: InQueue = None,
    subject: Subject = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Jobs:
    """List queued work, the newest first. A token limited to subjects must name one."""
    service_of(request).caller(request).must_see(subject)
    opened = service_of(request).queue()
    found = opened.jobs(
        state=in_state, kind=kind, queue=queue, subject=subject, limit=limit, offset=offset
    )
    total = opened.count(state=in_state, kind=kind, queue=queue, subject=subject)
    return Jobs([_shown(view) for view in found], Pagination(limit, offset, total))


@get("/jobs/{job_id:str}", responses=errors(404), sync_to_thread=True, tags=["jobs"])
def get_job(request: AnyRequest, job_id: FromPath[str]) -> JobOut:
    """Return a job's state, and its results when it has ended."""
    return _shown(_find(request, job_id, service_of(request).caller(request)))


@post(
    "/jobs/{job_id:str}/cancel",
    responses=errors(404, 409),
    status_code=200,
    sync_to_thread=True,
    tags=["jobs"],
)
def cancel_job(request: AnyRequest, job_id: FromPath[str]) -> JobOut:
    """Cancel a job. Its runs stop before their next step, other work after its current item.

    A token that is limited to subjects can cancel checkpoints of its subjects.
    """
    caller = service_of(request).caller(request, "write")
    if _find(request, job_id, caller).kind in ("routine", "workflow"):
        caller.must_see(None)
    return _shown(service_of(request).queue().cancel(job_id, by=caller.name))


@post(
    "/jobs/{job_id:str}/retry",
    responses=errors(404, 409),
    sync_to_thread=True,
    tags=["jobs"],
)
def retry_job(request: AnyRequest, job_id: FromPath[str]) -> JobOut:
    """Queue what failed in a job again, or all of a cancelled one, as a new job.

    A run that had an effect goes on where it failed, if nothing can be done twice by that.
    """
    caller = service_of(request).caller(request, "write")
    caller.must_see(None)
    queue = service_of(request).queue()
    return _shown(queue.job(queue.retry(job_id)))


def _find(request: AnyRequest, job_id: str, caller: Caller) -> "JobView":
    """Return a job that this caller may see; to others it does not exist."""
    return service_of(request).queue().job(job_id, subjects=caller.subjects)


def _shown(view: "JobView") -> JobOut:
    report = view.report
    if report is None:
        return fill(JobOut, view)
    return fill(JobOut, view, done=report.done, waiting=report.waiting, failed=report.failed)


HANDLERS = [post_job, list_jobs, get_job, cancel_job, retry_job]
