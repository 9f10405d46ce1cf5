"""Origins: who said a fact, when, in which words, and how em came to know it."""

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from em.errors import NotFound
from em.log.event import EventQuery, subject_stream
from em.state.schema import Extraction, How, Status
from em.store.protocol import Store
from em.traces.trace import Source, least_trusted
from em.values.canonical import Json


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fact or a record comes from.

    how: by a record, an agent, a model or a person's decision. confidence: decided, confirmed,
    stated or inferred. words: those that say it. at: since when it holds. unread: newer texts that
    nobody has read and that mention it. origin: the least trusted of the observations.
    """

    value: Any
    speaker: str
    words: str
    how: How
    confidence: Status
    at: datetime
    recorded_at: datetime
    event_ids: tuple[str, ...]
    source: str = ""
    unread: tuple[str, ...] = ()
    origin: Source = "own"


class Why:
    """Finds where facts and records come from: `why("profile.city")` or `why.profile.city`."""

    def __init__(
        self, find: Callable[[Any, Sequence[Any]], Origin | None], owner: str = ""
    ) -> None:
        self._find, self._owner = find, owner

    def __call__(self, what: Any, key: Sequence[Any] = ()) -> Origin | None:
        """Return where a fact or a record comes from; None for a field without a value.

        what: a field (`profile.city`, or `Person.city` with the key of the record), or a record.
        """
        return self._find(what, key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._owner:
            return Why(self._find, name)
        try:
            return self._find(f"{self._owner}.{name}", ())
        except NotFound as error:
            raise AttributeError(str(error)) from None


def origin_of_entry(entry: Any, unread: Sequence[str] = ()) -> Origin:
    """Return the origin of a value of a single-valued field."""
    return Origin(
        value=entry.value,
        speaker=entry.speaker,
        words=entry.words,
        how=entry.how,
        confidence=entry.status,
        at=entry.at,
        recorded_at=entry.recorded_at,
        event_ids=tuple(entry.event_ids),
        source=entry.source,
        unread=tuple(unread),
        origin=entry.origin,
    )


def origin_of_record(store: Store, subject: str, value: Json, events: Sequence[str]) -> Origin:
    """Return the origin of a record, read from its events; a correction is the last of them."""
    found = {event.id: event for event in store.read(EventQuery(ids=list(events)))}
    first, last = found[events[0]], found[events[-1]]
    body = first.body or {}
    decider = (last.body or {}).get("by") if last.kind == "decided" else ""
    how: How = "decision" if last.kind == "decided" else "record"
    confidence: Status = "decided" if last.kind == "decided" else "stated"
    words = ""
    if "text" in body:
        read = [one for one in items_of(store, subject) if one[1]["events"][0] == last.id]
        # A text may state several records: the one with these values, read last.
        for reading, item in sorted(read, key=lambda one: one[1]["record"] == value):
            if item.get("op") != "same":
                how, confidence = reading.method, item.get("status") or "inferred"
                words = " … ".join(item.get("evidence") or ())
    return Origin(
        value=value,
        speaker=decider or body.get("speaker") or body.get("role") or "",
        words=words,
        how=how,
        confidence=confidence,
        at=first.at,
        recorded_at=last.recorded_at,
        event_ids=tuple(events),
        source=body.get("source") or "",
        origin=least_trusted((one.body or {}).get("origin", "own") for one in found.values()),
    )


def source_of(store: Store, event_ids: Collection[str]) -> Source:
    """Return the least trusted of the observations that something comes from."""
    found = store.read(EventQuery(ids=[*event_ids])) if event_ids else ()
    return least_trusted(["own", *((one.body or {}).get("origin") or "own" for one in found)])


def items_of(store: Store, subject: str) -> Iterator[tuple[Extraction, Json]]:
    """Yield the records that were read in texts, oldest first, each with its reading."""
    for event in store.read(EventQuery(stream=subject_stream(subject), kinds=("extracted",))):
        if event.body is not None:
            reading = msgspec.convert(event.body, Extraction)
            yield from ((reading, item) for item in reading.records)
