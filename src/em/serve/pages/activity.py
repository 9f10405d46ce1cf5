"""Activity: what runs and behaviours saved, day by day, counted once and kept up with the log.

Who looks reads the counts and what is new since: 100,000 runs cost as much to look at as 100. Only
counts and ids of runs are kept, no content; after something was erased all is counted anew from
what is left.
"""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from em.behaviour.inventory import Counts, count
from em.errors import NotFound, StoreError
from em.log.event import Event, EventQuery
from em.log.stream import BEHAVIOUR_PREFIX, RUN_PREFIX, TRACE_PREFIX
from em.runner.history import (
    RUN_EVENTS,
    PastRun,
    read_run,
    recorded_usage,
    run_change,
    run_id_of,
    savings,
)
from em.store.protocol import Commit, Record, Store
from em.values.call import Usage

FORMAT = 1
SUBJECT, TYPE, ID = "~activity", "activity", "days"
FAILED = 20
"""The newest failed runs, by their ids."""
KEPT_AFTER = 1_000
"""Events that are counted before the counts are written again."""
_BEHAVIOURS = ("behaviour_recorded", "behaviour_replayed", "behaviour_missed")
_KINDS = (*RUN_EVENTS, *_BEHAVIOURS, "trace_ended", "erased")
_COUNTED = (RUN_PREFIX, BEHAVIOUR_PREFIX, TRACE_PREFIX)


class Day(Counts):
    """What happened on one day, and what it saved; the counts of a behaviour cache among it."""

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
        """Calls of a model, and of tools that only the agent needed, that were not made."""
        return self.run_calls + self.run_model_calls

    @property
    def tokens(self) -> float:
        """Tokens that were not spent."""
        return self.run_tokens + self.saved_tokens

    @property
    def seconds(self) -> float:
        """Seconds that nobody waited."""
        return self.run_seconds + self.saved_seconds

    @property
    def cost(self) -> float:
        """Dollars that were not spent."""
        return self.run_cost + self.saved_cost_usd


class _Counted(msgspec.Struct):
    """All that is kept. `anew_at`: what was erased up to there is not in these counts."""

    format: int = FORMAT
    seq: int = 0
    anew_at: int = 0
    days: dict[str, Day] = {}
    waiting: dict[str, int] = {}
    failed: list[str] = []


class Seen(msgspec.Struct, frozen=True):
    """The counts by day, oldest first; `behind`: so many events are not counted yet."""

    days: Mapping[str, Day]
    waiting: Sequence[str]
    failed: Sequence[str]
    behind: int

    @property
    def total(self) -> Day:
        """All days together."""
        return add_up(self.days.values())


def add_up(days: Any) -> Day:
    """Days as one."""
    total = Day()
    for day in days:
        for name in Day.__struct_fields__:
            setattr(total, name, getattr(total, name) + getattr(day, name))
    return total


class Activity:
    """The counts of one store. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._counted: _Counted | None = None
        self._kept_seq = 0
        self._usages: dict[tuple[str, str], Usage] = {}

    def look(self, within: float = 1.0) -> Seen:
        """Catch up with the log for so many seconds at most, and say what is known then."""
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
        with suppress(StoreError):  # whoever may not write, or not now, counts again next time
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
                    self._kept_seq = -KEPT_AFTER  # what is kept is not true any more: write soon
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
        with suppress(NotFound):  # a workflow, which replaces no agent; or its beginning was erased
            past = read_run(self._store, run_id)
            saved = savings(self._store, past, self._usage(past))
            run = {row.what: row.saved or 0.0 for row in saved}
            day.run_calls += run["calls"]
            day.run_model_calls += run["model calls"]
            day.run_seconds += run["seconds"]
            day.run_tokens += run["tokens"]
            day.run_cost += run["cost_usd"]

    def _usage(self, past: PastRun) -> Usage:
        """What the agent's run took: a package is opened once, not for each of its runs."""
        key = (past.stored or past.folder, past.routine_hash)
        if key not in self._usages:
            self._usages[key] = recorded_usage(self._store, past)
        return self._usages[key]


def _is_counted(event: Event) -> bool:
    return event.stream.startswith(_COUNTED)
