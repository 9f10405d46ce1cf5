"""HTTP API of routines: list them; start, list, read and answer their runs."""

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody

from em.errors import NotFound, UsageError
from em.log.event import EventQuery, run_stream
from em.runner.history import PastRun, read_run, run_id_of, started_runs
from em.runner.package import find_routine, kept_routines, routine_of
from em.serve.api.shapes import (
    RoutineOut,
    Routines,
    RunAnswersIn,
    RunIn,
    RunOut,
    Runs,
    WorkflowRunOut,
    fill,
)
from em.serve.service import (
    AnyRequest,
    Key,
    Limit,
    Offset,
    Pending,
    Service,
    errors,
    page,
    service_of,
)
from em.values.ids import new_id


@get("/routines", responses=errors(), sync_to_thread=True, tags=["routines"])
def list_routines(request: AnyRequest, limit: Limit = 50, offset: Offset = 0) -> Routines:
    """List the stored routines, every version."""
    service = service_of(request)
    service.caller(request).must_see(None)
    found = (
        fill(RoutineOut, one, ref=f"{one.name}@{one.version}", retired=one.retired_at is not None)
        for one in kept_routines(service.store)
        if one.body is not None
    )
    return Routines(*page(found, limit, offset))


@post("/runs", responses=errors(404, 409, 410), tags=["routines"])
async def post_run(request: AnyRequest, data: JSONBody[RunIn], key: Key = None) -> Response[RunOut]:
    """Run a stored routine, with the tools that it declares and em.yaml allows.

    With an Idempotency-Key, an interrupted run is resumed.
    """
    service = service_of(request)
    service.caller(request, "write").must_see(None)

    def work(data: RunIn, pending: Pending) -> None:
        # Pass the routine itself: the name alone could be taken for a folder on this machine.
        routine = routine_of(find_routine(service.store, data.routine))
        run_id = pending.key.removeprefix("http/")[:28] or new_id()
        if pending.key and service.store.head(run_stream(run_id))[0]:
            out = _resumed(service, run_id, data)
        else:
            result = service.memory.run(
                routine,
                data.input,
                run_id=run_id,
                answers=data.answers or None,
                remember=data.remember,
            )
            out = fill(RunOut, result)
        answer_run(service, pending, out, 201)

    return await service.carry_out(request, key, data, work)


def _resumed(service: Service, run_id: str, data: RunIn) -> RunOut:
    past = read_run(service.store, run_id)
    if past.status == "running":
        answers, remember = data.answers or None, data.remember
        return fill(RunOut, service.memory.resume(run_id, answers=answers, remember=remember))
    return _run(past)


def answer_run(
    service: Service, pending: Pending, out: RunOut | WorkflowRunOut, status: int
) -> None:
    """Store the response about a run; forgetting an event of the run forgets the response."""
    events = service.store.read(EventQuery(stream=run_stream(out.run_id)))
    pending.finish(service.store, out, status, (event.id for event in events))


@get("/runs", responses=errors(), sync_to_thread=True, tags=["routines"])
def list_runs(request: AnyRequest, limit: Limit = 50, offset: Offset = 0) -> Runs:
    """List runs of routines, newest first."""
    service = service_of(request)
    service.caller(request).must_see(None)
    shown, pagination = page(started_runs(service.store, "routine"), limit, offset)
    return Runs([_run(read_run(service.store, run_id_of(event))) for event in shown], pagination)


@get("/runs/{run_id:str}", responses=errors(404), sync_to_thread=True, tags=["routines"])
def get_run(request: AnyRequest, run_id: FromPath[str]) -> RunOut:
    """Return a run's status, and its output, its failure or its pending prompt."""
    service = service_of(request)
    service.caller(request).must_see(None)
    return _run(read_run(service.store, run_id))


def _run(past: PastRun) -> RunOut:
    return fill(
        RunOut,
        past,
        routine=past.stored or past.routine,
        pending_prompt=past.prompt,
        started_at=past.began,
    )


@post(
    "/runs/{run_id:str}/answers",
    responses=errors(404, 409, 410),
    status_code=200,
    tags=["routines"],
)
async def post_answers(
    request: AnyRequest, run_id: FromPath[str], data: JSONBody[RunAnswersIn], key: Key = None
) -> Response[RunOut]:
    """Answer a run's prompts, by the ids of their steps, and resume it."""
    service = service_of(request)
    service.caller(request, "write").must_see(None)

    def work(data: RunAnswersIn, pending: Pending) -> None:
        past = read_run(service.store, run_id)
        if not past.stored:
            raise NotFound(
                "only runs of stored routines can be resumed here", place=f"run {run_id}"
            )
        if past.status not in ("needs_input", "running"):
            raise UsageError(f"the run is over: {past.status}", place=f"run {run_id}")
        result = service.memory.resume(run_id, answers=data.answers, remember=data.remember)
        answer_run(service, pending, fill(RunOut, result), 200)

    return await service.carry_out(request, key, data, work)


HANDLERS = [list_routines, post_run, list_runs, get_run, post_answers]
