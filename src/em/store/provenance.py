"""Provenance: what was made of what. Forgetting walks these edges until nothing new is found.

An edge leads from an event to something that holds content of it. There are three kinds of edges:

- Stated: an event, artefact, record or response lists its sources in `from_events`. The table
  `derivations` has a row for each.
- Implied by a stream: what was made of what in the journal of a run follows from what its events
  are (`em.log.kinds.FLOWS`). They are computed when they are needed, so a run writes nothing for
  them, and they hold for the runs of older databases too.
- Implied by a name: a run names the routine that it ran. It was made of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from em.log.event import (
    JOB_PREFIX,
    LOOP_PREFIX,
    RUN_PREFIX,
    TRACE_PREFIX,
    Event,
    outer_stream,
)
from em.log.kinds import ONLY, flow_of
from em.store.events import COLUMNS, to_event
from em.store.session import SqlSession, select

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
