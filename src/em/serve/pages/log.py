"""Pages of the log: follow, filter and verify it, show one event, recall passages."""

from itertools import islice

from litestar import Response, get

from em.log.event import EventQuery
from em.log.kinds import HOMES
from em.serve.auth import PAGES
from em.serve.pages.table import (
    ROWS,
    SINCE,
    SUBJECT,
    UNTIL,
    Column,
    Filter,
    ListShape,
    ListView,
    of_one_subject,
)
from em.serve.pages.view import address, page, parameter
from em.serve.service import AnyRequest, service_of
from em.store.protocol import Passage

LOG = ListShape(
    "/log",
    "events",
    (Column("Seq", True), Column("When"), Column("Kind"), Column("Stream"), Column("What")),
    (
        Filter("kind", "Kind", options=sorted(HOMES), is_first=True),
        Filter("stream", "Stream", is_first=True),
        SUBJECT._replace(is_first=True),
        SINCE,
        UNTIL,
    ),
)


@get(f"{PAGES}/log", include_in_schema=False, sync_to_thread=True)
def get_log(request: AnyRequest) -> Response[str]:
    """Show events, the newest first. A token limited to subjects sees one subject at a time."""
    service = service_of(request)
    caller = service.caller(request)
    view = ListView(of_one_subject(LOG, caller), request)
    subject = view.get("subject") or None
    caller.must_see(subject)
    query = EventQuery(
        subject=subject,
        stream=view.get("stream") or None,
        kinds=[view.get("kind")] if view.get("kind") else [],
        since=view.time("since"),
        until=view.time("until"),
        before=view.number or None,
        limit=ROWS + 1,
        newest=True,
    )
    found = list(service.store.read(query))[::-1]
    events = view.go_on(found[:ROWS], found[ROWS - 1].seq if len(found) > ROWS else None)
    watched = {name: view.get(name) for name in ("subject", "stream", "kind")}
    newest = max((event.seq for event in events), default=0)
    return page(
        request,
        "log.html",
        view=view,
        events=events,
        follow=bool(parameter(request, "follow")) and not view.cursor,
        told=address("/live", **watched, after=newest),
        may_verify=caller.subjects is None,
    )


@get(f"{PAGES}/event", include_in_schema=False, sync_to_thread=True)
def get_event(request: AnyRequest) -> Response[str]:
    """Show one event."""
    service = service_of(request)
    subjects = service.caller(request).subjects
    event = service.memory.log.get(parameter(request, "id"), subjects=subjects)
    return page(request, "event.html", event=event)


@get(f"{PAGES}/verify", include_in_schema=False, sync_to_thread=True)
def get_verify(request: AnyRequest) -> Response[str]:
    """Verify the log and show the report."""
    service = service_of(request)
    service.caller(request).must_see(None)
    return page(request, "verify.html", report=service.memory.log.verify())


MOST = 200
"""The most passages of one search."""
RECALL = ListShape(
    "/recall",
    "passages",
    (),
    (Filter("q", "Question", "words", is_first=True), SUBJECT, SINCE, UNTIL),
)


@get(f"{PAGES}/recall", include_in_schema=False, sync_to_thread=True)
def get_recall(request: AnyRequest) -> Response[str]:
    """Search passages. A token limited to subjects searches one subject at a time."""
    service = service_of(request)
    caller = service.caller(request)
    view = ListView(of_one_subject(RECALL, caller), request)
    words, subject = view.get("q"), view.get("subject") or None
    found, passages = None, list[Passage]()
    if words:
        caller.must_see(subject)
        found = service.memory.recall(
            words,
            subject=subject,
            k=min(view.number + ROWS + 1, MOST),
            since=view.time("since"),
            until=view.time("until"),
            neighbours=1,
        )
        passages = list(view.page_of(islice(found, MOST)))
    return page(request, "recall.html", view=view, found=found, passages=passages)


HANDLERS = [get_log, get_event, get_verify, get_recall]
