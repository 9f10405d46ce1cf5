"""Small events to test a store with."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from em.log.event import Draft, Event
from em.store.protocol import Commit, Store

T0 = datetime(2025, 3, 1, 12, tzinfo=UTC)
SECRET = "sk-ant-api03-" + "Abc1" * 10
MINUTE = timedelta(minutes=1)


def note(text: str, stream: str = "notes", **fields: Any) -> Draft:
    """A small event."""
    return Draft(stream=stream, kind="note", body={"text": text}, **fields)


def append(store: Store, *drafts: Draft | Event, **rest: Any) -> list[Event]:
    """Commit events and return them."""
    return list(store.commit(Commit(events=drafts, **rest)).events)


def texts(events: Iterator[Event]) -> list[str | None]:
    """What notes say; None for one that was erased."""
    return [None if event.body is None else event.body["text"] for event in events]
