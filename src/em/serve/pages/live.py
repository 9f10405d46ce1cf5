"""Server-sent events: a page is told when there is more of what it shows."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

from litestar import get
from litestar.response import Stream

from em.serve.auth import PAGES
from em.serve.pages.view import HEADERS, parameter, whole_number
from em.serve.service import AnyRequest, Service, service_of

EVERY = 0.5
"""Seconds between two looks."""
QUIET = 15.0
"""Seconds after which an empty line keeps the connection open."""
LONGEST = 600.0
"""Seconds after which the browser has to ask again."""

Look = Callable[[int], int]
"""Takes the number that the page has seen, and returns the newest one."""


@get(f"{PAGES}/live", include_in_schema=False, sync_to_thread=False)
def get_live(request: AnyRequest) -> Stream:
    """Say `changed` each time when events were added to a stream."""
    service = service_of(request)
    service.caller(request).must_see(None)
    stream = parameter(request, "stream")
    return told(request, lambda _seen: service.store.head(stream)[0])


@get(f"{PAGES}/live/pulse", include_in_schema=False, sync_to_thread=False)
def get_pulse(request: AnyRequest) -> Stream:
    """Say `changed` every second, to a page whose own numbers the service still works on."""
    service_of(request).caller(request).must_see(None)
    return told(request, lambda _seen: int(time.time()))


def told(request: AnyRequest, look: Look) -> Stream:
    """Say `changed` each time when there is something newer than the page has seen.

    A browser that connects again says what it was told last.
    """
    again = request.headers.get("last-event-id", "")
    last = int(again) if again.isdecimal() and len(again) <= 18 else 0
    seen = max(whole_number(request, "after") or 0, last)
    headers = {**HEADERS, "X-Accel-Buffering": "no"}
    lines = _changes(service_of(request), look, seen)
    return Stream(lines, media_type="text/event-stream", headers=headers)


async def _changes(service: Service, look: Look, seen: int) -> AsyncIterator[str]:
    began = said = time.monotonic()
    while not service.stopping.is_set() and time.monotonic() - began < LONGEST:
        newest = await asyncio.to_thread(look, seen)
        if newest > seen:
            seen, said = newest, time.monotonic()
            yield f"id: {newest}\nevent: changed\ndata: {newest}\n\n"
        elif time.monotonic() - said > QUIET:
            said = time.monotonic()
            yield ": nothing new\n\n"
        await asyncio.sleep(EVERY)


HANDLERS = [get_live, get_pulse]
