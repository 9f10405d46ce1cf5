"""Anchor: the event that stands for a subject where a stream is shared by many.

A stream has one owner. What is stored about a subject in a stream that belongs to nobody, such as
the behaviours of an engine or the uses of a lesson, is made of the subject's anchor. So it is
forgotten with the subject.
"""

import msgspec

from em.log.event import Draft, EventQuery, about_stream
from em.log.kinds import event_body
from em.store.protocol import Commit, Store


@event_body("about")
class About(msgspec.Struct, frozen=True):
    """Body of an anchor. It is empty: the event's subject says whom it stands for."""


def anchor(store: Store, subject: str) -> str:
    """Return the id of a subject's anchor; append one if there is none, or it was forgotten."""
    stream = about_stream(subject)
    for event in store.read(EventQuery(stream=stream, kinds=["about"], newest=True, limit=1)):
        if event.body is not None:
            return event.id
    draft = Draft(stream=stream, kind="about", body={}, subject=subject)
    return store.commit(Commit(events=[draft])).events[0].id
