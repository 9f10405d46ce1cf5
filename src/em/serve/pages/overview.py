"""The first page: what was saved, how often it hit, what failed, what needs an answer."""

from collections.abc import Callable, Sequence
from datetime import date, timedelta

from litestar import Response, get

from em.errors import NotFound
from em.runner.history import PastRun, read_run
from em.serve.auth import PAGES
from em.serve.pages.activity import Day, Seen, add_up
from em.serve.pages.drawing import Chart, chart
from em.serve.pages.view import asked, page, pages_of
from em.serve.service import AnyRequest, Service, service_of
from em.values.times import now

WINDOWS = {"30": 1, "90": 3, "365": 7}
"""Days to look back, and how many make one bar."""
SHOWN = 10
Rows = Sequence[tuple[str, Day]]


@get(PAGES, include_in_schema=False, sync_to_thread=True)
def get_overview(request: AnyRequest) -> Response[str]:
    """The overview; a token that is limited to subjects sees those."""
    service = service_of(request)
    caller = service.caller(request)
    if caller.subjects is not None:
        return page(request, "subjects.html", subjects=sorted(caller.subjects))
    seen = pages_of(request).activity.look()
    window = asked(request, "days")
    window = window if window in WINDOWS else "30"
    rows = _rows(seen, int(window), WINDOWS[window])
    total = add_up(day for _, day in rows)
    tried = total.hits + total.misses + total.hand_overs
    return page(
        request,
        "overview.html",
        seen=seen,
        window=window,
        windows=list(WINDOWS),
        total=total,
        tried=tried,
        is_empty=not seen.days,
        saved=_saved(rows),
        went=_went(rows),
        waiting=_runs(service, seen.waiting),
        waiting_count=len(seen.waiting),
        failed=_runs(service, seen.failed),
    )


def _rows(seen: Seen, back: int, per_bar: int) -> Rows:
    """The days of a window, put together so that the bars stay few; days without anything too."""
    today = now().date()
    bars: list[tuple[str, Day]] = []
    for start in range(back - back % per_bar - per_bar, -1, -per_bar):
        first = today - timedelta(days=start + per_bar - 1)
        days = [seen.days.get((first + timedelta(days=n)).isoformat()) for n in range(per_bar)]
        bars.append((_label(first, per_bar), add_up(day for day in days if day is not None)))
    return bars


def _label(first: date, per_bar: int) -> str:
    return first.isoformat() if per_bar == 1 else f"{per_bar} days from {first.isoformat()}"


def _saved(rows: Rows) -> list[Chart]:
    what: list[tuple[str, str, Callable[[Day], float]]] = [
        ("Calls saved", "", lambda day: day.calls),
        ("Tokens saved", "", lambda day: day.tokens),
        ("Seconds saved", "s", lambda day: day.seconds),
        ("Money saved", "$", lambda day: day.cost),
    ]
    return [
        chart(title, [title], [(label, [max(0.0, of(day))]) for label, day in rows], [unit])
        for title, unit, of in what
    ]


def _went(rows: Rows) -> list[Chart]:
    cache = [(label, [day.hits, day.hand_overs, day.misses]) for label, day in rows]
    runs = [(label, [day.ok, day.failed]) for label, day in rows]
    return [
        chart("Behaviours", ["hits", "handed over", "misses"], cache, ["", "", ""]),
        chart("Runs of routines", ["ok", "failed"], runs, ["", ""]),
    ]


def _runs(service: Service, ids: Sequence[str]) -> list[PastRun]:
    found: list[PastRun] = []
    for run_id in ids[:SHOWN]:
        try:
            found.append(read_run(service.store, run_id, None))
        except NotFound:
            continue  # erased since it was counted
    return found


HANDLERS = [get_overview]
