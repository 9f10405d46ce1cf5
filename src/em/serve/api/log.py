"""HTTP API of the log: read events, verify the chain."""

from typing import Annotated

import msgspec
from litestar import get
from litestar.params import QueryParameter

from em.log.event import EventQuery
from em.serve.api.shapes import EventOut, Events, Verified, fill
from em.serve.service import AnyRequest, Limit, errors, service_of
from em.values.times import moment

Name = Annotated[str | None, QueryParameter(max_length=512)]


@get("/log", responses=errors(), sync_to_thread=True, tags=["log"])
def get_log(
    request: AnyRequest,
    stream: Name = None,
    subject: Name = None,
    kind: Name = None,
    since: Name = None,
    until: Name = None,
    after: Annotated[int, QueryParameter(ge=0, le=2**62)] = 0,
    limit: Limit = 50,
) -> Events:
    """List events, oldest first. A token limited to subjects must give `subject`."""
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
    return Events([fill(EventOut, event) for event in found[:limit]], len(found) > limit)


@get("/log/verify", responses=errors(), sync_to_thread=True, tags=["log"])
def get_verify(request: AnyRequest) -> Verified:
    """Verify that no event was changed, reordered or removed."""
    service = service_of(request)
    service.caller(request).must_see(None)
    report = service.memory.log.verify()
    problems = [str(msgspec.to_builtins(finding)) for finding in report.findings[:100]]
    return Verified(report.ok, report.events, problems)


HANDLERS = [get_log, get_verify]
