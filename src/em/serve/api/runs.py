"""Over HTTP: runs of routines."""

from typing import Any

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody

from em.errors import NotFound, UsageError
from em.log.event import EventQuery
from em.log.stream import run_stream
from em.runner.history import PastRun, read_run, run_id_of, started_runs
from em.runner.package import find_routine, routine_of
from em.runner.run import RunResult
from em.serve.api.shapes import AnswersIn, RunIn, RunOut, Runs, fill
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
from em.store.protocol import Commit
from em.values.ids import new_id


@post("/runs", responses=errors(404, 409, 410), tags=["routines"])
async def post_run(request: AnyRequest, data: JSONBody[RunIn], key: Key = None) -> Response[RunOut]:
    """Run a routine that is kept; it needs no tools but those it declares and em.yaml allows.

    With a key, a run that was interrupted goes on where it was.
    """
    service = service_of(request)
    service.caller(request, "write").must_see(None)

    def work(data: RunIn, pending: Pending) -> None:
        # The routine itself: a name alone could also be a folder of this machine.
        routine = routine_of(find_routine(service.store, data.routine))
        run_id = pending.key.removeprefix("http/")[:28] or new_id()
        if pending.key and service.store.head(run_stream(run_id))[0]:
            result = _go_on(service, run_id, data.answers)
        else:
            result = service.memory.run(
                routine, data.input, run_id=run_id, answers=data.answers or None
            )
        _answer(service, pending, result, 201)

    return await service.carry_out(request, key, data, work)


def _go_on(service: Service, run_id: str, answers: dict[str, Any]) -> RunOut | RunResult:
    past = read_run(service.store, run_id)
    if past.status == "running":
        return service.memory.resume(run_id, answers=answers or None)
    return _run(past)


def _answer(service: Service, pending: Pending, result: RunOut | RunResult, status: int) -> None:
    out = result if isinstance(result, RunOut) else fill(RunOut, result)
    ids = [event.id for event in service.store.read(EventQuery(stream=run_stream(out.run_id)))]
    outcome = pending.answer(out, status, tuple(ids))
    if outcome is not None:
        service.store.commit(Commit(request=outcome))


@get("/runs", responses=errors(), sync_to_thread=True, tags=["routines"])
def list_runs(request: AnyRequest, limit: Limit = 50, offset: Offset = 0) -> Runs:
    """Runs of routines, newest first."""
    service = service_of(request)
    service.caller(request).must_see(None)
    shown, pagination = page(started_runs(service.store, "routine"), limit, offset)
    return Runs([_run(read_run(service.store, run_id_of(event))) for event in shown], pagination)


@get("/runs/{run_id:str}", responses=errors(404), sync_to_thread=True, tags=["routines"])
def get_run(request: AnyRequest, run_id: FromPath[str]) -> RunOut:
    """One run: its status, and its output, its failure or what it waits for."""
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
    request: AnyRequest, run_id: FromPath[str], data: JSONBody[AnswersIn], key: Key = None
) -> Response[RunOut]:
    """Answer what a run asks, by the ids of its prompts; the run goes on."""
    service = service_of(request)
    service.caller(request, "write").must_see(None)

    def work(data: AnswersIn, pending: Pending) -> None:
        past = read_run(service.store, run_id)
        if not past.stored:
            raise NotFound("this run is not of a routine that is kept", place=f"run {run_id}")
        if past.status not in ("needs_input", "running"):
            raise UsageError(f"this run is over: {past.status}", place=f"run {run_id}")
        result = service.memory.resume(run_id, answers=data.answers)
        _answer(service, pending, result, 200)

    return await service.carry_out(request, key, data, work)


HANDLERS = [post_run, list_runs, get_run, post_answers]
