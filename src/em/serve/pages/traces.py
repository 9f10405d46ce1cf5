"""Pages of traces: the list, and one trace beside the routine it compiles to."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, NamedTuple

import msgspec
from litestar import Response, get, post

from em.compiler.compile_trace import Compiled
from em.errors import NotFound
from em.log.summary import Cursor
from em.runner.package import kept_routines
from em.runner.routine import Routine, ToolStep, UdfStep
from em.serve.auth import PAGES, Caller
from em.serve.pages.drafts import Drafts, TraceDraft, review_of
from em.serve.pages.forms import acted
from em.serve.pages.table import ROWS, SINCE, SUBJECT, UNTIL, Column, Filter, ListShape, ListView
from em.serve.pages.view import (
    HEADERS,
    address,
    go_to,
    page,
    parameter,
    short,
    whole_number,
)
from em.serve.service import AnyRequest, Service, service_of
from em.traces.catalogue import MOST_SCANNED, get_traces, list_traces
from em.traces.trace import Approval, KeptTrace, Message, ToolCall, Trace, UdfCall
from em.values.canonical import Json

OUTCOMES = ("success", "failure", "unknown")
AT_ONCE = 30
"""Calls of the largest trace that is compiled whenever its page is shown."""
MOST_CALLS = 400
"""Calls of the largest trace that is compiled for its page on request."""
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

    def do(service: Service, form: Json, caller: Caller) -> Response[str]:
        caller.must_see(None)
        given, name = form.get("id", ""), str(form.get("name", "")).strip()
        kept = service.memory.compile(
            [*map(str, given)] if isinstance(given, list) else [str(given)],
            name=name or None,
            inputs=_names(form.get("inputs", "")),
            constants=_names(form.get("constants", "")),
        )
        return go_to(address("/routine", ref=kept.ref))

    return await acted(request, do)


def _names(given: object) -> list[str]:
    return [name.strip() for name in str(given).split(",") if name.strip()]


@post(f"{PAGES}/trace/lesson", include_in_schema=False)
async def post_lesson(request: AnyRequest) -> Response[str]:
    """Learn lessons from a trace, and go to the first, or back if there is none."""

    def do(service: Service, form: Json, caller: Caller) -> Response[str]:
        trace = str(form.get("id", ""))
        (stored,) = get_traces(service.store, [trace], subjects=caller.subjects)
        found = service.memory.reflect(stored.id, subject=stored.subject)
        if found:
            return go_to(address("/lesson", id=found[0].id))
        return go_to(address("/trace", id=stored.id, learnt="nothing"))

    return await acted(request, do)


class Opened(NamedTuple):
    """A trace that a request names, and its draft; None if it is not compiled on this page."""

    service: Service
    stored: KeptTrace
    draft: TraceDraft | None

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


# --- the timeline ---------------------------------------------------------------------------------

LONGEST_ROW = 140
"""Characters of an event that its row shows."""
MOST_LINES = 400
"""Lines of a change of a file that are shown."""
CONTEXT = 3
UNUSED = "not used"
"""What a row says of a call that the routine does not make."""


class Line(msgspec.Struct, frozen=True, array_like=True):
    """An event in one line. `depth` is 1 for what was done after a message.

    became: the step of the routine that makes the call, or UNUSED.
    """

    number: int
    kind: str
    name: str
    text: str
    seconds: float | None
    failed: bool
    depth: int
    became: str


def rows_of(trace: Trace, routine: Routine | None) -> list[Line]:
    """Return a row for each event of a trace, in their order."""
    rows: list[Line] = []
    depth = 0
    for number, event in enumerate(trace.events):
        if isinstance(event, Message):
            depth = 1
            rows.append(Line(number, "message", event.role, _line(event.text), None, False, 0, ""))
        elif isinstance(event, Approval):
            text = _line(event.prompt)
            rows.append(Line(number, "approval", "asked", text, None, False, depth, ""))
        else:
            rows.append(_call_row(number, event, depth, _became(event, routine)))
    return rows


def _call_row(number: int, event: ToolCall | UdfCall, depth: int, became: str) -> Line:
    took = None if event.duration_ms is None else event.duration_ms / 1e3
    text = _line(event.args) if event.error is None else _line(event.error)
    kind, name = _called(event)
    return Line(number, kind, name, text, took, event.error is not None, depth, became)


def _called(event: ToolCall | UdfCall) -> tuple[str, str]:
    return ("tool", event.tool) if isinstance(event, ToolCall) else ("udf", event.function)


def _line(value: Any) -> str:
    """Return a value in one line: of arguments the values, with their names if they are several."""
    if value in ({}, None):
        return ""
    if isinstance(value, dict) and len(value) == 1:
        return short(next(iter(value.values())), LONGEST_ROW)
    if isinstance(value, dict):
        parts = [f"{name}: {short(one, LONGEST_ROW)}" for name, one in value.items()]
        return short(", ".join(parts), LONGEST_ROW)
    return short(value, LONGEST_ROW)


def _step_of(event: ToolCall | UdfCall, routine: Routine) -> ToolStep | UdfStep | None:
    """Return the first step that calls the same tool or function; none for a call that failed."""
    if event.error is not None:
        return None
    called = _called(event)
    for step in routine.all_steps:
        if isinstance(step, ToolStep) and called == ("tool", step.tool):
            return step
        if isinstance(step, UdfStep) and called == ("udf", step.function):
            return step
    return None


def _became(event: ToolCall | UdfCall, routine: Routine | None) -> str:
    if routine is None:
        return ""
    step = _step_of(event, routine)
    return UNUSED if step is None else step.id


class ShownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event with all that it holds.

    wired: the arguments with which the step that makes the call is written.
    """

    number: int
    kind: str
    name: str
    text: str = ""
    args: Any = None
    result: Any = None
    error: Any = None
    seconds: float | None = None
    became: str = ""
    wired: Any = None
    changes: Sequence[tuple[str, Sequence[str]]] = ()


def shown_event(trace: Trace, routine: Routine | None, number: int) -> ShownEvent | None:
    """Return an event of a trace by its number; None if there is none."""
    if not 0 <= number < len(trace.events):
        return None
    event = trace.events[number]
    if isinstance(event, Message):
        return ShownEvent(number=number, kind="message", name=event.role, text=event.text)
    if isinstance(event, Approval):
        return ShownEvent(
            number=number, kind="approval", name="asked", text=event.prompt, result=event.answer
        )
    step = None if routine is None else _step_of(event, routine)
    kind, name = _called(event)
    return ShownEvent(
        number=number,
        kind=kind,
        name=name,
        args=event.args,
        result=event.result,
        error=event.error,
        seconds=None if event.duration_ms is None else event.duration_ms / 1e3,
        became=_became(event, routine),
        wired=None if step is None else step.args,
        changes=[*changes_in(event.args)],
    )


def changes_in(args: Any) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the changes of files that a call makes: the file, and the lines of a diff."""
    if not isinstance(args, dict):
        return
    file = next((str(args[key]) for key in ("file_path", "path", "filename") if args.get(key)), "")
    edits = args.get("edits")
    for edit in edits if isinstance(edits, list) else [args]:
        old, new = _both(edit if isinstance(edit, dict) else {})
        if old is not None and new is not None:
            lines = unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=CONTEXT)
            yield file, [line for line in lines if not line.startswith(("---", "+++"))][:MOST_LINES]
    patches = (one for one in args.values() if isinstance(one, str) and "*** Begin Patch" in one)
    for patch in patches:
        yield file, patch.splitlines()[:MOST_LINES]


def _both(edit: Mapping[str, Any]) -> tuple[str | None, str | None]:
    for before, after in (("old_string", "new_string"), ("old_str", "new_str"), ("old", "new")):
        old, new = edit.get(before), edit.get(after)
        if isinstance(old, str) and isinstance(new, str):
            return old, new
    return None, None


def tools_in(rows: Sequence[Line]) -> list[tuple[str, int]]:
    """Return the names of what was called, the most frequent first, with how often."""
    counts: dict[str, int] = {}
    for row in rows:
        if row.kind in ("tool", "udf"):
            counts[row.name] = counts.get(row.name, 0) + 1
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))


HANDLERS = [get_traces_page, get_trace, get_rows, get_trace_event, post_keep, post_lesson]
