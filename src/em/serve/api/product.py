"""Over HTTP: observing, the log, routines and their runs."""

from typing import Annotated, Any

import msgspec
from litestar import Response, get, post
from litestar.params import Parameter

from em.errors import InputError, NotFound, UsageError
from em.log.event import Event, EventQuery
from em.log.stream import RUN_PREFIX, run_stream
from em.memory.observations import DETAILS, observation
from em.runner.journal import read_run
from em.runner.library import find_routine, kept_routines, routine_of
from em.runner.run import RunResult
from em.serve.api.shapes import (
    AnswersIn,
    EventOut,
    Events,
    Kept,
    ObservationIn,
    RoutineOut,
    Routines,
    RunIn,
    RunOut,
    Runs,
    Verified,
)
from em.serve.idempotency import Pending
from em.serve.service import AnyRequest, Key, Limit, Offset, Service, errors, page, service_of
from em.store.protocol import Commit
from em.values.ids import new_id
from em.values.times import moment

Name = Annotated[str | None, Parameter(max_length=512)]


@post("/observations", responses=errors(409, 410), tags=["log"])
async def post_observation(
    request: AnyRequest, data: ObservationIn, key: Key = None
) -> Response[Kept]:
    """Keep something learned about a subject; the id of its event."""
    service = service_of(request)
    service.caller(request, "write").must_see(data.subject)

    def work(data: ObservationIn, pending: Pending) -> None:
        if (data.text is None) == (data.record is None):
            raise InputError("it has either `text` or `record`", place="text, record")
        content = data.record if data.text is None else data.text
        assert content is not None
        details = {name: getattr(data, name) for name in DETAILS}
        draft = observation(data.subject, content, data.at, details)
        draft = msgspec.structs.replace(draft, id=new_id())
        service.follow(pending.commit(service.store, [draft], Kept(str(draft.id))))

    return await service.carry_out(request, key, data, work)


@get("/log", responses=errors(), sync_to_thread=True, tags=["log"])
def get_log(
    request: AnyRequest,
    stream: Name = None,
    subject: Name = None,
    kind: Name = None,
    since: Name = None,
    until: Name = None,
    after: Annotated[int, Parameter(ge=0, le=2**62)] = 0,
    limit: Limit = 50,
) -> Events:
    """Events, oldest first. A token that is limited to subjects names one of them."""
    service = service_of(request)
    service.caller(request).must_see(subject)
    query = EventQuery(
        stream=stream,
        subject=subject,
        kinds=[] if kind is None else [kind],
        since=None if since is None else moment(since, "since"),
        until=None if until is None else moment(until, "until"),
        after=after,
        limit=limit + 1,
    )
    found = list(service.store.read(query))
    return Events([_event(event) for event in found[:limit]], len(found) > limit)


def _event(event: Event) -> EventOut:
    return EventOut(**{name: getattr(event, name) for name in EventOut.__struct_fields__})


@get("/log/verify", responses=errors(), sync_to_thread=True, tags=["log"])
def get_verify(request: AnyRequest) -> Verified:
    """Prove that nothing in the log was changed, reordered or removed."""
    service = service_of(request)
    service.caller(request).must_see(None)
    report = service.memory.log.verify()
    problems = [str(msgspec.to_builtins(finding)) for finding in report.findings[:100]]
    return Verified(report.ok, report.events, problems)


@get("/routines", responses=errors(), sync_to_thread=True, tags=["routines"])
def list_routines(request: AnyRequest, limit: Limit = 50, offset: Offset = 0) -> Routines:
    """The routines that are kept, every version."""
    service = service_of(request)
    service.caller(request).must_see(None)
    found = (
        RoutineOut(
            f"{one.name}@{one.version}",
            one.name,
            one.version,
            one.created_at,
            one.retired_at is not None,
        )
        for one in kept_routines(service.store)
        if one.body is not None
    )
    return Routines(*page(found, limit, offset))


@post("/runs", responses=errors(404, 409, 410), tags=["routines"])
async def post_run(request: AnyRequest, data: RunIn, key: Key = None) -> Response[RunOut]:
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
    return _run(service, run_id)


def _answer(service: Service, pending: Pending, result: RunOut | RunResult, status: int) -> None:
    out = result if isinstance(result, RunOut) else _told(result)
    ids = [event.id for event in service.store.read(EventQuery(stream=run_stream(out.run_id)))]
    outcome = pending.answer(out, status, tuple(ids))
    if outcome is not None:
        service.store.commit(Commit(request=outcome))


def _told(result: RunResult) -> RunOut:
    def plain(part: Any) -> Any:
        return None if part is None else msgspec.to_builtins(part)

    return RunOut(
        run_id=result.run_id,
        status=result.status,
        output=msgspec.to_builtins(result.output),
        failure=plain(result.failure),
        pending_prompt=plain(result.pending_prompt),
    )


@get("/runs", responses=errors(), sync_to_thread=True, tags=["routines"])
def list_runs(request: AnyRequest, limit: Limit = 50, offset: Offset = 0) -> Runs:
    """Runs of routines, newest first."""
    service = service_of(request)
    service.caller(request).must_see(None)
    started = list(service.store.read(EventQuery(kinds=["run_started"])))
    shown, pagination = page(reversed(started), limit, offset)
    found = [_run(service, event.stream.removeprefix(RUN_PREFIX)) for event in shown if event.body]
    return Runs(found, pagination)


@get("/runs/{run_id:str}", responses=errors(404), sync_to_thread=True, tags=["routines"])
def get_run(request: AnyRequest, run_id: str) -> RunOut:
    """One run: its status, and its output, its failure or what it waits for."""
    service = service_of(request)
    service.caller(request).must_see(None)
    return _run(service, run_id)


def _run(service: Service, run_id: str) -> RunOut:
    past = read_run(service.store, run_id)
    (_, started), (kind, last) = past.notes[0], past.notes[-1]
    ended = last if kind == "run_ended" else {}
    (first,) = service.store.read(EventQuery(stream=run_stream(run_id), limit=1))
    return RunOut(
        run_id=run_id,
        status=past.status,
        routine=str(started.get("stored") or started.get("routine", "")),
        output=ended.get("output"),
        failure=ended.get("failure"),
        pending_prompt=last.get("prompt") if kind == "run_paused" else None,
        started_at=first.at,
    )


@post(
    "/runs/{run_id:str}/answers",
    responses=errors(404, 409, 410),
    status_code=200,
    tags=["routines"],
)
async def post_answers(
    request: AnyRequest, run_id: str, data: AnswersIn, key: Key = None
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


HANDLERS = [
    post_observation,
    get_log,
    get_verify,
    list_routines,
    post_run,
    list_runs,
    get_run,
    post_answers,
]
