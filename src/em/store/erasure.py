"""Erase bodies on request, with everything that was made of them.

The row and its hash stay, so the chain still verifies, and an event of kind `erased` in the same
stream (a tombstone) records the erasure. A stream thus proves by itself what was erased, and a
commit with `expected_pos` by someone who compiled from the old content is refused.

Provenance is what was made of what. Forgetting walks its edges until nothing new is found. An edge
leads from an event to something that holds content of it. There are three kinds of edges:

- Stated: an event, artefact, record or response lists its sources in `from_events`. The table
  `derivations` has a row for each.
- Implied by a stream: what was made of what in the journal of a run follows from what its events
  are (`em.log.kinds.FLOWS`). They are computed when they are needed, so a run writes nothing for
  them.
- Implied by a name: a run names the routine that it ran. It was made of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from em.errors import NotFound
from em.log.event import (
    JOB_PREFIX,
    LOOP_PREFIX,
    RUN_PREFIX,
    TRACE_PREFIX,
    Event,
    outer_stream,
)
from em.log.kinds import ONLY, flow_of
from em.store.events import COLUMNS, Chain, to_event
from em.store.holders import (
    erase_artefacts,
    erase_records,
    erase_responses,
    find_artefacts,
    find_records,
    find_responses,
)
from em.store.preparation import PreparedEvent
from em.store.protocol import Erasure
from em.store.search_index import SearchIndex, find_passages, remove_passages
from em.store.session import SqlSession, chunks, delete, select
from em.store.summaries import summarise_again, summarise_lessons
from em.values.canonical import canonical
from em.values.times import new_id, now_micros

Reached = defaultdict[str, set[str]]
"""By table, the ids of what was reached: events, artefacts, records, requests."""

_WITH_FLOWS = (RUN_PREFIX, JOB_PREFIX, TRACE_PREFIX, LOOP_PREFIX)
"""How the names of the streams begin that imply edges."""


def reach(session: SqlSession, event_ids: Iterable[str]) -> Reached:
    """Return everything that was made of these events, through any number of edges."""
    return _ProvenanceWalk(session).of(event_ids)


class _ProvenanceWalk:
    """One walk over the edges. It reads each stream with a flow once."""

    def __init__(self, session: SqlSession) -> None:
        self._session = session
        self._made: defaultdict[str, set[str]] = defaultdict(set)
        self._read: set[str] = set()
        self.reached: Reached = defaultdict(set)

    def of(self, event_ids: Iterable[str]) -> Reached:
        todo, seen = set(event_ids), set[str]()
        while todo:
            seen |= todo
            found = set(self._stated(sorted(todo))) | set(self._implied(sorted(todo)))
            todo = found - seen
        # A flow may have nodes of its own, such as a step, and names of streams.
        ids = sorted({node.removeprefix(ONLY) for node in seen})
        known = select(self._session, "id", "events", "id", ids)
        self.reached["events"] = {row[0] for row in known}
        return self.reached

    def _stated(self, nodes: Sequence[str]) -> Iterator[str]:
        artefacts: list[str] = []
        for noun, holder in select(self._session, "noun, holder", "derivations", "source", nodes):
            if noun == "events":
                yield holder
            elif noun == "artefacts" and holder not in self.reached[noun]:
                artefacts.append(holder)
            self.reached[noun].add(holder)
        yield from self._runs_of(artefacts)

    def _runs_of(self, artefact_ids: Sequence[str]) -> Iterator[str]:
        """Yield the first events of the runs that ran these routines."""
        columns = "kind, name, version"
        for kind, name, version in select(self._session, columns, "artefacts", "id", artefact_ids):
            if kind == "routine":
                named = msgspec.json.encode({"stored": f"{name}@{version}"}).decode().strip("{}")
                sql = (
                    "SELECT id FROM events WHERE kind = 'run_started'"
                    r" AND body LIKE ? ESCAPE '\'"
                )
                rows = self._session.execute(sql, (_contains(named),)).fetchall()
                yield from (row[0] for row in rows)

    def _implied(self, nodes: Sequence[str]) -> Iterator[str]:
        streams = [
            row[0] for row in select(self._session, "DISTINCT stream", "events", "id", nodes)
        ]
        for stream in [*streams, *nodes]:
            if stream.startswith(_WITH_FLOWS) and stream not in self._read:
                self._read_flow(stream)
        for node in nodes:
            yield from self._made[node]

    def _read_flow(self, stream: str) -> None:
        """Compute the edges of a stream; those of a run together with its inner runs."""
        root = stream
        outer = outer_stream(stream)
        if outer is not None and self._first_kind(outer) == "workflow_started":
            root = outer
        events = [event for one in self._family(root) for event in self._events(one)]
        self._read |= {root, stream, *(event.stream for event in events)}
        for event in events:
            # Whoever was made of a stream as a whole names it: all of it goes.
            self._made[event.stream].add(event.id)
        flow = flow_of(self._first_kind(root) or "")
        told = [event for event in events if event.kind != "erased"]
        for source, made in flow(sorted(told, key=lambda one: one.seq)) if flow else ():
            self._made[source].add(made)

    def _first_kind(self, stream: str) -> str | None:
        sql = "SELECT kind FROM events WHERE stream = ? ORDER BY pos LIMIT 1"
        row = self._session.execute(sql, (stream,)).fetchone()
        return None if row is None else str(row[0])

    def _family(self, root: str) -> Iterator[str]:
        yield root
        if not root.startswith(RUN_PREFIX):
            return
        sql = "SELECT DISTINCT stream FROM events WHERE stream > ? AND stream < ?"
        for (stream,) in self._session.execute(sql, (f"{root}-", f"{root}-g")).fetchall():
            if outer_stream(stream) == root:
                yield stream

    def _events(self, stream: str) -> list[Event]:
        sql = f"SELECT {COLUMNS} FROM events WHERE stream = ? ORDER BY pos"  # noqa: S608 - fixed words; values are bound
        return [to_event(row) for row in self._session.execute(sql, (stream,)).fetchall()]


def _contains(text: str) -> str:
    r"""Return a pattern for LIKE that finds a text; `\` escapes its signs."""
    for sign in "\\%_":
        text = text.replace(sign, f"\\{sign}")
    return f"%{text}%"


IDS_PER_TOMBSTONE = 1_000


class _Located(NamedTuple):
    seq: int
    stream: str
    subject: str | None
    kind: str
    erasable: bool


def erase(
    session: SqlSession,
    chain: Chain,
    passages: SearchIndex,
    event_ids: Sequence[str],
    subjects: Sequence[str],
    reason: str,
) -> Erasure:
    """Erase events, all events of the subjects, and what was made of them. The caller commits."""
    going = find_going(session, event_ids, subjects)
    by_stream: defaultdict[str, list[str]] = defaultdict(list)
    for event_id, where in going.events.items():
        by_stream[where.stream].append(event_id)
    tombstones = [
        _tombstone(stream, ids[start : start + IDS_PER_TOMBSTONE], going.events, reason)
        for stream, ids in by_stream.items()
        for start in range(0, len(ids), IDS_PER_TOMBSTONE)
    ]
    _erase(session, passages, going)
    chain.append(session, tombstones, now_micros(), {})
    return going.erasure()


def erase_as_imported(
    session: SqlSession, chain: Chain, passages: SearchIndex, events: Iterable[Event]
) -> bool:
    """Erase here what imported tombstones name. Return whether there was anything to erase."""
    named: defaultdict[str, list[str]] = defaultdict(list)
    for event in events:
        if event.kind == "erased" and event.body is not None:
            named[event.stream] += event.body["events"]
    located: dict[str, _Located] = {}
    for stream, ids in named.items():
        found = _locate(session, ids)
        # A tombstone counts for its own stream only.
        located |= {event_id: at for event_id, at in found.items() if at.stream == stream}
    going = _going(session, located, ())
    _erase(session, passages, going)
    # Derived events in other streams get tombstones of their own.
    tombstones = [
        _tombstone(at.stream, [event_id], going.events, "")
        for event_id, at in going.events.items()
        if event_id not in located
    ]
    chain.append(session, tombstones, now_micros(), {})
    return bool(going.events)


class Going(NamedTuple):
    """What goes: `events` that have a body, the other tables' rows, and `sources` of all of it."""

    events: dict[str, _Located]
    artefacts: Mapping[str, tuple[str, str]]
    records: Sequence[tuple[str, str, str]]
    passages: Mapping[int, str]
    responses: Sequence[str]
    sources: Sequence[str]

    def erasure(self, *, is_dry_run: bool = False) -> Erasure:
        """Return it as a list for people."""
        gone: defaultdict[str, defaultdict[str, list[str]]]
        gone = defaultdict(lambda: defaultdict(list))
        for event_id, where in self.events.items():
            gone["events"][where.kind].append(event_id)
        for kind, name in self.artefacts.values():
            gone["artefacts"][kind].append(name)
        for subject, record_type, record_id in self.records:
            gone["records"][record_type].append(f"{subject}/{record_id}")
        for number, kind in self.passages.items():
            gone["passages"][kind].append(str(number))
        for key in self.responses:
            gone["responses"]["response"].append(key)
        return Erasure(
            events=list(self.events),
            artefacts=len(self.artefacts),
            records=len(self.records),
            passages=len(self.passages),
            responses=len(self.responses),
            gone={noun: dict(ids) for noun, ids in gone.items()},
            is_dry_run=is_dry_run,
        )


def find_going(session: SqlSession, event_ids: Sequence[str], subjects: Sequence[str]) -> Going:
    """Find what goes with these events, and with all events of the subjects. Change nothing."""
    located = _locate(session, event_ids)
    missing = [event_id for event_id in event_ids if event_id not in located]
    if missing:
        more = f", nor have {len(missing) - 1} more" if len(missing) > 1 else ""
        raise NotFound(
            f"no event has the id {missing[0]!r}{more}",
            place="event",
            fix="`em log show --json` prints ids; nothing was erased",
        )
    about = [row[0] for row in select(session, "id", "events", "subject", subjects)]
    return _going(session, located | _locate(session, about), subjects)


def _going(session: SqlSession, located: dict[str, _Located], subjects: Sequence[str]) -> Going:
    reached = reach(session, located)
    located = located | _locate(session, sorted(reached["events"] - located.keys()))
    events = {event_id: where for event_id, where in located.items() if where.erasable}
    kinds = {where.seq: where.kind for where in events.values()}
    return Going(
        events,
        find_artefacts(session, sorted(reached["artefacts"])),
        find_records(session, sorted(reached["records"]), subjects),
        {number: kinds[seq] for number, seq in find_passages(session, list(kinds))},
        find_responses(session, sorted(reached["requests"])),
        list(located),
    )


def _erase(session: SqlSession, passages: SearchIndex, going: Going) -> None:
    """Erase bodies and what was made of them."""
    erase_artefacts(session, list(going.artefacts))
    erase_records(session, going.records)
    remove_passages(session, passages, [where.seq for where in going.events.values()])
    erase_responses(session, going.responses)
    for marks, part in chunks(list(going.events)):
        sql = f"UPDATE events SET body = NULL, salt = NULL WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        session.execute(sql, part)
    summarise_again(session, [where.stream for where in going.events.values()])
    summarise_lessons(session, list(going.artefacts))
    # The key of a record may hold part of what was forgotten.
    delete(session, "derivations", "source", going.sources)


def _locate(session: SqlSession, event_ids: Sequence[str]) -> dict[str, _Located]:
    """Return where events are, and whether they have a body to erase."""
    columns = "id, seq, stream, subject, kind, body IS NULL"
    unique = list(dict.fromkeys(event_ids))
    return {
        event_id: _Located(seq, stream, subject, kind, kind != "erased" and not empty)
        for event_id, seq, stream, subject, kind, empty in select(
            session, columns, "events", "id", unique
        )
    }


def _tombstone(
    stream: str, ids: Sequence[str], located: dict[str, _Located], reason: str
) -> PreparedEvent:
    text, body = canonical({"events": list(ids), "reason": reason})
    subjects = {located[event_id].subject for event_id in ids}
    subject = next(iter(subjects)) if len(subjects) == 1 else None
    return PreparedEvent(new_id(), stream, subject, "erased", 1, None, text, body, None)
