"""HTTP API of routines: list them."""

from litestar import get

from em.runner.package import kept_routines
from em.serve.api.shapes import RoutineOut, Routines, fill
from em.serve.service import AnyRequest, Limit, Offset, errors, page, service_of


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


HANDLERS = [list_routines]
