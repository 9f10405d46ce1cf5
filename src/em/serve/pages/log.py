"""Pages of the log: follow, filter and verify it, show one event, recall passages."""

from litestar import Response, get
from litestar.response import Stream

from em.log.event import Event, EventQuery
from em.log.kinds import HOMES
from em.serve.auth import PAGES
from em.serve.pages.live import told
from em.serve.pages.table import (
    ROWS,
    SINCE,
    SUBJECT,
    UNTIL,
    Column,
    Filter,
    Found,
    ListShape,
    ListView,
    of_one_subject,
    place_of_event,
)
from em.serve.pages.view import address, page, parameter
from em.serve.service import AnyRequest, service_of
from em.store.protocol import Passage

LOG = ListShape(
    "/log",
    "events",
    (
        Column("Seq", "seq", is_number=True),
        Column("When"),
        Column("Kind"),
        Column("Stream"),
        Column("What"),
    ),
    (
        Filter("kind", "Kind", options=sorted(HOMES), is_first=True),
        Filter("stream", "Stream", is_first=True),
        SUBJECT._replace(is_first=True),
        SINCE,
        UNTIL,
    ),
    "seq",
)


@get(f"{PAGES}/log", include_in_schema=False, sync_to_thread=True)
def get_log(request: AnyRequest) -> Response[str]:
    """Show events, the newest first. A token limited to subjects sees one subject at a time."""
    service = service_of(request)
    caller = service.caller(request)
    view = ListView(of_one_subject(LOG, caller), request)
    subject = view.get("subject") or None
    caller.must_see(subject)

    def read(place: str, oldest: bool, limit: int) -> Found[Event]:
        beyond = place_of_event(place)
        query = EventQuery(
            subject=subject,
            stream=view.get("stream") or None,
            kinds=[view.get("kind")] if view.get("kind") else [],
            since=view.time("since"),
            until=view.time("until"),
            after=beyond if oldest else 0,
            before=None if oldest else beyond or None,
            limit=limit + 1,
            newest=not oldest,
        )
        found = list(service.store.read(query))[:: 1 if oldest else -1]
        shown = found[:limit]
        further = str(shown[-1].seq) if len(found) > limit else ""
        return Found(shown, str(shown[0].seq) if shown else "", further)

    events = view.page(read)
    return page(
        request,
        "log.html",
        view=view,
        events=events,
        follow=bool(parameter(request, "follow")) and not view.cursor,
        told=_live_address(request, max((event.seq for event in events), default=0)),
        may_verify=caller.subjects is None,
    )


def _live_address(request: AnyRequest, newest: int) -> str:
    """Return the address that tells the page when there is more of what it shows."""
    given = {name: parameter(request, name) for name in ("subject", "stream", "kind")}
    return address("/log/live", **given, after=newest)


@get(f"{PAGES}/log/live", include_in_schema=False, sync_to_thread=False)
def get_log_live(request: AnyRequest) -> Stream:
    """Say `changed` each time when the log has more of what the page shows."""
    service = service_of(request)
    caller = service.caller(request)
    subject, stream = parameter(request, "subject"), parameter(request, "stream")
    kind = parameter(request, "kind")
    if caller.subjects is not None and not subject:
        subject = min(caller.subjects, default="")
    caller.must_see(subject or None)

    def look(seen: int) -> int:
        query = EventQuery(
            subject=subject or None,
            stream=stream or None,
            kinds=[kind] if kind else [],
            after=seen,
            limit=1,
            newest=True,
        )
        return max((event.seq for event in service.store.read(query)), default=seen)

    return told(request, look)


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
    "",
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
            k=min(view.first_row + ROWS + 1, MOST),
            since=view.time("since"),
            until=view.time("until"),
            neighbours=1,
        )
        passages = list(view.page_of_all(found))
    return page(request, "recall.html", view=view, found=found, passages=passages)


HANDLERS = [get_log, get_log_live, get_event, get_verify, get_recall]
