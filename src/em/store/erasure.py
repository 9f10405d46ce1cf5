"""Erase bodies on request, with everything that was made of them (`em.store.provenance`).

The row and its hash stay, so the chain still verifies, and an event of kind `erased` in the same
stream (a tombstone) records the erasure. A stream thus proves by itself what was erased, and a
commit with `expected_pos` by someone who compiled from the old content is refused.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from em.errors import NotFound
from em.log.event import Event
from em.store.events import Chain
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
from em.store.provenance import reach
from em.store.search_index import PassageTable, find_passages, remove_passages
from em.store.session import SqlSession, chunks, delete, select
from em.store.summaries import summarise_again, summarise_lessons
from em.values.canonical import canonical
from em.values.times import new_id, now_micros

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
    passages: PassageTable,
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
    session: SqlSession, chain: Chain, passages: PassageTable, events: Iterable[Event]
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


def _erase(session: SqlSession, passages: PassageTable, going: Going) -> None:
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
