"""Pages of the log: follow, filter and verify it, show one event, recall passages."""

from litestar import Response, get

from em.log.event import EventQuery
from em.log.kinds import HOMES
from em.serve.auth import PAGES
from em.serve.pages.view import page, parameter, whole_number
from em.serve.service import AnyRequest, service_of

SHOWN = 50


@get(f"{PAGES}/log", include_in_schema=False, sync_to_thread=True)
def get_log(request: AnyRequest) -> Response[str]:
    """Show the newest events. A token limited to subjects sees one subject at a time."""
    service = service_of(request)
    caller = service.caller(request)
    subject, stream = parameter(request, "subject"), parameter(request, "stream")
    kind, before = parameter(request, "kind"), whole_number(request, "before")
    if caller.subjects is not None and not subject:
        subject = min(caller.subjects, default="")
    caller.must_see(subject or None)
    query = EventQuery(
        subject=subject or None,
        stream=stream or None,
        kinds=[kind] if kind else [],
        before=before,
        limit=SHOWN + 1,
        newest=True,
    )
    events = list(reversed(list(service.store.read(query))))
    return page(
        request,
        "log.html",
        events=events[:SHOWN],
        older=events[SHOWN - 1].seq if len(events) > SHOWN else None,
        subject=subject,
        subjects=[] if caller.subjects is None else sorted(caller.subjects),
        stream=stream,
        kind=kind,
        kinds=sorted(HOMES),
        before=before,
        follow=bool(parameter(request, "follow")) and before is None,
        may_verify=caller.subjects is None,
    )


@get(f"{PAGES}/event", include_in_schema=False, sync_to_thread=True)
def get_event(request: AnyRequest) -> Response[str]:
    """Show one event."""
    service = service_of(request)
    caller = service.caller(request)
    event_id = parameter(request, "id")
    event = service.memory.log.get(event_id)
    caller.must_find(event.subject, f"event {event_id!r}")
    return page(request, "event.html", event=event)


@get(f"{PAGES}/verify", include_in_schema=False, sync_to_thread=True)
def get_verify(request: AnyRequest) -> Response[str]:
    """Verify the log and show the report."""
    service = service_of(request)
    service.caller(request).must_see(None)
    return page(request, "verify.html", report=service.memory.log.verify())


MOST = 20


@get(f"{PAGES}/recall", include_in_schema=False, sync_to_thread=True)
def get_recall(request: AnyRequest) -> Response[str]:
    """Search passages. A token limited to subjects searches one subject at a time."""
    service = service_of(request)
    caller = service.caller(request)
    words, subject = parameter(request, "q"), parameter(request, "subject")
    if caller.subjects is not None and not subject:
        subject = min(caller.subjects, default="")
    found = None
    if words:
        caller.must_see(subject or None)
        found = service.memory.recall(words, subject=subject or None, k=MOST, neighbours=1)
    subjects = [] if caller.subjects is None else sorted(caller.subjects)
    return page(request, "recall.html", q=words, subject=subject, subjects=subjects, found=found)


HANDLERS = [get_log, get_event, get_verify, get_recall]
