"""Server-sent events: a page is told when there is more of what it shows."""

import asyncio
import time
from collections.abc import AsyncIterator

import msgspec
from litestar import get
from litestar.response import Stream

from em.log.event import Event, EventQuery
from em.serve.auth import PAGES
from em.serve.pages.view import HEADERS, parameter, whole_number
from em.serve.service import AnyRequest, Service, service_of
from em.store.protocol import Store

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


def newest_seq(store: Store) -> int:
    """Return the number of the newest event; 0 if there is none."""
    newest = next(iter(store.read(EventQuery(limit=1, newest=True))), None)
    return 0 if newest is None else newest.seq


HANDLERS = [get_live, get_pulse]
