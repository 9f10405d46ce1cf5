"""Pages of traces: the list, and one trace beside the routine it compiles to."""

import asyncio
from typing import NamedTuple

import msgspec
from litestar import Response, get, post

from em.compiler.compile_trace import Compiled
from em.errors import NotFound
from em.log.summary import Cursor
from em.runner.package import kept_routines
from em.runner.routine import Routine
from em.serve.auth import PAGES
from em.serve.pages.drafts import Draft, Drafts, review_of
from em.serve.pages.forms import form_of
from em.serve.pages.table import ROWS, SINCE, SUBJECT, UNTIL, Column, Filter, ListShape, ListView
from em.serve.pages.timeline import UNUSED, rows_of, shown_event, tools_in
from em.serve.pages.view import (
    HEADERS,
    address,
    go_to,
    page,
    parameter,
    whole_number,
)
from em.serve.service import AnyRequest, Service, service_of
from em.traces.catalogue import MOST_SCANNED, get_traces, list_traces
from em.traces.trace import KeptTrace

OUTCOMES = ("success", "failure", "unknown")
AT_ONCE = 30
"""Calls of the largest trace that is compiled whenever its page is shown."""
MOST_CALLS = 400
"""Calls of the largest trace that is compiled for its page when somebody asks for it."""
PATIENCE = 10.0
"""Seconds that the page of a trace waits for its draft."""
EVENTS = 100
"""Rows of a timeline that stand on a page without its script."""


TRACES = ListShape(
    "/traces",
    "traces",
    (
        Column("Goal"),
        Column("Outcome"),
        Column("When"),
        Column("Calls", is_number=True),
        Column("Agent"),
        Column("Subject"),
    ),
    (
        Filter("task", "Words of the goal", "words", is_first=True),
        Filter("outcome", "Outcome", "choice", OUTCOMES, is_first=True),
        SUBJECT,
        Filter("agent", "Agent"),
        SINCE,
        UNTIL,
    ),
)


@get(f"{PAGES}/traces", include_in_schema=False, sync_to_thread=True)
def get_traces_page(request: AnyRequest) -> Response[str]:
    """Show the traces that the caller may see: searched, filtered, page by page."""
    service = service_of(request)
    caller = service.caller(request)
    view = ListView(TRACES, request)
    subject = view.get("subject")
    if subject:
        caller.must_see(subject)
    found = list_traces(
        service.store,
        before=Cursor.of(view.cursor),
        limit=ROWS,
        scan=MOST_SCANNED,
        subjects=[subject] if subject else caller.subjects,
        since=view.time("since"),
        until=view.time("until"),
        task=view.get("task"),
        outcome=view.get("outcome") or None,
        agent=view.get("agent") or None,
    )
    return page(request, "traces.html", view=view, traces=view.go_on(found.traces, found.older))


@get(f"{PAGES}/trace", include_in_schema=False, sync_to_thread=True)
def get_trace(request: AnyRequest) -> Response[str]:
    """Show one trace: a timeline of its events, one of them whole, and the routine it becomes."""
    opened = _opened(request)
    service, stored, draft = opened
    caller = service.caller(request)
    number = whole_number(request, "n")
    rows = rows_of(stored.trace, opened.routine)
    first = (number or 0) // EVENTS * EVENTS
    return page(
        request,
        "trace.html",
        stored=stored,
        trace=stored.trace,
        has_output=stored.trace.final_output is not msgspec.UNSET,
        usage=stored.trace.recorded_usage,
        rows=rows[first : first + EVENTS],
        first=first,
        size=EVENTS,
        count=len(rows),
        tools=tools_in(rows),
        longest=max((row.seconds or 0.0 for row in rows), default=0.0),
        event=None if number is None else shown_event(stored.trace, opened.routine, number),
        review=None if opened.made is None else review_of(opened.made),
        used=sum(row.became not in ("", UNUSED) for row in rows),
        unused=UNUSED,
        problem=None if draft is None else draft.problem,
        is_compiling=draft is not None and not draft.done.is_set(),
        routines=_made_of(service, stored) if caller.subjects is None else [],
        may_keep=caller.subjects is None,
        compile=parameter(request, "compile"),
        can_compile=0 < len(stored.trace.calls) <= MOST_CALLS,
        learnt=parameter(request, "learnt"),
    )


@get(f"{PAGES}/trace/rows", include_in_schema=False, sync_to_thread=True)
def get_rows(request: AnyRequest) -> Response[bytes]:
    """Return all rows of a trace's timeline as JSON, for the script that draws those in view."""
    opened = _opened(request)
    data = msgspec.json.encode({"rows": rows_of(opened.stored.trace, opened.routine)})
    return Response(data, media_type="application/json", headers=HEADERS)


@get(f"{PAGES}/trace/event", include_in_schema=False, sync_to_thread=True)
def get_trace_event(request: AnyRequest) -> Response[str]:
    """Return one event of a trace, as the part of a page that the script puts in."""
    opened, number = _opened(request), whole_number(request, "n")
    trace = opened.stored.trace
    event = None if number is None else shown_event(trace, opened.routine, number)
    if event is None:
        raise NotFound(f"this trace has no event {number}", place="n")
    return page(request, "trace_event.html", event=event, unused=UNUSED)


@post(f"{PAGES}/trace/keep", include_in_schema=False)
async def post_keep(request: AnyRequest) -> Response[str]:
    """Compile a trace, or several together, store the routine, and go to its page.

    `inputs` and `constants` name arguments, with commas between them, as of `Memory.compile`.
    """
    form = await form_of(request)
    service = service_of(request)
    service.caller(request, "write").must_see(None)
    given, name = form.get("id", ""), str(form.get("name", "")).strip()
    ids = [*map(str, given)] if isinstance(given, list) else [str(given)]

    def work() -> Response[str]:
        kept = service.memory.compile(
            ids,
            name=name or None,
            inputs=_names(form.get("inputs", "")),
            constants=_names(form.get("constants", "")),
        )
        return go_to(address("/routine", ref=kept.ref))

    return await asyncio.to_thread(work)


def _names(given: object) -> list[str]:
    return [name.strip() for name in str(given).split(",") if name.strip()]


@post(f"{PAGES}/trace/lesson", include_in_schema=False)
async def post_lesson(request: AnyRequest) -> Response[str]:
    """Learn lessons from a trace, and go to the first, or back if there is none."""
    form = await form_of(request)
    service = service_of(request)
    subjects = service.caller(request, "write").subjects

    def work() -> Response[str]:
        (stored,) = get_traces(service.store, [str(form.get("id", ""))], subjects=subjects)
        found = service.memory.reflect(stored.id, subject=stored.subject)
        if found:
            return go_to(address("/lesson", id=found[0].id))
        return go_to(address("/trace", id=stored.id, learnt="nothing"))

    return await asyncio.to_thread(work)


class Opened(NamedTuple):
    """A trace that a request names, and its draft; None if it is not compiled on this page."""

    service: Service
    stored: KeptTrace
    draft: Draft | None

    @property
    def made(self) -> Compiled | None:
        """What it compiles to, if that is known and it can be."""
        return None if self.draft is None else self.draft.made

    @property
    def routine(self) -> Routine | None:
        """The routine that it becomes."""
        return None if self.made is None else self.made.draft.routine


def _opened(request: AnyRequest) -> Opened:
    service = service_of(request)
    subjects = service.caller(request).subjects
    (stored,) = get_traces(service.store, [parameter(request, "id")], subjects=subjects)
    most = MOST_CALLS if parameter(request, "compile") else AT_ONCE
    if not 0 < len(stored.trace.calls) <= most:
        return Opened(service, stored, None)
    drafts: Drafts = request.app.state.drafts
    return Opened(service, stored, drafts.of([stored.id], PATIENCE))


def _made_of(service: Service, stored: KeptTrace) -> list[str]:
    """Return the stored routines that were compiled from this trace."""
    ids = set(stored.event_ids)
    return [
        f"{one.name}@{one.version}"
        for one in kept_routines(service.store)
        if one.body is not None and not ids.isdisjoint(one.from_events)
    ]


HANDLERS = [get_traces_page, get_trace, get_rows, get_trace_event, post_keep, post_lesson]
