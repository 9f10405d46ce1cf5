"""Workflows: their runs, and of each step the context it was given and the tokens that saved."""

from litestar import Response, get

from em.serve.auth import PAGES
from em.serve.pages.view import asked, page
from em.serve.service import AnyRequest, service_of
from em.workflows.inspection import inspect_run, run_lines

SHOWN = 50


@get(f"{PAGES}/workflows", include_in_schema=False, sync_to_thread=True)
def get_workflows(request: AnyRequest) -> Response[str]:
    """The newest runs of workflows."""
    service = service_of(request)
    service.caller(request).must_see(None)
    runs = run_lines(service.store, SHOWN)
    return page(request, "workflows.html", runs=runs)


@get(f"{PAGES}/workflow", include_in_schema=False, sync_to_thread=True)
def get_workflow(request: AnyRequest) -> Response[str]:
    """One run of a workflow, step by step."""
    service = service_of(request)
    service.caller(request).must_see(None)
    seen = inspect_run(service.store, asked(request, "id"))
    most = max((step.tokens.full for step in seen.steps if step.tokens), default=0) or 1
    return page(request, "workflow.html", seen=seen, most=most)


HANDLERS = [get_workflows, get_workflow]
