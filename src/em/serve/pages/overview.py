"""The overview: what can be and was saved, what waits and what failed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

from litestar import Response, get

from em.errors import NotFound
from em.log.summary import Noun, Summary, SummaryQuery
from em.runner.history import read_run, run_query, savings
from em.runner.run import HANDED_OVER
from em.serve.auth import PAGES
from em.serve.pages.groups import Groups
from em.serve.pages.state import show_subjects
from em.serve.pages.view import page
from em.serve.service import AnyRequest, service_of
from em.store.protocol import Store
from em.values.times import now

DAYS = 30
"""Days whose runs are counted and drawn."""
LOOKED_AT = 2_000
"""Runs that are counted, the newest: it costs the same with many."""
MOST_ROUTINES = 20
"""Routines whose savings are added up, those with most runs."""
WEEK = timedelta(days=7)
SHOWN = 5
"""Lines of one list on this page."""
MOST_READ = 200
"""Runs that wait, or failed, that are looked at: the newest."""
OUTCOMES = ("ok", "handed over", "asked", "failed")

WIDTH, HEIGHT, GAP = 600.0, 120.0, 2.0


class BarBox(NamedTuple):
    """One part of a stacked bar; `series` counts from the bottom."""

    x: float
    y: float
    width: float
    height: float
    series: int


class Chart(NamedTuple):
    """A bar chart of counts. columns: label, values as text, bars. summary: for screen readers."""

    title: str
    names: Sequence[str]
    columns: Sequence[tuple[str, str, Sequence[BarBox]]]
    summary: str


def chart(title: str, names: Sequence[str], rows: Sequence[tuple[str, Sequence[int]]]) -> Chart:
    """Lay out counts over time, with those of one moment stacked."""
    top = max((sum(counts) for _, counts in rows), default=0) or 1
    step = WIDTH / max(1, len(rows))
    columns = [
        (label, _words(names, counts), _bars(counts, number * step, step, top))
        for number, (label, counts) in enumerate(rows)
    ]
    totals = [sum(counts[n] for _, counts in rows) for n in range(len(names))]
    return Chart(title, names, columns, f"{title}: {_words(names, totals)} in total")


def _bars(counts: Sequence[int], x: float, step: float, top: int) -> list[BarBox]:
    bars: list[BarBox] = []
    base, width = HEIGHT, max(0.5, step - GAP)
    for series, count in enumerate(counts):
        if count > 0:
            height = max(1.0, HEIGHT * count / top)
            base -= height
            bars.append(
                BarBox(round(x, 2), round(base, 2), round(width, 2), round(height, 2), series)
            )
    return bars


def _words(names: Sequence[str], counts: Sequence[int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in zip(names, counts, strict=True))


class RunCounts(NamedTuple):
    """How the runs of the last days went. looked_at: how many were counted, if more; else 0.

    routines: how often a run of each stored routine ended well, and the newest such run.
    """

    counts: dict[str, int]
    chart: Chart | None
    looked_at: int
    routines: dict[str, tuple[int, str]]


def count_runs(store: Store, name: str | None = None) -> RunCounts:
    """Count the runs of routines by day and outcome."""
    today = now().date()
    days = [today - timedelta(days=back) for back in range(DAYS - 1, -1, -1)]
    began = datetime.combine(days[0], time(), UTC)
    rows = islice(store.summaries.read(run_query("routine", name=name, since=began)), LOOKED_AT)
    ended: Counter[tuple[Any, str]] = Counter()
    routines: dict[str, tuple[int, str]] = {}
    for row in rows:
        ended[row.at.date(), outcome(row)] += 1
        if row.status == "ok":
            times, newest = routines.get(row.shown.get("stored") or row.name, (0, row.id))
            routines[row.shown.get("stored") or row.name] = times + 1, newest
    counts = {one: sum(n for (_, how), n in ended.items() if how == one) for one in OUTCOMES}
    shown = [(day.isoformat(), [ended[day, one] for one in OUTCOMES]) for day in days]
    every = ended.total()
    drawn = chart("Runs by day", OUTCOMES, shown) if every else None
    return RunCounts(counts, drawn, every if every == LOOKED_AT else 0, routines)


def outcome(row: Summary) -> str:
    """Return how a run went; one that a check stopped before it acted was handed over."""
    known = {"needs_input": "asked", HANDED_OVER: "handed over", "ok": "ok", "failed": "failed"}
    return known.get(row.status, "")


def saved(store: Store, runs: RunCounts) -> dict[str, float]:
    """Estimate what the runs saved: for each routine, what its newest run did, times its runs."""
    total: Counter[str] = Counter()
    often = sorted(runs.routines.values(), reverse=True)[:MOST_ROUTINES]
    for times, newest in often:
        try:
            figures = savings(store, read_run(store, newest))
        except NotFound:  # it was forgotten meanwhile
            continue
        for one in figures:
            total[one.what] += times * (one.saved or 0.0)  # type: ignore[assignment]  # it adds
    return {what: float(much) for what, much in total.items() if much > 0}


@get(PAGES, include_in_schema=False, sync_to_thread=True)
def get_overview(request: AnyRequest) -> Response[str]:
    """Show the overview. A token limited to subjects sees a list of them instead."""
    service = service_of(request)
    caller = service.caller(request)
    if caller.subjects is not None:
        return show_subjects(request, service, caller)
    groups: Groups = request.app.state.groups
    runs = count_runs(service.store)
    waiting = waiting_runs(service.store, now() - WEEK)
    return page(
        request,
        "overview.html",
        recurring=groups.look(),
        is_empty=not service.memory.log.head_seq(),
        runs=runs,
        saved=saved(service.store, runs),
        today=now().date(),
        waiting=waiting[:SHOWN],
        waiting_count=len(waiting),
        failures=_failures(service.store),
    )


def waiting_runs(store: Store, since: datetime) -> list[Summary]:
    """Return the runs that wait for a person, newest first.

    Whoever started a routine got its question back. One that did nothing yet waits no longer than
    since then; one that asks what became of a call, and a workflow, wait until they are answered.
    """
    return [
        run
        for run in islice(_runs(store, "needs_input"), MOST_READ)
        if run.at >= since or run.noun == "workflow" or run.shown.get("asks", "?").endswith("?")
    ]


def _runs(store: Store, status: str, since: datetime | None = None) -> Iterator[Summary]:
    """Yield runs of routines and of workflows with this status, the newest first."""
    nouns: tuple[Noun, ...] = ("run", "workflow")
    queries = [SummaryQuery(noun=noun, status=status, since=since) for noun in nouns]
    yield from merge(*map(store.summaries.read, queries), key=lambda run: run.cursor, reverse=True)


class Failure(NamedTuple):
    """A way to fail: the newest run that did, and how many did."""

    run: Summary
    times: int


def _failures(store: Store) -> list[Failure]:
    """Return the failures of the last week, the same ones once."""
    found: dict[tuple[str, str], Failure] = {}
    for run in islice(_runs(store, "failed", now() - WEEK), MOST_READ):
        key = run.name, run.shown.get("note", "")
        known = found.setdefault(key, Failure(run, 0))
        found[key] = known._replace(times=known.times + 1)
    return list(found.values())[:SHOWN]


HANDLERS = [get_overview]
