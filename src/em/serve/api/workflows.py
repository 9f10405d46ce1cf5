"""HTTP API of workflows: list those of em.yaml; start, list, read and answer their runs."""

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody

from em.errors import UsageError
from em.runner.history import cancel_run, read_served_run, read_stored_run, refuse_retry
from em.serve.api.routines import Chosen, InStatus, ending, page_of_runs, respond_with_run
from em.serve.api.shapes import (
    AnswersIn,
    ParamOut,
    RetryIn,
    WorkflowOut,
    WorkflowRunIn,
    WorkflowRunOut,
    WorkflowRuns,
    Workflows,
    WorkflowSteps,
    fill,
)
from em.serve.service import (
    AnyRequest,
    Key,
    Limit,
    Moment,
    Offset,
    Place,
    Service,
    errors,
    page,
    service_of,
)
from em.workflows.inspection import PastWorkflow
from em.workflows.runs import Workflows as Runner


def _runner(service: Service) -> Runner:
    """Return the runner of workflows, without Python tools: only built-in and allowed ones."""
    return service.memory.workflows()


@get("/workflows", responses=errors(), sync_to_thread=True, tags=["workflows"])
def list_workflows(request: AnyRequest, limit: Limit = 50, offset: Offset = 0) -> Workflows:
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
        for one in _runner(service).names()
    )
    return Workflows(*page(found, limit, offset))


@post("/workflow-runs", responses=errors(404, 409, 410), tags=["workflows"])
async def post_workflow_run(
    request: AnyRequest, data: JSONBody[WorkflowRunIn], key: Key = None
) -> Response[WorkflowRunOut]:
    """Run a workflow of em.yaml. With an Idempotency-Key, an interrupted run is resumed."""
    service = service_of(request)
    service.caller(request, "write").must_see(None)

    def go(data: WorkflowRunIn, run_id: str) -> WorkflowRunOut:
        result = _runner(service).start(
            data.workflow,
            data.params,
            prompt=data.prompt,
            run_id=run_id,
            answers=data.answers or None,
            subject=data.subject,
        )
        return fill(WorkflowRunOut, result)

    return await respond_with_run(request, key, data, go, 201)


@get("/workflow-runs", responses=errors(), sync_to_thread=True, tags=["workflows"])
def list_workflow_runs(
    request: AnyRequest,
    limit: Limit = 50,
    offset: Offset = 0,
    workflow: Chosen = None,
    status: InStatus = None,
    subject: Chosen = None,
    since: Moment = None,
    until: Moment = None,
    cursor: Place = None,
) -> WorkflowRuns:
    """List runs of workflows, newest first. The warnings of a run are where it is read alone."""
    shown, pagination = page_of_runs(
        request, "workflow", limit, offset, cursor, workflow, status, subject, since, until
    )
    runs = [
        WorkflowRunOut(
            run_id=run.run_id,
            workflow=run.routine,
            status=run.status,
            started_at=run.began,
            **ending(end),
        )
        for run, end in shown
    ]
    return WorkflowRuns(runs, pagination)


@get("/workflow-runs/{run_id:str}", responses=errors(404), sync_to_thread=True, tags=["workflows"])
def get_workflow_run(request: AnyRequest, run_id: FromPath[str]) -> WorkflowRunOut:
    """Return a run's status, and its output, its failure or its pending prompt."""
    service = service_of(request)
    service.caller(request).must_see(None)
    return fill(WorkflowRunOut, PastWorkflow.read(service.store, run_id).result())


@get(
    "/workflow-runs/{run_id:str}/steps",
    responses=errors(404),
    sync_to_thread=True,
    tags=["workflows"],
)
def get_workflow_steps(request: AnyRequest, run_id: FromPath[str]) -> WorkflowSteps:
    """Return the context and the output of each step, and the tokens that were saved."""
    service = service_of(request)
    service.caller(request).must_see(None)
    return fill(WorkflowSteps, _runner(service).inspect(run_id))


@post(
    "/workflow-runs/{run_id:str}/answers",
    responses=errors(404, 409, 410),
    status_code=200,
    tags=["workflows"],
)
async def post_workflow_answers(
    request: AnyRequest, run_id: FromPath[str], data: JSONBody[AnswersIn], key: Key = None
) -> Response[WorkflowRunOut]:
    """Answer a run's prompts and gates, by the names of their steps, and resume it."""
    service = service_of(request)
    service.caller(request, "write").must_see(None)

    def go(data: AnswersIn, _new_id: str) -> WorkflowRunOut:
        read_served_run(service.store, run_id, "workflow")
        return fill(WorkflowRunOut, _runner(service).resume(run_id, answers=data.answers))

    return await respond_with_run(request, key, data, go, 200)


@post(
    "/workflow-runs/{run_id:str}/retry",
    responses=errors(404, 409, 410),
    status_code=200,
    tags=["workflows"],
)
async def retry_workflow_run(
    request: AnyRequest, run_id: FromPath[str], data: JSONBody[RetryIn], key: Key = None
) -> Response[WorkflowRunOut]:
    """Take up a run that failed or was cancelled, where it stopped.

    Nothing is done twice: where a call may have happened and has no key, the response is 400 and
    says so.
    """
    service = service_of(request)
    service.caller(request, "write").must_see(None)
    by = service.caller(request, "write").name

    def go(data: RetryIn, _new_id: str) -> WorkflowRunOut:
        refuse_retry(read_stored_run(service.store, run_id, "workflow"), UsageError)
        return fill(
            WorkflowRunOut,
            _runner(service).resume(run_id, retry=True, by=by, answers=data.answers or None),
        )

    return await respond_with_run(request, key, data, go, 200)


@post(
    "/workflow-runs/{run_id:str}/cancel",
    responses=errors(404, 409),
    status_code=200,
    sync_to_thread=True,
    tags=["workflows"],
)
def cancel_workflow_run(request: AnyRequest, run_id: FromPath[str]) -> WorkflowRunOut:
    """Stop a run before its next step, wherever it runs. What was done stays done."""
    service = service_of(request)
    caller = service.caller(request, "write")
    caller.must_see(None)
    cancel_run(service.store, run_id, by=caller.name, kind="workflow")
    return fill(WorkflowRunOut, PastWorkflow.read(service.store, run_id).result())


HANDLERS = [
    list_workflows,
    post_workflow_run,
    list_workflow_runs,
    get_workflow_run,
    get_workflow_steps,
    post_workflow_answers,
    retry_workflow_run,
    cancel_workflow_run,
]
