"""Events of one kind from the newest on, a page at a time."""

from collections.abc import Iterator

from em.log.event import Event, EventQuery
from em.store.protocol import Store

FIRST = 50
"""So many are read first: mostly nobody looks further."""
THEN = 200


def newest_first(
    store: Store, kind: str, *, subject: str | None = None, before: int | None = None
) -> Iterator[Event]:
    """Events of a kind, newest first, before a `seq` if one is given; erased ones are left out."""
    size = FIRST
    while True:
        query = EventQuery(kinds=[kind], subject=subject, before=before, limit=size, newest=True)
        events = list(store.read(query))
        for event in reversed(events):
            if event.body is not None:
                yield event
        if len(events) < size:
            return
        before, size = events[0].seq, THEN
