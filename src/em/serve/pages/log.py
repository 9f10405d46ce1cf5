"""Pages of the log: follow, filter and verify it, show one event, recall passages.

Any page is told by server-sent events when there is more of what it shows.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import islice

import msgspec
from litestar import Response, get
from litestar.response import Stream

from em.log.event import Event, EventQuery
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
from em.serve.pages.view import HEADERS, address, page, parameter, whole_number
from em.serve.service import AnyRequest, Service, service_of
from em.store.protocol import Passage, Store

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


EVERY = 0.5
"""Seconds between two looks."""
QUIET = 15.0
"""Seconds after which an empty line keeps the connection open."""
LONGEST = 600.0
"""Seconds after which the browser has to ask again."""


@get(f"{PAGES}/live", include_in_schema=False, sync_to_thread=False)
def get_live(request: AnyRequest) -> Stream:
    """Send `changed` each time when events were added: of a stream, a subject, a kind, or any.

    A browser that connects again says which event it saw last.
    """
    service = service_of(request)
    caller = service.caller(request)
    given = {name: parameter(request, name) or None for name in ("stream", "subject", "kind")}
    if caller.subjects is not None and not given["subject"]:
        given["subject"] = min(caller.subjects, default=None)
    caller.must_see(given["subject"])
    again = request.headers.get("last-event-id", "")
    last = int(again) if again.isdecimal() and len(again) <= 18 else 0
    query = EventQuery(
        stream=given["stream"],
        subject=given["subject"],
        kinds=[given["kind"]] if given["kind"] else [],
        after=max(whole_number(request, "after") or 0, last),
        limit=1,
        newest=True,
    )
    return _stream(_added(service, query))


@get(f"{PAGES}/live/pulse", include_in_schema=False, sync_to_thread=False)
def get_pulse(request: AnyRequest) -> Stream:
    """Send `changed` every second, to a page whose own numbers the service still works on."""
    service_of(request).caller(request).must_see(None)
    return _stream(_pulse(service_of(request)))


def _stream(lines: AsyncIterator[str]) -> Stream:
    headers = {**HEADERS, "X-Accel-Buffering": "no"}
    return Stream(lines, media_type="text/event-stream", headers=headers)


async def _added(service: Service, query: EventQuery) -> AsyncIterator[str]:
    began = said = time.monotonic()
    while not service.stopping.is_set() and time.monotonic() - began < LONGEST:
        found = await asyncio.to_thread(_read, service.store, query)
        if found:
            query, said = msgspec.structs.replace(query, after=found[-1].seq), time.monotonic()
            yield f"id: {query.after}\nevent: changed\ndata: {query.after}\n\n"
        elif time.monotonic() - said > QUIET:
            said = time.monotonic()
            yield ": nothing new\n\n"
        await asyncio.sleep(EVERY)


def _read(store: Store, query: EventQuery) -> list[Event]:
    return list(store.read(query))


async def _pulse(service: Service) -> AsyncIterator[str]:
    began = time.monotonic()
    while not service.stopping.is_set() and time.monotonic() - began < LONGEST:
        await asyncio.sleep(1)
        yield "event: changed\ndata: 1\n\n"


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


HANDLERS = [get_log, get_event, get_verify, get_live, get_pulse, get_recall]
