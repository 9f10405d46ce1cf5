"""Pages of traces: the list, and one trace beside the routine it compiles to."""

import asyncio
import threading
import time

import msgspec
from litestar import Response, get, post

from em.compiler.compile_trace import Compiled, compile_trace
from em.errors import EmError, NotFound
from em.log.summary import Cursor
from em.runner.package import kept_routines
from em.runner.routine import Routine
from em.serve.auth import PAGES
from em.serve.pages.drawing import graph_of
from em.serve.pages.forms import form_of
from em.serve.pages.review import review_of
from em.serve.pages.table import SINCE, SUBJECT, UNTIL, Column, Filter, Found, ListShape, ListView
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
from em.traces.catalogue import (
    MOST_SCANNED,
    TraceFilter,
    TraceSummary,
    get_traces,
    list_traces,
)
from em.traces.trace import KeptTrace

OUTCOMES = ("success", "failure", "unknown")
AT_ONCE = 30
"""Calls of the largest trace that is compiled whenever its page is shown."""
MOST_CALLS = 400
"""Calls of the largest trace that is compiled for its page when somebody asks for it."""
KEPT_DRAFTS, KEPT_SECONDS = 4, 60.0
ROWS = 100
"""Rows of a timeline that stand on a page without its script."""


TRACES = ListShape(
    "/traces",
    "traces",
    (
        Column("Goal", "task"),
        Column("Outcome"),
        Column("When", "at"),
        Column("Calls", "calls", is_number=True),
        Column("Agent", "agent"),
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
    "at",
)


@get(f"{PAGES}/traces", include_in_schema=False, sync_to_thread=True)
def get_traces_page(request: AnyRequest) -> Response[str]:
    """Show the traces that the caller may see: searched, filtered, sorted, page by page."""
    service = service_of(request)
    caller = service.caller(request)
    view = ListView(TRACES, request)
    subject = view.get("subject")
    if subject:
        caller.must_see(subject)
    chosen: TraceFilter = {
        "subjects": [subject] if subject else caller.subjects,
        "since": view.time("since"),
        "until": view.time("until"),
        "task": view.get("task"),
        "outcome": view.get("outcome") or None,
        "agent": view.get("agent") or None,
    }

    def read(place: str, oldest: bool, limit: int) -> Found[TraceSummary]:
        before = Cursor.of(place)
        found = list_traces(
            service.store, before=before, limit=limit, scan=MOST_SCANNED, oldest=oldest, **chosen
        )
        return Found(found.traces, str(found.first or ""), str(found.older or ""))

    traces = view.page(
        read,
        {
            "task": lambda one: one.title.casefold(),
            "calls": lambda one: one.calls,
            "agent": lambda one: one.app.casefold(),
        },
    )
    return page(request, "traces.html", view=view, traces=traces)


@get(f"{PAGES}/trace", include_in_schema=False, sync_to_thread=True)
def get_trace(request: AnyRequest) -> Response[str]:
    """Show one trace: a timeline of its events, one of them whole, and the routine it becomes."""
    service, stored, made, problem = _opened(request)
    caller = service.caller(request)
    number = whole_number(request, "n")
    routine = _routine(made)
    rows = rows_of(stored.trace, routine)
    first = (number or 0) // ROWS * ROWS
    return page(
        request,
        "trace.html",
        stored=stored,
        trace=stored.trace,
        has_output=stored.trace.final_output is not msgspec.UNSET,
        usage=stored.trace.recorded_usage,
        rows=rows[first : first + ROWS],
        first=first,
        size=ROWS,
        count=len(rows),
        tools=tools_in(rows),
        longest=max((row.seconds or 0.0 for row in rows), default=0.0),
        event=None if number is None else shown_event(stored.trace, routine, number),
        review=None if made is None else review_of(made),
        used=sum(row.became not in ("", UNUSED) for row in rows),
        unused=UNUSED,
        graph=None if routine is None else graph_of(routine),
        problem=problem,
        routines=_made_of(service, stored) if caller.subjects is None else [],
        may_keep=caller.subjects is None,
        compile=parameter(request, "compile"),
        can_compile=0 < len(stored.trace.calls) <= MOST_CALLS,
        learnt=parameter(request, "learnt"),
    )


@get(f"{PAGES}/trace/rows", include_in_schema=False, sync_to_thread=True)
def get_rows(request: AnyRequest) -> Response[bytes]:
    """Return all rows of a trace's timeline as JSON, for the script that draws those in view."""
    _, stored, made, _ = _opened(request)
    data = msgspec.json.encode({"rows": rows_of(stored.trace, _routine(made))})
    return Response(data, media_type="application/json", headers=HEADERS)


@get(f"{PAGES}/trace/event", include_in_schema=False, sync_to_thread=True)
def get_trace_event(request: AnyRequest) -> Response[str]:
    """Return one event of a trace, as the part of a page that the script puts in."""
    _, stored, made, _ = _opened(request)
    number = whole_number(request, "n")
    event = None if number is None else shown_event(stored.trace, _routine(made), number)
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


def _opened(
    request: AnyRequest,
) -> tuple[Service, KeptTrace, Compiled | None, EmError | None]:
    """Return the trace that a request names, and what it compiles to."""
    service = service_of(request)
    subjects = service.caller(request).subjects
    (stored,) = get_traces(service.store, [parameter(request, "id")], subjects=subjects)
    most = MOST_CALLS if parameter(request, "compile") else AT_ONCE
    if not 0 < len(stored.trace.calls) <= most:
        return service, stored, None, None
    return service, stored, *_drafts_of(request).of(stored)


class Drafts:
    """Routines that traces were compiled to a moment ago: a page, its rows and its events need one.

    They are kept for a minute, and those of few traces.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], tuple[float, Compiled | None, EmError | None]] = {}
        self._lock = threading.Lock()

    def of(self, stored: KeptTrace) -> tuple[Compiled | None, EmError | None]:
        """Compile a trace, without storing the routine."""
        key = (stored.id, stored.trace.outcome, len(stored.event_ids))
        with self._lock:
            now = time.monotonic()
            fresh = [one for one in self._made.items() if now - one[1][0] < KEPT_SECONDS]
            self._made = dict(fresh[-KEPT_DRAFTS:])
            if key in self._made:
                return self._made[key][1:]
        try:
            made: tuple[Compiled | None, EmError | None] = (compile_trace(stored.trace), None)
        except EmError as error:
            made = (None, error)
        with self._lock:
            self._made[key] = (time.monotonic(), *made)
        return made


def _routine(made: Compiled | None) -> Routine | None:
    return None if made is None else made.draft.routine


def _drafts_of(request: AnyRequest) -> Drafts:
    found: Drafts = request.app.state.drafts
    return found


def _made_of(service: Service, stored: KeptTrace) -> list[str]:
    """Return the stored routines that were compiled from this trace."""
    ids = set(stored.event_ids)
    return [
        f"{one.name}@{one.version}"
        for one in kept_routines(service.store)
        if one.body is not None and not ids.isdisjoint(one.from_events)
    ]


HANDLERS = [get_traces_page, get_trace, get_rows, get_trace_event, post_keep, post_lesson]
