"""HTTP API of runs, of routines and of workflows: start, list, read, answer, retry, cancel."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from litestar import Response
from litestar.params import FromPath, JSONBody, QueryParameter

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
from em.runner.package import KeptRoutine, find_routine, routine_of
from em.runner.run import HANDED_OVER, Failure, PendingPrompt, Planned, Reason
from em.runner.standing import standing_of
from em.serve.api.shapes import (
    Exact,
    Key,
    Limit,
    Moment,
    Name,
    Offset,
    Page,
    Pagination,
    Place,
    acts,
    acts_once,
    fill,
    page_of,
    reads,
)
from em.serve.auth import Access, Caller
from em.serve.service import AnyRequest, Pending, Service, service_of
from em.values.canonical import Json
from em.values.times import moment, new_id
from em.workflows.inspection import PastWorkflow, StepView
from em.workflows.slices import StepTokens


class RunIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stored routine (`name` or `name@version`) and its input.

    subject: who the run is about; it is forgotten with them. llm: the server's model may read a
    request in words.
    """

    routine: Name
    input: Json = {}
    answers: dict[str, Json] = {}
    subject: Name | None = None
    llm: bool = False


class CommitIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plan by its token, and the subject that it was prepared for."""

    plan: Name
    subject: Name | None = None


class PreparedOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run up to its first write: what was read, and what would be written.

    The status says how the run would go. `token` commits just this, once, for 15 minutes; there is
    none if the run would ask, hand over or fail. `text` is all of it in words.
    """

    status: str
    token: str = ""
    text: str = ""
    context: Json = {}
    planned: Sequence[Planned] = ()
    output: Any = None
    failure: Failure | None = None
    pending_prompt: PendingPrompt | None = None
    reason: Reason | None = None


class AnswersIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Answers, by the ids of the steps that ask."""

    answers: dict[str, Json]


class RetryIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run to be taken up where it stopped. answers: to what it asks on its way, if known."""

    answers: dict[str, Json] = {}


class RunOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run's result, with its routine or workflow and its start; without its steps.

    `output` belongs to ok, `failure` to failed, `pending_prompt` or `reason` to needs_input. With a
    `reason` it handed over: a check failed before anything was done, and nothing can be answered.
    `chosen` has a required input that was not given, where only this value passed all checks.
    """

    run_id: str
    status: str
    routine: str = ""
    workflow: str = ""
    chosen: Json = {}
    output: Any = None
    failure: Failure | None = None
    pending_prompt: PendingPrompt | None = None
    reason: Reason | None = None
    warnings: Sequence[str] = ()
    started_at: datetime | None = None


class ParamOut(msgspec.Struct, frozen=True):
    """A parameter of a workflow."""

    name: str
    type: str | None
    required: bool


class WorkflowOut(msgspec.Struct, frozen=True):
    """A workflow of em.yaml."""

    name: str
    description: str
    params: Sequence[ParamOut]
    steps: Sequence[str]


class WorkflowRunIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A workflow of em.yaml, its parameters, the prompt that starts it, and who it is about."""

    workflow: Name
    params: Json = {}
    prompt: Annotated[str, msgspec.Meta(max_length=1_000_000)] | None = None
    answers: dict[str, Json] = {}
    subject: Name | None = None


class WorkflowSteps(msgspec.Struct, frozen=True, kw_only=True):
    """A run, step by step: context, output and tokens of each. The run itself has its result."""

    run_id: str
    workflow: str
    status: str
    prompt: str | None
    params: Json
    tokens: StepTokens
    steps: Sequence[StepView]


D = TypeVar("D", bound=msgspec.Struct)


async def _respond(
    request: AnyRequest, key: str | None, data: D, go: Callable[[D, str], RunOut], status: int
) -> Response[RunOut]:
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


def _kind(request: AnyRequest) -> RunKind:
    return "workflow" if request.url.path.startswith("/workflow-runs") else "routine"


def _caller(request: AnyRequest, access: Access = "read") -> Caller:
    """Return the caller; workflows are for those who may see everything."""
    caller = service_of(request).caller(request, access)
    if _kind(request) == "workflow":
        caller.must_see(None)
    return caller


def _shown(past: PastRun) -> RunOut:
    if past.is_workflow:
        return fill(RunOut, PastWorkflow(past).result())
    return fill(
        RunOut,
        past,
        status=past.result_status,
        routine=past.stored or past.routine,
        pending_prompt=past.prompt,
        started_at=past.began,
    )


def _refuse_unseen(service: Service, caller: Caller, run_id: str) -> None:
    """Raise NotFound for a run about a subject that a caller who is limited may not see."""
    if caller.subjects is not None:
        read_run(service.store, run_id, subjects=caller.subjects)


# --- start ----------------------------------------------------------------------------------------


@acts_once("/runs", "routines", 404)
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
        return _shown(past)

    return await _respond(request, key, data, go, 201)


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


@acts("/runs/prepare", "routines", 404, 409)
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


@acts_once("/runs/commit", "routines", 404)
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
            return _shown(read_run(service.store, run_id, subjects=caller.subjects))
        return fill(RunOut, service.memory.commit(data.plan, run_id=run_id, subject=data.subject))

    return await _respond(request, key, data, go, 201)


@reads("/workflows", "workflows")
def list_workflows(request: AnyRequest, limit: Limit = 50, offset: Offset = 0) -> Page[WorkflowOut]:
    """List the workflows of em.yaml."""
    service = service_of(request)
    service.caller(request).must_see(None)
    found = (
        fill(
            WorkflowOut,
            one,
            params=[fill(ParamOut, param, required=param.is_required) for param in one.parameters],
            steps=[step.name for step in one.steps],
        )
        for one in service.memory.workflows().names()
    )
    return page_of(found, limit, offset)


@acts_once("/workflow-runs", "workflows", 404)
async def post_workflow_run(
    request: AnyRequest, data: JSONBody[WorkflowRunIn], key: Key = None
) -> Response[RunOut]:
    """Run a workflow of em.yaml. With an Idempotency-Key, an interrupted run is resumed."""
    service = service_of(request)
    _caller(request, "write")

    def go(data: WorkflowRunIn, run_id: str) -> RunOut:
        result = service.memory.workflows().start(
            data.workflow,
            data.params,
            prompt=data.prompt,
            run_id=run_id,
            answers=data.answers or None,
            subject=data.subject,
        )
        return fill(RunOut, result)

    return await _respond(request, key, data, go, 201)


# --- list and read --------------------------------------------------------------------------------

InStatus = Annotated[RunStatus | None, QueryParameter(description="Runs with this status.")]


@reads("/runs", "routines")
def list_runs(
    request: AnyRequest,
    limit: Limit = 50,
    offset: Offset = 0,
    routine: Exact = None,
    status: InStatus = None,
    subject: Exact = None,
    since: Moment = None,
    until: Moment = None,
    cursor: Place = None,
) -> Page[RunOut]:
    """List runs of routines, newest first."""
    service_of(request).caller(request).must_see(subject)
    return _page(request, limit, offset, cursor, routine, status, subject, since, until)


@reads("/workflow-runs", "workflows")
def list_workflow_runs(
    request: AnyRequest,
    limit: Limit = 50,
    offset: Offset = 0,
    workflow: Exact = None,
    status: InStatus = None,
    subject: Exact = None,
    since: Moment = None,
    until: Moment = None,
    cursor: Place = None,
) -> Page[RunOut]:
    """List runs of workflows, newest first. The warnings of a run are where it is read alone."""
    _caller(request)
    return _page(request, limit, offset, cursor, workflow, status, subject, since, until)


def _page(
    request: AnyRequest,
    limit: int,
    offset: int,
    cursor: str | None,
    name: str | None,
    status: str | None,
    subject: str | None,
    since: str | None,
    until: str | None,
) -> Page[RunOut]:
    store, kind = service_of(request).store, _kind(request)
    chosen: RunFilter = {
        "name": name,
        "status": status,
        "subjects": None if subject is None else [subject],
        "since": None if since is None else moment(since, "since"),
        "until": None if until is None else moment(until, "until"),
    }
    found = find_runs(store, kind, before=Cursor.of(cursor), limit=offset + limit, **chosen)
    total = store.summaries.count(run_query(kind, **chosen))
    further = None if found.older is None else str(found.older)
    shown = [_in_short(run, end_of_run(store, run.run_id), kind) for run in found.runs[offset:]]
    return Page(shown, Pagination(limit, offset, total, further))


def _in_short(run: RunSummary, end: Json, kind: RunKind) -> RunOut:
    is_workflow = kind == "workflow"
    return RunOut(
        run_id=run.run_id,
        status="needs_input" if run.status == HANDED_OVER else run.status,
        routine="" if is_workflow else run.stored or run.routine,
        workflow=run.routine if is_workflow else "",
        started_at=run.began,
        reason=end.get("reason"),
        output=end.get("output"),
        failure=end.get("failure"),
        pending_prompt=end.get("prompt"),
    )


@reads(["/runs/{run_id:str}", "/workflow-runs/{run_id:str}"], "routines", 404)
def get_run(request: AnyRequest, run_id: FromPath[str]) -> RunOut:
    """Return a run's status, and its output, its failure, its pending prompt or its reason."""
    caller = _caller(request)
    return _shown(read_run(service_of(request).store, run_id, _kind(request), caller.subjects))


@reads("/workflow-runs/{run_id:str}/steps", "workflows", 404)
def get_workflow_steps(request: AnyRequest, run_id: FromPath[str]) -> WorkflowSteps:
    """Return the context and the output of each step, and the tokens that were saved."""
    _caller(request)
    return fill(WorkflowSteps, service_of(request).memory.workflows().inspect(run_id))


# --- go on and stop -------------------------------------------------------------------------------

Resume = Callable[..., Any]


def _resume(request: AnyRequest) -> Resume:
    memory = service_of(request).memory
    return memory.workflows().resume if _kind(request) == "workflow" else memory.resume


@acts_once(
    ["/runs/{run_id:str}/answers", "/workflow-runs/{run_id:str}/answers"],
    "routines",
    404,
    status_code=200,
)
async def post_answers(
    request: AnyRequest, run_id: FromPath[str], data: JSONBody[AnswersIn], key: Key = None
) -> Response[RunOut]:
    """Answer a run's prompts and gates, by the ids of their steps, and resume it."""
    service, caller = service_of(request), _caller(request, "write")
    await asyncio.to_thread(_refuse_unseen, service, caller, run_id)

    def go(data: AnswersIn, _new_id: str) -> RunOut:
        read_served_run(service.store, run_id, _kind(request))
        return fill(RunOut, _resume(request)(run_id, answers=data.answers))

    return await _respond(request, key, data, go, 200)


@acts_once(
    ["/runs/{run_id:str}/retry", "/workflow-runs/{run_id:str}/retry"],
    "routines",
    404,
    status_code=200,
)
async def retry_run(
    request: AnyRequest, run_id: FromPath[str], data: JSONBody[RetryIn], key: Key = None
) -> Response[RunOut]:
    """Take up a run that failed or was cancelled, where it stopped.

    Nothing is done twice: where a call may have happened and has no key, the response is 400 and
    says so.
    """
    service, caller = service_of(request), _caller(request, "write")
    await asyncio.to_thread(_refuse_unseen, service, caller, run_id)

    def go(data: RetryIn, _new_id: str) -> RunOut:
        refuse_retry(read_stored_run(service.store, run_id, _kind(request)), UsageError)
        resume, answers = _resume(request), data.answers or None
        return fill(RunOut, resume(run_id, retry=True, by=caller.name, answers=answers))

    return await _respond(request, key, data, go, 200)


@acts(["/runs/{run_id:str}/cancel", "/workflow-runs/{run_id:str}/cancel"], "routines", 404, 409)
def cancel_run(request: AnyRequest, run_id: FromPath[str]) -> RunOut:
    """Stop a run before its next step, wherever it runs. What was done stays done."""
    service, caller = service_of(request), _caller(request, "write")
    _refuse_unseen(service, caller, run_id)
    kind = _kind(request)
    return _shown(history.cancel_run(service.store, run_id, by=caller.name, kind=kind))


HANDLERS = [
    post_run,
    prepare_run,
    commit_run,
    list_workflows,
    post_workflow_run,
    list_runs,
    list_workflow_runs,
    get_run,
    get_workflow_steps,
    post_answers,
    retry_run,
    cancel_run,
]
