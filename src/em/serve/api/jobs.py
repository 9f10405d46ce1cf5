"""HTTP API of queued work: queue, list, read, cancel and retry jobs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from litestar import Response
from litestar.params import FromPath, JSONBody, QueryParameter

from em.errors import InputError
from em.log.event import EventQuery, job_stream
from em.serve.api.shapes import (
    Items,
    Key,
    Limit,
    Name,
    Offset,
    Page,
    Pagination,
    acts,
    acts_once,
    reads,
)
from em.serve.auth import Caller
from em.serve.service import AnyRequest, Pending, service_of
from em.values.canonical import Json
from em.work.job import JobView, Kind, State

if TYPE_CHECKING:
    from em.work.queue import Queue

ONLY_WITH = {
    "inputs": ("routine", "workflow"),
    "prompt": ("workflow",),
    "review": ("compile",),
}
"""Fields of a request, and the kinds of jobs that take them."""


class ReviewIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a person says about a routine that is compiled, as with `em compile`.

    inputs: arguments (`subject`, `send_mail.subject`) that become inputs. constants: inputs or
    arguments that are always as recorded. fresh: forget what was said about the version before.
    """

    inputs: Annotated[list[Name], msgspec.Meta(max_length=1_000)] = []
    constants: Annotated[list[Name], msgspec.Meta(max_length=1_000)] = []
    fresh: bool = False


class JobIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Work to queue.

    name: the routine or workflow to run, or the name of the routine to compile.
    inputs: one run for each, of routines and workflows.
    subjects: to checkpoint or to embed; none stands for all. traces: to compile or to reflect on.
    subject: who the runs are about. llm: use the model that the worker is configured with.
    review: what a person says about the routine that these traces are compiled to.
    """

    kind: Kind
    name: Annotated[str, msgspec.Meta(max_length=512)] = ""
    inputs: Annotated[list[Json], msgspec.Meta(max_length=10_000)] = []
    prompt: Annotated[str, msgspec.Meta(max_length=1_000_000)] | None = None
    subjects: Annotated[list[Name], msgspec.Meta(max_length=10_000)] = []
    traces: Annotated[list[Name], msgspec.Meta(max_length=10_000)] = []
    subject: Name | None = None
    queue: Name | None = None
    llm: bool = False
    review: ReviewIn | None = None


@acts_once("/jobs", "jobs", 404)
async def post_job(
    request: AnyRequest, data: JSONBody[JobIn], key: Key = None
) -> Response[Items[JobView]]:
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
        out = Items(queue.jobs(ids=ids, limit=None)[::-1])
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


def _add(  # noqa: PLR0911 - one line for each kind of job
    queue: "Queue", data: JobIn, key: str | None, caller: Caller
) -> list[str]:
    how: Json = {"llm": True} if data.llm else {}
    about = data.subject
    match data.kind:
        case "routine":
            inputs = data.inputs or [{}]
            return queue.add_runs(data.name, inputs, subject=about, queue=data.queue, key=key)
        case "workflow":
            return queue.add_workflow_runs(
                data.name,
                data.inputs or [None],
                prompt=data.prompt,
                subject=about,
                queue=data.queue,
                key=key,
            )
        case "compile":
            how |= {"name": data.name} if data.name else {}
            how |= {} if data.review is None else msgspec.to_builtins(data.review)
            tasks = {data.name or "task": data.traces} if data.traces else None
            return queue.add_compilations(tasks, queue=data.queue, how=how, key=key)
        case "reflect":
            return queue.add_reflections(data.traces or None, queue=data.queue, how=how, key=key)
        case "embed":
            return queue.add_embeddings(data.subjects or None, queue=data.queue, key=key)
    named: Sequence[str] = data.subjects
    if not named or (caller.subjects is None and len(named) > 1):
        return queue.add_checkpoints(named or None, queue=data.queue, how=how, key=key)
    ids: list[str] = []
    for number, one in enumerate(named):
        # A job about one subject belongs to it, and whoever may see it sees it.
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


@reads("/jobs", "jobs")
def list_jobs(
    request: AnyRequest,
    in_state: InState = None,
    kind: OfKind = None,
    queue: InQueue = None,
    subject: Subject = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Page[JobView]:
    """List queued work, the newest first. A token limited to subjects must name one."""
    service = service_of(request)
    service.caller(request).must_see(subject)
    opened = service.queue()
    found = opened.jobs(
        state=in_state, kind=kind, queue=queue, subject=subject, limit=limit, offset=offset
    )
    total = opened.count(state=in_state, kind=kind, queue=queue, subject=subject)
    return Page(found, Pagination(limit, offset, total))


@reads("/jobs/{job_id:str}", "jobs", 404)
def get_job(request: AnyRequest, job_id: FromPath[str]) -> JobView:
    """Return a job's state, and its results when it has ended."""
    return _find(request, job_id, service_of(request).caller(request))


def _find(request: AnyRequest, job_id: str, caller: Caller) -> JobView:
    """Return a job that this caller may see; to others it does not exist."""
    return service_of(request).queue().job(job_id, subjects=caller.subjects)


@acts("/jobs/{job_id:str}/cancel", "jobs", 404, 409)
def cancel_job(request: AnyRequest, job_id: FromPath[str]) -> JobView:
    """Cancel a job. Its runs stop before their next step, other work after its current item.

    A token that is limited to subjects can cancel checkpoints of its subjects.
    """
    caller = service_of(request).caller(request, "write")
    if _find(request, job_id, caller).kind in ("routine", "workflow"):
        caller.must_see(None)
    return service_of(request).queue().cancel(job_id, by=caller.name)


@acts("/jobs/{job_id:str}/retry", "jobs", 404, 409, status_code=201)
def retry_job(request: AnyRequest, job_id: FromPath[str]) -> JobView:
    """Queue what failed in a job again, or all of a cancelled one, as a new job.

    A run that had an effect goes on where it failed, if nothing can be done twice by that.
    """
    service_of(request).caller(request, "write").must_see(None)
    queue = service_of(request).queue()
    return queue.job(queue.retry(job_id))


HANDLERS = [post_job, list_jobs, get_job, cancel_job, retry_job]
