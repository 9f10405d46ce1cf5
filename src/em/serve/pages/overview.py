"""The overview: what can be and was saved, what waits, failed and was learnt; and its counts."""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from heapq import merge
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from litestar import Response, get

from em.behaviour.cache import Counts, count, id_of, list_behaviours
from em.errors import NotFound, StoreError
from em.heuristics.heuristic import list_heuristics
from em.log.event import BEHAVIOUR_PREFIX, RUN_PREFIX, TRACE_PREFIX, Event, EventQuery
from em.log.summary import Noun, Summary, SummaryQuery
from em.runner.card import KIND as ROUTINE
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
from em.serve.pages.behaviours import title_of
from em.serve.pages.drawing import Chart, chart
from em.serve.pages.groups import Groups, newest_seq
from em.serve.pages.subjects import show_subjects
from em.serve.pages.view import address, page, parameter, short
from em.serve.service import AnyRequest, service_of
from em.store.protocol import Commit, Record, Store
from em.values.call import Usage
from em.values.times import made_at, now

FORMAT = 2
SUBJECT, TYPE, ID = "~activity", "activity", "days"
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


class Seen(msgspec.Struct, frozen=True):
    """The counts by day, oldest first.

    newest: the number of the newest event. behind: how many events are not counted yet.
    """

    days: Mapping[str, Day]
    behind: int
    newest: int

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
    as much after 100,000 runs as after 100. It holds counts, no content. After something was
    erased, everything is counted again from what is left.
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
            newest = newest_seq(self._store)
            return Seen(dict(sorted(known.days.items())), max(0, newest - known.seq), newest)

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

    def _catch_up(self, known: _Counted, deadline: float) -> _Counted:
        newest = newest_seq(self._store)
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
            return
        day = known.days.setdefault(event.at.date().isoformat(), Day())
        match run_change(event) or event.kind:
            case "started":
                day.runs += 1
            case "ended":
                self._count_end(day, run_id_of(event), body)
            case "behaviour_recorded":
                day.recorded += 1
            case "behaviour_replayed" | "behaviour_missed":
                count(day, event.kind, body)
            case "trace_ended":
                day.traces += 1
                day.traces_failed += body.get("outcome") == "failure"

    def _count_end(self, day: Day, run_id: str, body: Mapping[str, object]) -> None:
        if body.get("status") != "ok":
            day.failed += 1
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
WEEK = timedelta(days=7)
SHOWN = 5
"""Lines of one list on this page."""
MOST_READ = 200
"""Observations, and failed runs, that are looked at: the newest."""
PATIENCE = 0.15
"""Seconds that the page counts what is new before it is shown without the rest."""
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
        return show_subjects(request, service, caller)
    groups: Groups = request.app.state.groups
    seen = activity_of(request).look(PATIENCE)
    window = parameter(request, "days")
    window = window if window in WINDOWS else "30"
    rows = _rows(seen, int(window), WINDOWS[window])
    total = add_up(day for _, day in rows)
    waiting = waiting_runs(service.store, now() - WEEK)
    return page(
        request,
        "overview.html",
        seen=seen,
        recurring=groups.look(),
        window=window,
        windows=list(WINDOWS),
        total=total,
        tried=total.hits + total.misses + total.hand_overs,
        is_empty=not seen.newest,
        counted=bool(seen.days),
        charts=_charts(rows),
        today=now().date(),
        waiting=waiting[:SHOWN],
        waiting_count=len(waiting),
        failures=_failures(service.store),
        learnt=[part for part in _learnt(service.store, now() - WEEK) if part.items],
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


def _charts(rows: Rows) -> list[Chart]:
    """Draw what was saved and how it went, each only if there is something to draw."""
    tokens = [max(0.0, day.tokens) for _, day in rows]
    calls = [max(0.0, day.calls) for _, day in rows]
    saved = ("Tokens saved", tokens) if any(tokens) else ("Calls saved", calls)
    drawn: list[tuple[str, Sequence[str], Sequence[Sequence[float]]]] = [
        (saved[0], [saved[0]], [[value] for value in saved[1]]),
        ("Runs of routines", ["ok", "failed"], [[day.ok, day.failed] for _, day in rows]),
        (
            "Behaviours",
            ["hits", "handed over", "misses"],
            [[day.hits, day.hand_overs, day.misses] for _, day in rows],
        ),
    ]
    labels = [label for label, _ in rows]
    return [
        chart(title, names, list(zip(labels, values, strict=True)), [""] * len(names))
        for title, names, values in drawn
        if any(map(sum, values))
    ]


def _queries(status: str, since: datetime | None = None) -> list[SummaryQuery]:
    """Return the queries for runs of routines and of workflows with this status."""
    nouns: tuple[Noun, ...] = ("run", "workflow")
    return [SummaryQuery(noun=noun, status=status, since=since) for noun in nouns]


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
    lists = [store.summaries.read(query) for query in _queries(status, since)]
    yield from merge(*lists, key=lambda run: run.cursor, reverse=True)


class Failure(NamedTuple):
    """A way to fail: the newest run that did, and how many did."""

    run: Summary
    times: int


def _failures(store: Store) -> list[Failure]:
    """Return the failures of the last week, the same ones once."""
    found: dict[tuple[str, str], Failure] = {}
    for run in islice(_runs(store, "failed", now() - WEEK), MOST_READ):
        known = found.setdefault((run.name, run.shown.get("note", "")), Failure(run, 0))
        found[run.name, run.shown.get("note", "")] = known._replace(times=known.times + 1)
    return list(found.values())[:SHOWN]


class Item(NamedTuple):
    """Something that was learnt: its name, a link, when, and a few words about it."""

    title: str
    address: str
    at: datetime
    words: str = ""


class Learnt(NamedTuple):
    """What was learnt of one kind, the newest first. `every`: the page of all of them."""

    kind: str
    items: Sequence[Item]
    every: str
    more: bool = False


def _learnt(store: Store, since: datetime) -> Iterator[Learnt]:
    for kind, path, found in (
        ("Routines", "/routines", _new_routines(store, since)),
        ("Behaviours", "/behaviours", _new_behaviours(store, since)),
        ("Lessons", "/lessons", _new_lessons(store, since)),
        ("Facts", "/state", _new_facts(store, since)),
    ):
        items = list(islice(found, SHOWN + 1))
        yield Learnt(kind, items[:SHOWN], address(path), len(items) > SHOWN)


def _new_routines(store: Store, since: datetime) -> Iterator[Item]:
    # Ids begin with the time: small rows are enough, whatever the routines hold.
    newest = {card.name: card for card in store.cards(ROUTINE)}
    for card in sorted(newest.values(), key=lambda card: card.id, reverse=True):
        at = made_at(card.id)
        if at < since:
            return
        version = f"version {card.version}" if card.version > 1 else ""
        ref = f"{card.name}@{card.version}"
        yield Item(card.name, address("/routine", ref=ref), at, version)


def _new_behaviours(store: Store, since: datetime) -> Iterator[Item]:
    told: set[str] = set()
    for one in list_behaviours(store, limit=2 * SHOWN).behaviours:
        title = title_of(one)
        is_new = one.created_at >= since and title not in told
        if is_new and one.retired_at is None and one.body is not None:
            told.add(title)
            yield Item(title, address("/behaviour", id=id_of(one)), one.created_at)


def _new_lessons(store: Store, since: datetime) -> Iterator[Item]:
    for cursor, one in list_heuristics(store, since=since):
        words = f"do: {one.lesson.action}"
        yield Item(one.lesson.trigger, address("/lesson", id=one.id), cursor.at, words)


def _new_facts(store: Store, since: datetime) -> Iterator[Item]:
    """Yield each subject with its newest observation."""
    seen: set[str] = set()
    query = EventQuery(kinds=["observation"], newest=True, limit=MOST_READ)
    for event in reversed(list(store.read(query))):
        body, subject = event.body, event.subject
        if event.recorded_at < since or body is None or subject is None or subject in seen:
            continue
        seen.add(subject)
        words = body.get("text") or _as_words(body.get("record") or {})
        yield Item(subject, address("/state", subject=subject), event.recorded_at, words)


def _as_words(record: Mapping[str, object]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {short(value)}" for name, value in record.items())


HANDLERS = [get_overview]
