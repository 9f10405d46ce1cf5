"""The table of summaries: what lists show of runs, traces, jobs and lessons (`em.log.summary`).

A row is written in the same commit as the events that it is made of, and made again when one of
them is erased. So lists, filters and counts read small rows by key and no journals, and cost what
they show however long the log is. `rebuild` makes all rows again from the log.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from typing import Any, NamedTuple

import msgspec

from em.log.event import MAX_NAME, heuristic_stream
from em.log.summary import (
    CHANGES,
    STARTS,
    SUMMARISED,
    Summary,
    SummaryQuery,
    Totals,
    begin,
    change,
    shown_text,
)
from em.store.preparation import PreparedEvent
from em.store.session import SqlSession, delete, select
from em.values.canonical import Json
from em.values.times import from_micros, to_micros

FIELDS = Summary.__struct_fields__
COLUMNS = ", ".join(FIELDS)
FIRST = 26
"""Rows that are read first: most lists show 25, and look whether there is one more."""
THEN = 500
PAGE = 500
"""Streams that are summarised at a time when all rows are made again."""
COUNTED = 1_000
"""Summaries that a count counts: what a list costs must not grow with what it does not show."""

_CHANGING = ("ended", "status", "name", "agent", "calls", "failed", "size", "shown")
_PUT = (
    f"INSERT INTO summaries({COLUMNS}) VALUES ({','.join('?' * len(FIELDS))})"  # noqa: S608 - fixed words
    f" ON CONFLICT(stream) DO UPDATE SET {', '.join(f'{x} = excluded.{x}' for x in _CHANGING)}"
)
# `kind || ''`: read the events of the stream, never all events of the kind.
_COUNT_STEPS = (
    "SELECT COUNT(CASE WHEN kind || '' = 'step_done' AND pos > COALESCE(("
    " SELECT MAX(pos) FROM events WHERE stream = ? AND pos <= ? AND kind || '' = 'run_resumed'"
    " ), 0) THEN 1 END), SUM(CASE WHEN kind || '' = 'erased' THEN 0 ELSE LENGTH(body) END)"
    " FROM events WHERE stream = ? AND pos <= ?"
)
_NEWEST = 2**62
_RUNS = ("run", "workflow")
_ENDS = ("run_paused", "run_ended", "run_cancelled")


class _Happened(NamedTuple):
    """An event as summaries are made of it."""

    stream: str
    kind: str
    subject: str | None
    seq: int
    at: datetime
    body: Json


def summarise(
    session: SqlSession, events: Iterable[tuple[PreparedEvent, int]], recorded_at: int
) -> None:
    """Bring the rows of these new events, given with their `seq`, up to date."""
    found: defaultdict[str, list[_Happened]] = defaultdict(list)
    partial: list[str] = []
    for item, seq in events:
        if item.body is None:
            partial.append(item.stream)  # an import of what was erased elsewhere
        elif item.kind in SUMMARISED:
            at = from_micros(recorded_at if item.at is None else item.at)
            one = _Happened(item.stream, item.kind, item.subject, seq, at, item.body)
            found[item.stream].append(one)
    if found:
        known = {one.stream: one for one in _rows_of(session, list(found))}
        _put(session, _folded(session, found, known))
    if partial:
        summarise_again(session, partial)


def _folded(
    session: SqlSession, found: Mapping[str, Sequence[_Happened]], known: Mapping[str, Summary]
) -> Iterator[Summary]:
    for stream, events in found.items():
        made = known.get(stream)
        counts = False
        for event in events:
            if made is None:
                made = begin(*event[:3], event.seq, event.at, event.body)
            else:
                change(made, event.kind, event.at, event.body)
                counts |= event.kind in _ENDS
        if made is not None:
            if counts and made.noun in _RUNS:
                _count_steps(session, made, _NEWEST)
            yield made


def _count_steps(session: SqlSession, made: Summary, until: int) -> None:
    """Count the steps of a run that ended, and its size, up to a position."""
    given = (made.stream, until, made.stream, until)
    steps, size = session.execute(_COUNT_STEPS, given).fetchone()
    made.calls, made.size = steps, size or 0


def summarise_again(session: SqlSession, streams: Sequence[str]) -> None:
    """Make the rows of these streams again from the events that are left."""
    prefixes = tuple({prefix for _, prefix in STARTS.values()})
    unique = sorted({stream for stream in streams if stream.startswith(prefixes)})
    delete(session, "summaries", "stream", unique)
    _put(session, (made for stream in unique if (made := _of_stream(session, stream))))


_STREAM = "SELECT kind, subject, seq, at, body, pos FROM events WHERE stream = ? ORDER BY pos"


def _of_stream(session: SqlSession, stream: str) -> Summary | None:
    """Summarise a stream; return None for one that can't be read, which `verify` reports."""
    try:
        return _summary_of(session, stream)
    except (msgspec.DecodeError, AttributeError, KeyError, TypeError, OverflowError):
        return None


def _summary_of(session: SqlSession, stream: str) -> Summary | None:
    made: Summary | None = None
    is_partial, is_over, last_end = False, False, 0
    for kind, subject, seq, at, body, pos in session.execute(_STREAM, (stream,)):
        is_partial |= body is None
        if body is not None and kind in CHANGES:
            is_over = kind in ("run_ended", "run_cancelled")
        if body is None or kind not in SUMMARISED:
            if made is None and body is not None and kind != "erased":
                return None  # another stream's name begins so, or its start was erased
            continue
        told, when = msgspec.json.decode(body), from_micros(at)
        last_end = pos if kind in _ENDS else last_end
        if made is None:
            made = begin(stream, kind, subject, seq, when, told)
        else:
            change(made, kind, when, told)
    if made is None or made.noun not in _RUNS:
        return made
    if last_end:
        _count_steps(session, made, last_end)
    if is_partial and not is_over:
        made.status = "forgotten"
    return made


def summarise_lessons(session: SqlSession, artefact_ids: Sequence[str]) -> None:
    """Bring the rows of the heuristics among these artefacts up to date."""
    names = sorted(
        {
            row[1]
            for row in select(session, "kind, name", "artefacts", "id", artefact_ids)
            if row[0] == "heuristic"
        }
    )
    _put_lessons(session, names)


def _put_lessons(session: SqlSession, names: Sequence[str]) -> None:
    newest = (
        "SELECT body, created_at, retired_at FROM artefacts WHERE kind = 'heuristic' AND name = ?"
        " ORDER BY (retired_at IS NULL) DESC, version DESC LIMIT 1"
    )
    first = "SELECT seq FROM events WHERE stream = ? ORDER BY pos LIMIT 1"
    delete(session, "summaries", "stream", [heuristic_stream(name) for name in names])
    made: list[Summary] = []
    for name in names:
        stream = heuristic_stream(name)
        body, created_at, retired_at = session.execute(newest, (name,)).fetchone()
        began = session.execute(first, (stream,)).fetchone()
        if body is None or began is None:
            continue
        lesson = msgspec.json.decode(body)
        made.append(
            Summary(
                stream=stream,
                noun="lesson",
                subject=lesson.get("subject"),
                seq=began[0],
                at=from_micros(created_at),
                status="in use" if retired_at is None else "retired",
                name=shown_text(lesson.get("source_task") or "", MAX_NAME),
            )
        )
    _put(session, made)


def _put(session: SqlSession, summaries: Iterable[Summary]) -> None:
    rows = [_to_row(one) for one in summaries]
    if rows:
        session.executemany(_PUT, rows)


def _to_row(one: Summary) -> tuple[Any, ...]:
    row = msgspec.structs.asdict(one)
    row["at"], row["shown"] = to_micros(one.at), msgspec.json.encode(one.shown).decode()
    row["ended"] = None if one.ended is None else to_micros(one.ended)
    return tuple(row.values())


def _to_summary(row: tuple[Any, ...]) -> Summary:
    fields = dict(zip(FIELDS, row, strict=True))
    fields["at"], fields["shown"] = from_micros(fields["at"]), msgspec.json.decode(fields["shown"])
    fields["ended"] = None if fields["ended"] is None else from_micros(fields["ended"])
    return Summary(**fields)


def _rows_of(session: SqlSession, streams: Sequence[str]) -> Iterator[Summary]:
    return map(_to_summary, select(session, COLUMNS, "summaries", "stream", streams))


def fill_summaries(
    session: SqlSession, progress: Callable[[int], None] = lambda _count: None
) -> None:
    """Make all rows again from the log, in parts: a large log is never in memory."""
    session.execute("DELETE FROM summaries")
    sql = "SELECT seq, stream FROM events WHERE kind = ? AND seq > ? ORDER BY seq LIMIT ?"
    for kind in STARTS:
        after = 0
        while rows := session.execute(sql, (kind, after, PAGE)).fetchall():
            summarise_again(session, [stream for _, stream in rows])
            progress(len(rows))
            after = rows[-1][0]
    sql = (
        "SELECT DISTINCT name FROM artefacts WHERE kind = 'heuristic' AND name > ?"
        " ORDER BY name LIMIT ?"
    )
    last = ""
    while rows := session.execute(sql, (last, PAGE)).fetchall():
        _put_lessons(session, [row[0] for row in rows])
        progress(len(rows))
        last = rows[-1][0]


Transaction = Callable[[], Any]


class Summaries:
    """Lists of runs, traces, jobs and lessons. Safe to share between threads.

    reading, writing: begin a session of the store, see `SqlStore`.
    """

    def __init__(self, reading: Transaction, writing: Transaction) -> None:
        self._reading = reading
        self._writing = writing

    def read(self, query: SummaryQuery) -> Iterator[Summary]:
        """Stream summaries in the order of the query. It reads as many rows as are taken."""
        if query.subjects is None:
            return self._read(query, None)
        each = [self._read(query, subject) for subject in sorted({*query.subjects})]
        return merge(*each, key=lambda one: one.cursor, reverse=not query.oldest)

    def _read(self, query: SummaryQuery, subject: str | None) -> Iterator[Summary]:
        size, beyond = FIRST, query.beyond
        down = "" if query.oldest else " DESC"
        while True:
            where, params = _conditions(query, subject)
            if beyond is not None:
                where += f" AND (at, seq) {'>' if query.oldest else '<'} (?, ?)"
                params += [to_micros(beyond.at), beyond.seq]
            sql = (
                f"SELECT {COLUMNS} FROM summaries WHERE {where}"  # noqa: S608 - fixed words; values are bound
                f" ORDER BY at{down}, seq{down} LIMIT ?"
            )
            with self._reading() as session:
                rows = session.execute(sql, (*params, size)).fetchall()
            found = list(map(_to_summary, rows))
            yield from found
            if len(rows) < size:
                return
            beyond, size = found[-1].cursor, THEN

    def of(self, streams: Sequence[str]) -> dict[str, Summary]:
        """Return the summaries of these streams, by stream; those that there are."""
        with self._reading() as session:
            return {one.stream: one for one in _rows_of(session, streams)}

    def count(self, query: SummaryQuery) -> int:
        """Count summaries, up to COUNTED."""
        found = 0
        for subject in [None] if query.subjects is None else sorted({*query.subjects}):
            where, params = _conditions(query, subject)
            sql = f"SELECT COUNT(*) FROM (SELECT 1 FROM summaries WHERE {where} LIMIT ?) AS one"  # noqa: S608 - fixed words; values are bound
            with self._reading() as session:
                found += int(session.execute(sql, (*params, COUNTED - found)).fetchone()[0])
        return found

    def totals(self, query: SummaryQuery) -> list[Totals]:
        """Add up summaries by their names, in the order of the names. It reads all of them."""
        found: dict[str, Totals] = {}
        for subject in [None] if query.subjects is None else sorted({*query.subjects}):
            where, params = _conditions(query, subject)
            sql = (
                "SELECT name, COUNT(*), SUM(calls), SUM(size), MIN(at), MAX(at)"  # noqa: S608 - fixed words; values are bound
                f" FROM summaries WHERE {where} GROUP BY name"
            )
            with self._reading() as session:
                rows = session.execute(sql, params).fetchall()
            for name, count, calls, size, first, last in rows:
                sums = int(count), int(calls), int(size)
                one = Totals(name, *sums, from_micros(first), from_micros(last))
                found[name] = found[name] + one if name in found else one
        return [found[name] for name in sorted(found)]

    def rebuild(self, progress: Callable[[int], None] = lambda _count: None) -> None:
        """Make all rows again from the log, in one transaction."""
        with self._writing() as session:
            fill_summaries(session, progress)


_NOTHING = "''"


def _conditions(query: SummaryQuery, subject: str | None) -> tuple[str, list[Any]]:
    by_key = {
        "parent": query.parent,
        "subject": subject,
        "name": None if query.name is None else shown_text(query.name, MAX_NAME),
        "status": query.status,
    }
    where: list[str] = ["noun = ?"]
    params: list[Any] = [query.noun]
    found = False
    for column, value in (*by_key.items(), ("agent", query.agent)):
        if column == "subject" and value == "":
            where.append("subject IS NULL")
        elif value is not None:
            # One of them is looked up; `|| ''` keeps the others from being preferred to it.
            where.append(f"{column}{' || ' + _NOTHING if found else ''} = ?")
            params.append(value)
            found = True
    for sign, moment in ((">=", query.since), ("<", query.until)):
        if moment is not None:
            where.append(f"at {sign} ?")
            params.append(to_micros(moment))
    return " AND ".join(where), params
