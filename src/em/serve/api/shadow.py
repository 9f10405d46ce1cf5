"""HTTP API of shadow mode: how often routines agreed with agents.

A comparison may quote the traces that its routine was compiled from, so a token that is limited to
subjects sees none.
"""

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter

from em.compiler.shadow import comparisons
from em.serve.api.shapes import Comparisons, ShadowOut, Shadows, fill
from em.serve.service import AnyRequest, Limit, Offset, errors, page, service_of

Routine = Annotated[
    str | None,
    QueryParameter(max_length=600, description="Only this one: `name`, or `name@version`."),
]
Subject = Annotated[str | None, QueryParameter(max_length=512)]


@get("/shadow", responses=errors(), sync_to_thread=True, tags=["routines"])
def list_shadow(
    request: AnyRequest,
    routine: Routine = None,
    subject: Subject = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Shadows:
    """Count how often each version of each routine agreed with the recorded agents."""
    service = service_of(request)
    service.caller(request).must_see(None)
    reports = service.memory.shadow_report(routine, subject=subject)
    return Shadows(*page((fill(ShadowOut, one) for one in reports), limit, offset))


@get("/shadow/comparisons", responses=errors(), sync_to_thread=True, tags=["routines"])
def list_comparisons(
    request: AnyRequest,
    routine: Routine = None,
    subject: Subject = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> Comparisons:
    """List what routines would have done and what the agents did, newest first."""
    service = service_of(request)
    service.caller(request).must_see(None)
    found = comparisons(service.store, routine, about=subject)
    return Comparisons(*page(reversed(found), limit, offset))


HANDLERS = [list_shadow, list_comparisons]
