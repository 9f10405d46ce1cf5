"""Server-sent events: a page is told when the stream that it shows has grown."""

import asyncio
import time
from collections.abc import AsyncIterator

from litestar import get
from litestar.response import Stream

from em.serve.auth import PAGES
from em.serve.pages.view import HEADERS, parameter, whole_number
from em.serve.service import AnyRequest, Service, service_of

EVERY = 0.5
"""Seconds between two looks at the stream."""
QUIET = 15.0
"""Seconds after which an empty line keeps the connection open."""
LONGEST = 600.0
"""Seconds after which the browser has to ask again."""


@get(f"{PAGES}/live", include_in_schema=False, sync_to_thread=False)
def get_live(request: AnyRequest) -> Stream:
    """Say `changed` each time when events were added to a stream."""
    service = service_of(request)
    service.caller(request).must_see(None)
    stream, after = parameter(request, "stream"), whole_number(request, "after") or 0
    told = _changes(service, stream, after)
    headers = {**HEADERS, "X-Accel-Buffering": "no"}
    return Stream(told, media_type="text/event-stream", headers=headers)


async def _changes(service: Service, stream: str, seen: int) -> AsyncIterator[str]:
    began = said = time.monotonic()
    while not service.stopping.is_set() and time.monotonic() - began < LONGEST:
        pos = (await asyncio.to_thread(service.store.head, stream))[0]
        if pos > seen:
            seen, said = pos, time.monotonic()
            yield f"id: {pos}\nevent: changed\ndata: {pos}\n\n"
        elif time.monotonic() - said > QUIET:
            said = time.monotonic()
            yield ": nothing new\n\n"
        await asyncio.sleep(EVERY)


HANDLERS = [get_live]
