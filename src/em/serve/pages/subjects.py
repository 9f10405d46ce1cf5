"""The list of subjects: those with news first, the others by name."""

from collections.abc import Iterator
from datetime import datetime

import msgspec
from litestar import Response

from em.log.event import MAX_NAME, SUBJECT_PREFIX, EventQuery, subject_stream
from em.serve.auth import Caller
from em.serve.pages.table import Column, Filter, ListShape, ListView
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
    (Column("Subject"), Column("Events", is_number=True), Column("Last recorded")),
    (Filter("q", "Name", "words", is_first=True),),
)


class SubjectRow(msgspec.Struct, frozen=True):
    """A subject in a list: how many events are about it, and when the last was recorded."""

    name: str
    events: int
    at: datetime | None


def show_subjects(request: AnyRequest, service: Service, caller: Caller) -> Response[str]:
    """Show the subjects that the caller may see: searched, page by page."""
    view = ListView(SUBJECTS, request)
    names = view.page_of(find_subjects(service.store, caller, view.get("q")))
    found = [_row(service.store, name) for name in names]
    return page(request, "subjects.html", view=view, subjects=found)


def find_subjects(store: Store, caller: Caller, words: str) -> Iterator[str]:
    """Yield the subjects whose name contains the words, those with news first.

    The others come by name, found by how their names begin.
    """
    each = _known(store, words) if caller.subjects is None else iter(sorted(caller.subjects))
    wanted, seen = words.casefold(), set[str]()
    for name in each:
        if name not in seen and wanted in name.casefold():
            seen.add(name)
            yield name


def _known(store: Store, words: str) -> Iterator[str]:
    news = store.rows(EventQuery(kinds=NEWS, limit=LATELY, newest=True))
    yield from (row.subject for row in reversed(list(news)) if row.subject)
    for prefix in dict.fromkeys((words, words.lower(), words.capitalize(), words.title())):
        if len(prefix) <= MAX_NAME and "\0" not in prefix:
            found = store.streams(SUBJECT_PREFIX + prefix)
            yield from (name.removeprefix(SUBJECT_PREFIX) for name in found)


def _row(store: Store, name: str) -> SubjectRow:
    stream = subject_stream(name)
    last = next(iter(store.rows(EventQuery(stream=stream, limit=1, newest=True))), None)
    return SubjectRow(
        name, store.head(stream)[0], None if last is None else from_micros(last.recorded_at)
    )
