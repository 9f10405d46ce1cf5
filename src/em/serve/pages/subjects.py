"""The list of subjects: by when something was recorded about them, by name, by events."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

import msgspec
from litestar import Response

from em.log.event import MAX_NAME, SUBJECT_PREFIX, EventQuery, subject_stream
from em.serve.auth import Caller
from em.serve.pages.table import SORTED, Column, Filter, ListShape, ListView
from em.serve.pages.view import page
from em.serve.service import AnyRequest, Service
from em.state.subjects import NEWS
from em.store.protocol import Store
from em.values.times import from_micros

LATELY = 1_000
"""The newest observations and decisions whose subjects come first."""
SUBJECTS = ListShape(
    "/state",
    "subjects",
    (
        Column("Subject", "name"),
        Column("Events", "events", is_number=True),
        Column("Last recorded", "at"),
    ),
    (Filter("q", "Name", "words", is_first=True),),
    "at",
)


class SubjectRow(msgspec.Struct, frozen=True):
    """A subject in a list: how many events are about it, and when the last was recorded."""

    name: str
    events: int
    at: datetime | None


def show_subjects(request: AnyRequest, service: Service, caller: Caller) -> Response[str]:
    """Show the subjects that the caller may see: searched, sorted, page by page."""
    view = ListView(SUBJECTS, request)
    names = find_subjects(service.store, caller, view.get("q"), SORTED + 1)
    view.is_cut = len(names) > SORTED
    places = {name: place for place, name in enumerate(names[:SORTED])}
    keys = {
        "name": str.casefold,
        "events": lambda name: service.store.head(subject_stream(name))[0],
        "at": lambda name: -places[name],
    }
    found = [_row(service.store, name) for name in view.page_of_all(places, keys)]
    return page(request, "subjects.html", view=view, subjects=found)


def find_subjects(store: Store, caller: Caller, words: str, limit: int) -> list[str]:
    """Return the subjects whose name contains the words, those with news first.

    The others come by name, found by how their names begin.
    """
    if caller.subjects is not None:
        each: Iterator[str] = iter(sorted(caller.subjects))
    else:
        each = _known(store, words)
    wanted = words.casefold()
    fitting = (name for name in dict.fromkeys(each) if wanted in name.casefold())
    return list(islice(fitting, limit))


def _known(store: Store, words: str) -> Iterator[str]:
    news = store.rows(EventQuery(kinds=NEWS, limit=LATELY, newest=True))
    yield from (row.subject for row in reversed(list(news)) if row.subject)
    begins = dict.fromkeys((words, words.lower(), words.capitalize(), words.title()))
    for prefix in begins:
        if len(prefix) <= MAX_NAME and "\0" not in prefix:
            found = store.streams(SUBJECT_PREFIX + prefix)
            yield from (name.removeprefix(SUBJECT_PREFIX) for name in islice(found, SORTED + 1))


def _row(store: Store, name: str) -> SubjectRow:
    stream = subject_stream(name)
    last = next(iter(store.rows(EventQuery(stream=stream, limit=1, newest=True))), None)
    return SubjectRow(
        name, store.head(stream)[0], None if last is None else from_micros(last.recorded_at)
    )
