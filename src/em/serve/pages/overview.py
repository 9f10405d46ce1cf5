"""The overview: what was saved, hit rates, failures and open prompts; and its counts."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from typing import Any

import msgspec
from litestar import Response, get

from em.behaviour.cache import Counts, count
from em.errors import NotFound, StoreError
from em.log.event import (
    BEHAVIOUR_PREFIX,
    RUN_PREFIX,
    TRACE_PREFIX,
    Event,
    EventQuery,
    run_stream,
)
from em.log.summary import Summary
from em.runner.history import (
    RUN_EVENTS,
    PastRun,
    read_run,
    recorded_usage,
    run_change,
    run_id_of,
    savings,
)
from em.serve.auth import PAGES
from em.serve.pages.drawing import Chart, chart
from em.serve.pages.view import page, parameter
from em.serve.service import AnyRequest, Service, service_of
from em.store.protocol import Commit, Record, Store
from em.values.call import Usage
from em.values.times import now

FORMAT = 1
SUBJECT, TYPE, ID = "~activity", "activity", "days"
FAILED = 20
"""Failed runs to remember, the newest."""
KEPT_AFTER = 1_000
"""Events to count before storing the counts again."""
_BEHAVIOURS = ("behaviour_recorded", "behaviour_replayed", "behaviour_missed")
_KINDS = (*RUN_EVENTS, *_BEHAVIOURS, "trace_ended", "erased")
_COUNTED = (RUN_PREFIX, BEHAVIOUR_PREFIX, TRACE_PREFIX)


class Day(Counts):
    """The counts of one day, those of behaviours included."""

    runs: int = 0
    ok: int = 0
    failed: int = 0
    recorded: int = 0
    traces: int = 0
    traces_failed: int = 0
    run_calls: float = 0.0
    run_model_calls: float = 0.0
    run_seconds: float = 0.0
    run_tokens: float = 0.0
    run_cost: float = 0.0

    @property
    def calls(self) -> float:
        """Calls of models and tools that were saved."""
        return self.run_calls + self.run_model_calls

    @property
    def tokens(self) -> float:
        """Tokens that were saved."""
        return self.run_tokens + self.saved_tokens

    @property
    def seconds(self) -> float:
        """Seconds that were saved."""
        return self.run_seconds + self.saved_seconds

    @property
    def cost(self) -> float:
        """Dollars that were saved."""
        return self.run_cost + self.saved_cost_usd


class _Counted(msgspec.Struct):
    """The stored counts. `anew_at`: the last erasure after which everything was counted again."""

    format: int = FORMAT
    seq: int = 0
    anew_at: int = 0
    days: dict[str, Day] = {}
    waiting: dict[str, int] = {}
    failed: list[str] = []


class Seen(msgspec.Struct, frozen=True):
    """The counts by day, oldest first. `behind`: the number of events not counted yet."""

    days: Mapping[str, Day]
    waiting: Sequence[str]
    failed: Sequence[str]
    behind: int

    @property
    def total(self) -> Day:
        """The sum of all days."""
        return add_up(self.days.values())


def add_up(days: Any) -> Day:
    """Return the sum of several days."""
    total = Day()
    for day in days:
        for name in Day.__struct_fields__:
            setattr(total, name, getattr(total, name) + getattr(day, name))
    return total


class Activity:
    """What runs and behaviours saved, day by day. Safe to share between threads.

    The counts are a projection that is stored and caught up with the log, so that an overview costs
    as much after 100,000 runs as after 100. It holds counts and ids of runs, no content. After
    something was erased, everything is counted again from what is left.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counted: _Counted | None = None
        self._kept_seq = 0
        self._usages: dict[tuple[str, str], Usage] = {}

    def look(self, within: float = 1.0) -> Seen:
        """Catch up with the log, for a limited time, and return the counts."""
        with self._lock:
            known = self._counted or self._load()
            self._counted = known = self._catch_up(known, time.monotonic() + within)
            if known.seq - self._kept_seq >= KEPT_AFTER:
                self._keep(known)
            newest = self._newest_seq()
            return Seen(
                dict(sorted(known.days.items())),
                [run for run, _ in sorted(known.waiting.items(), key=lambda one: -one[1])],
                list(reversed(known.failed)),
                max(0, newest - known.seq),
            )

    def _load(self) -> _Counted:
        for record in self._store.records(SUBJECT, TYPE, [ID]):
            with suppress(msgspec.ValidationError):
                known = msgspec.convert(record.body, _Counted)
                if known.format == FORMAT:
                    self._kept_seq = known.seq
                    return known
        return _Counted()

    def _keep(self, known: _Counted) -> None:
        body = msgspec.to_builtins(known)
        record = Record(subject=SUBJECT, type=TYPE, id=ID, body=body, from_log=True)
        with suppress(StoreError):  # a store that can't be written now: count again next time
            self._store.commit(Commit(records=[record]))
        self._kept_seq = known.seq

    def _newest_seq(self) -> int:
        newest = next(iter(self._store.read(EventQuery(limit=1, newest=True))), None)
        return 0 if newest is None else newest.seq

    def _catch_up(self, known: _Counted, deadline: float) -> _Counted:
        newest = self._newest_seq()
        while known.seq < newest:
            query = EventQuery(kinds=_KINDS, after=known.seq, before=newest + 1)
            for event in self._store.read(query):
                if event.kind == "erased" and _is_counted(event) and event.seq > known.anew_at:
                    known = _Counted(anew_at=newest)
                    self._kept_seq = -KEPT_AFTER  # the stored counts are outdated: store soon
                    break
                self._count(known, event)
                known.seq = event.seq
                if time.monotonic() > deadline:
                    return known
            else:
                known.seq = newest
        return known

    def _count(self, known: _Counted, event: Event) -> None:
        body = event.body
        if body is None or event.kind == "erased":
            # A run of which a part was forgotten can't be answered.
            known.waiting.pop(run_id_of(event), None)
            return
        day = known.days.setdefault(event.at.date().isoformat(), Day())
        run_id, change = run_id_of(event), run_change(event)
        if change is not None:
            known.waiting.pop(run_id, None)
        match change or event.kind:
            case "started":
                day.runs += 1
            case "paused":
                known.waiting[run_id] = event.seq
            case "ended":
                self._count_end(known, day, run_id, body)
            case "behaviour_recorded":
                day.recorded += 1
            case "behaviour_replayed" | "behaviour_missed":
                count(day, event.kind, body)
            case "trace_ended":
                day.traces += 1
                day.traces_failed += body.get("outcome") == "failure"

    def _count_end(
        self, known: _Counted, day: Day, run_id: str, body: Mapping[str, object]
    ) -> None:
        if body.get("status") != "ok":
            day.failed += 1
            known.failed = [*known.failed, run_id][-FAILED:]
            return
        day.ok += 1
        with suppress(NotFound):  # a workflow, which replaces no agent; or its start was erased
            past = read_run(self._store, run_id)
            saved = savings(self._store, past, self._usage(past))
            run = {row.what: row.saved or 0.0 for row in saved}
            day.run_calls += run["calls"]
            day.run_model_calls += run["model calls"]
            day.run_seconds += run["seconds"]
            day.run_tokens += run["tokens"]
            day.run_cost += run["cost_usd"]

    def _usage(self, past: PastRun) -> Usage:
        """Return the recorded usage of a routine's agent. Cached: it is the same for all runs."""
        key = (past.stored or past.folder, past.routine_hash)
        if key not in self._usages:
            self._usages[key] = recorded_usage(self._store, past)
        return self._usages[key]


def _is_counted(event: Event) -> bool:
    return event.stream.startswith(_COUNTED)


WINDOWS = {"30": 1, "90": 3, "365": 7}
"""Days to look back, and the days in one bar."""
SHOWN = 10
Rows = Sequence[tuple[str, Day]]


def activity_of(request: AnyRequest) -> Activity:
    """Return the counts of the service that a request came to."""
    found: Activity = request.app.state.activity
    return found


@get(PAGES, include_in_schema=False, sync_to_thread=True)
def get_overview(request: AnyRequest) -> Response[str]:
    """Show the overview. A token limited to subjects sees a list of them instead."""
    service = service_of(request)
    caller = service.caller(request)
    if caller.subjects is not None:
        return page(request, "subjects.html", subjects=sorted(caller.subjects))
    seen = activity_of(request).look()
    window = parameter(request, "days")
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
    """Group the days of a window into bars, empty days included."""
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


def _runs(service: Service, ids: Sequence[str]) -> list[Summary]:
    """Return runs in short, in this order, without those that were erased since."""
    streams = [run_stream(run_id) for run_id in ids[:SHOWN]]
    found = service.store.summaries.of(streams)
    return [found[stream] for stream in streams if stream in found]


HANDLERS = [get_overview]
