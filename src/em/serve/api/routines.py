"""HTTP API of routines: list, strike, accept, retire; start, list, read and answer their runs."""

import asyncio
from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec
from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from em.compiler.checks import Strike, checks_of, document_of
from em.compiler.match import LEAST_LIKENESS
from em.errors import Forbidden, UsageError
from em.log.event import EventQuery, run_stream
from em.log.summary import Cursor
from em.runner import history
from em.runner.history import (
    PastRun,
    RunFilter,
    RunKind,
    RunStatus,
    RunSummary,
    end_of_run,
    find_runs,
    read_run,
    read_served_run,
    read_stored_run,
    refuse_retry,
    run_query,
)
from em.runner.package import (
    KeptRoutine,
    find_routine,
    routine_of,
    texts_of,
)
from em.runner.run import HANDED_OVER
from em.runner.standing import InUse, standing_of, stored_routine, version, versions
from em.serve.api.shapes import (
    AnswersIn,
    CheckOut,
    Checks,
    CommitIn,
    MatchIn,
    MatchOut,
    Pagination,
    PreparedOut,
    RetryIn,
    Routines,
    RunIn,
    RunOut,
    Runs,
    StrikeIn,
    WorkflowRunOut,
    fill,
)
from em.serve.auth import Caller
from em.serve.service import (
    AnyRequest,
    Key,
    Limit,
    Moment,
    Offset,
    Pending,
    Place,
    Service,
    errors,
    page,
    service_of,
)
from em.values.canonical import Json
from em.values.times import moment, new_id


@get("/routines", responses=errors(), sync_to_thread=True, tags=["routines"])
def list_routines(request: AnyRequest, limit: Limit = 50, offset: Offset = 0) -> Routines:
    """List the stored routines, every version."""
    service = service_of(request)
    service.caller(request).must_see(None)
    shown, pagination = page(versions(service.store), limit, offset)
    return Routines([stored_routine(service.store, one) for one in shown], pagination)


@get("/routines/{ref:str}/checks", responses=errors(404), sync_to_thread=True, tags=["routines"])
def list_checks(request: AnyRequest, ref: FromPath[str]) -> Checks:
    """List the checks of a learnt routine, `name` or `name@version`."""
    service = service_of(request)
    service.caller(request).must_see(None)
    document = document_of(texts_of(version(service.store, ref)))
    return Checks(
        [fill(CheckOut, one) for one in checks_of(document)], list(document.get("struck", ()))
    )


@post(
    "/routines/{ref:str}/strike",
    responses=errors(404, 409),
    status_code=200,
    sync_to_thread=True,
    tags=["routines"],
)
def strike_check(request: AnyRequest, ref: FromPath[str], data: JSONBody[StrikeIn]) -> Strike:
    """Store a learnt routine without some of its checks as a new version."""
    by = _owner(request)
    memory = service_of(request).memory
    checks = [data.check] if isinstance(data.check, str) else data.check
    return memory.strike(ref, *checks, reason=data.reason, by=by)


@post(
    "/routines/{ref:str}/accept",
    responses=errors(404, 409),
    status_code=200,
    sync_to_thread=True,
    tags=["routines"],
)
def accept_routine(request: AnyRequest, ref: FromPath[str]) -> InUse:
    """Accept a version on a person's word: it is in use, and used by itself."""
    by = _owner(request)
    return service_of(request).memory.accept(ref, by=by)


@post(
    "/routines/{ref:str}/withdraw",
    responses=errors(404, 409),
    status_code=200,
    sync_to_thread=True,
    tags=["routines"],
)
def withdraw_acceptance(request: AnyRequest, ref: FromPath[str]) -> InUse:
    """Take back that a version was accepted."""
    by = _owner(request)
    return service_of(request).memory.withdraw(ref, by=by)


@post(
    "/routines/{ref:str}/retire",
    responses=errors(404),
    status_code=200,
    sync_to_thread=True,
    tags=["routines"],
)
def retire_routine(request: AnyRequest, ref: FromPath[str]) -> InUse:
    """Take a version, `name@version`, out of use: its name then means the one before."""
    by = _owner(request)
    return service_of(request).memory.retire(ref, by=by)


@post(
    "/routines/{ref:str}/restore",
    responses=errors(404),
    status_code=200,
    sync_to_thread=True,
    tags=["routines"],
)
def restore_routine(request: AnyRequest, ref: FromPath[str]) -> InUse:
    """Put a retired version, `name@version`, in use again."""
    by = _owner(request)
    return service_of(request).memory.restore(ref, by=by)


def _owner(request: AnyRequest) -> str:
    """Return who decides about routines, which are everybody's: no token limited to subjects."""
    caller = service_of(request).caller(request, "write")
    caller.must_see(None)
    return caller.name


@post("/match", responses=errors(), status_code=200, sync_to_thread=True, tags=["routines"])
def match_request(request: AnyRequest, data: JSONBody[MatchIn]) -> MatchOut:
    """Find the routine in use that was recorded with the words of a request. Nothing is run."""
    service = service_of(request)
    service.caller(request, "write" if data.llm else "read").must_see(None)
    matcher = service.memory.matcher
    found = matcher.match(data.request, data.tools, service.model() if data.llm else None)
    if found is None:
        ranked = matcher.ranked(data.request, data.tools, at_least=LEAST_LIKENESS)
        return MatchOut(offered=[one.routine.ref for one in ranked])
    return fill(MatchOut, found, offered=[found.routine])


@post("/runs", responses=errors(404, 409, 410), tags=["routines"])
async def post_run(request: AnyRequest, data: JSONBody[RunIn], key: Key = None) -> Response[RunOut]:
    """Run a stored routine, with the tools that it declares and em.yaml allows.

    With an Idempotency-Key, an interrupted run is resumed. A token limited to subjects names one of
    them, and runs what is in use.
    """
    service = service_of(request)
    caller = service.caller(request, "write")
    caller.must_see(data.subject)

    def go(data: RunIn, run_id: str) -> RunOut:
        # Pass the routine itself: the name alone could be taken for a folder on this machine.
        routine = _served_routine(service, caller, data.routine)
        answers = data.answers or None
        if not service.store.head(run_stream(run_id))[0]:
            result = service.memory.run(
                routine,
                data.input,
                run_id=run_id,
                answers=answers,
                subject=data.subject,
                client=service.model() if data.llm else None,
            )
            return fill(RunOut, result)
        past = read_run(service.store, run_id, subjects=caller.subjects)
        if past.status == "running":
            return fill(RunOut, service.memory.resume(run_id, answers=answers))
        return _run(past)

    return await respond_with_run(request, key, data, go, 201)


@post(
    "/runs/prepare",
    responses=errors(404, 409),
    status_code=200,
    sync_to_thread=True,
    tags=["routines"],
)
def prepare_run(request: AnyRequest, data: JSONBody[RunIn]) -> PreparedOut:
    """Run a stored routine up to its first write, and return what it would write."""
    service = service_of(request)
    caller = service.caller(request, "write")
    caller.must_see(data.subject)
    service.is_run()
    service.refuse_secrets(data)
    found = service.memory.prepare(
        _served_routine(service, caller, data.routine),
        data.input,
        answers=data.answers or None,
        subject=data.subject,
        client=service.model() if data.llm else None,
    )
    return fill(PreparedOut, found)


@post("/runs/commit", responses=errors(404, 409, 410), tags=["routines"])
async def commit_run(
    request: AnyRequest, data: JSONBody[CommitIn], key: Key = None
) -> Response[RunOut]:
    """Make the writes of a plan, if everything that it showed is still the same.

    With an Idempotency-Key, the response is repeated. An interrupted run is not begun again.
    """
    service = service_of(request)
    caller = service.caller(request, "write")
    caller.must_see(data.subject)

    def go(data: CommitIn, run_id: str) -> RunOut:
        if service.store.head(run_stream(run_id))[0]:
            return _run(read_run(service.store, run_id, subjects=caller.subjects))
        return fill(RunOut, service.memory.commit(data.plan, run_id=run_id, subject=data.subject))

    return await respond_with_run(request, key, data, go, 201)


def _refuse_unseen(service: Service, caller: Caller, run_id: str) -> None:
    """Raise NotFound for a run about a subject that a caller who is limited may not see."""
    if caller.subjects is not None:
        read_run(service.store, run_id, subjects=caller.subjects)


def _served_routine(service: Service, caller: Caller, ref: str) -> KeptRoutine:
    """Return a stored routine that a caller may run; one who is limited runs what is in use."""
    artefact = find_routine(service.store, ref)
    if caller.subjects is not None and not standing_of(service.store, artefact).by_itself:
        raise Forbidden(
            f"the routine {artefact.ref} is not in use, and this token is limited to subjects",
            place="routine",
            fix="ask who owns the memory to accept it",
        )
    return routine_of(artefact)


D = TypeVar("D", bound=msgspec.Struct)
R = TypeVar("R", RunOut, WorkflowRunOut)


async def respond_with_run(
    request: AnyRequest, key: str | None, data: D, go: Callable[[D, str], R], status: int
) -> Response[R]:
    """Run something, once for each key, and respond with its run.

    go: gets what was sent, and the id for a new run; requests with the same key get the same id.
    Forgetting an event of the run forgets the response. A secret in what was sent is refused.
    """
    service = service_of(request)
    service.is_run()
    await asyncio.to_thread(service.refuse_secrets, data)

    def work(data: D, pending: Pending) -> None:
        out = go(data, pending.key.removeprefix("http/")[:28] or new_id())
        events = service.store.read(EventQuery(stream=run_stream(out.run_id)))
        pending.finish(service.store, out, status, (event.id for event in events))

    return await service.carry_out(request, key, data, work)


Chosen = Annotated[str | None, QueryParameter(max_length=512)]
InStatus = Annotated[RunStatus | None, QueryParameter(description="Runs with this status.")]


def page_of_runs(
    request: AnyRequest,
    kind: RunKind,
    limit: int,
    offset: int,
    cursor: str | None,
    name: str | None,
    status: str | None,
    subject: str | None,
    since: str | None,
    until: str | None,
) -> tuple[list[tuple[RunSummary, Json]], Pagination]:
    """Return a page of runs in short, each with the body of the event that ended or paused it."""
    service = service_of(request)
    service.caller(request).must_see(subject if kind == "routine" else None)
    chosen: RunFilter = {
        "name": name,
        "status": status,
        "subjects": None if subject is None else [subject],
        "since": None if since is None else moment(since, "since"),
        "until": None if until is None else moment(until, "until"),
    }
    before = Cursor.of(cursor)
    found = find_runs(service.store, kind, before=before, limit=offset + limit, **chosen)
    total = service.store.summaries.count(run_query(kind, **chosen))
    older = None if found.older is None else str(found.older)
    shown = [(run, end_of_run(service.store, run.run_id)) for run in found.runs[offset:]]
    return shown, Pagination(limit, offset, total, older)


@get("/runs", responses=errors(), sync_to_thread=True, tags=["routines"])
def list_runs(
    request: AnyRequest,
    limit: Limit = 50,
    offset: Offset = 0,
    routine: Chosen = None,
    status: InStatus = None,
    subject: Chosen = None,
    since: Moment = None,
    until: Moment = None,
    cursor: Place = None,
) -> Runs:
    """List runs of routines, newest first."""
    shown, pagination = page_of_runs(
        request, "routine", limit, offset, cursor, routine, status, subject, since, until
    )
    return Runs([_in_short(run, end) for run, end in shown], pagination)


def _in_short(run: RunSummary, end: Json) -> RunOut:
    return RunOut(
        run_id=run.run_id,
        status="needs_input" if run.status == HANDED_OVER else run.status,
        routine=run.stored or run.routine,
        started_at=run.began,
        reason=end.get("reason"),
        **ending(end),
    )


def ending(end: Json) -> Json:
    """Return the fields of a run's shape that the event has which ended or paused it."""
    shown = {"output": "output", "failure": "failure", "prompt": "pending_prompt"}
    return {field: end.get(name) for name, field in shown.items()}


@get("/runs/{run_id:str}", responses=errors(404), sync_to_thread=True, tags=["routines"])
def get_run(request: AnyRequest, run_id: FromPath[str]) -> RunOut:
    """Return a run's status, and its output, its failure, its pending prompt or its reason."""
    service = service_of(request)
    caller = service.caller(request)
    return _run(read_run(service.store, run_id, subjects=caller.subjects))


def _run(past: PastRun) -> RunOut:
    return fill(
        RunOut,
        past,
        status=past.result_status,
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
    """Answer a run's prompts, by the ids of their steps, and resume it."""
    service = service_of(request)
    caller = service.caller(request, "write")
    await asyncio.to_thread(_refuse_unseen, service, caller, run_id)

    def go(data: AnswersIn, _new_id: str) -> RunOut:
        read_served_run(service.store, run_id)
        result = service.memory.resume(run_id, answers=data.answers)
        return fill(RunOut, result)

    return await respond_with_run(request, key, data, go, 200)


@post(
    "/runs/{run_id:str}/retry", responses=errors(404, 409, 410), status_code=200, tags=["routines"]
)
async def retry_run(
    request: AnyRequest, run_id: FromPath[str], data: JSONBody[RetryIn], key: Key = None
) -> Response[RunOut]:
    """Take up a run that failed or was cancelled, where it stopped.

    Nothing is done twice: where a call may have happened and has no key, the response is 400 and
    says so.
    """
    service = service_of(request)
    caller = service.caller(request, "write")
    await asyncio.to_thread(_refuse_unseen, service, caller, run_id)
    by = caller.name

    def go(data: RetryIn, _new_id: str) -> RunOut:
        refuse_retry(read_stored_run(service.store, run_id), UsageError)
        return fill(
            RunOut, service.memory.resume(run_id, retry=True, by=by, answers=data.answers or None)
        )

    return await respond_with_run(request, key, data, go, 200)


@post(
    "/runs/{run_id:str}/cancel",
    responses=errors(404, 409),
    status_code=200,
    sync_to_thread=True,
    tags=["routines"],
)
def cancel_run(request: AnyRequest, run_id: FromPath[str]) -> RunOut:
    """Stop a run before its next step, wherever it runs. What was done stays done."""
    service = service_of(request)
    caller = service.caller(request, "write")
    _refuse_unseen(service, caller, run_id)
    return _run(history.cancel_run(service.store, run_id, by=caller.name, kind="routine"))


HANDLERS = [
    list_routines,
    list_checks,
    strike_check,
    accept_routine,
    withdraw_acceptance,
    retire_routine,
    restore_routine,
    match_request,
    post_run,
    prepare_run,
    commit_run,
    list_runs,
    get_run,
    post_answers,
    retry_run,
    cancel_run,
]
