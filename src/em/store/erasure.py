"""Erase bodies on request, with everything that was derived from them.

The row and its hash stay, so the chain still verifies, and an event of kind `erased` in the same
stream (a tombstone) records the erasure. A stream thus proves by itself what was erased, and a
commit with `expected_pos` by someone who compiled from the old content is refused.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from em.errors import NotFound
from em.log.event import Event
from em.store.events import Chain
from em.store.holders import (
    erase_artefacts,
    erase_records,
    erase_responses,
    holders_of,
)
from em.store.preparation import PreparedEvent
from em.store.protocol import Erasure
from em.store.search_index import PassageTable, remove_passages
from em.store.session import Session, chunks, delete, select
from em.values.canonical import canonical
from em.values.ids import new_id
from em.values.times import now_micros

IDS_PER_TOMBSTONE = 1_000


class _Located(NamedTuple):
    seq: int
    stream: str
    subject: str | None
    erasable: bool


def erase(
    session: Session,
    chain: Chain,
    passages: PassageTable,
    event_ids: Sequence[str],
    subjects: Sequence[str],
    reason: str,
) -> Erasure:
    """Erase events, all events of the subjects, and what was derived. The caller commits."""
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
    located |= _locate(session, about)
    erasure, located = _erase_holders(session, passages, located, subjects)
    by_stream: defaultdict[str, list[str]] = defaultdict(list)
    for event_id, where in located.items():
        if where.erasable:
            by_stream[where.stream].append(event_id)
    tombstones = [
        _tombstone(stream, ids[start : start + IDS_PER_TOMBSTONE], located, reason)
        for stream, ids in by_stream.items()
        for start in range(0, len(ids), IDS_PER_TOMBSTONE)
    ]
    chain.append(session, tombstones, now_micros(), {})
    return erasure


def erase_as_imported(
    session: Session, chain: Chain, passages: PassageTable, events: Iterable[Event]
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
    erasure, also = _erase_holders(session, passages, located, ())
    # Derived events in other streams get tombstones of their own.
    elsewhere = {event_id: at for event_id, at in also.items() if event_id not in located}
    tombstones = [
        _tombstone(at.stream, [event_id], elsewhere, "")
        for event_id, at in elsewhere.items()
        if at.erasable
    ]
    chain.append(session, tombstones, now_micros(), {})
    return bool(erasure.events)


def _erase_holders(
    session: Session, passages: PassageTable, located: dict[str, _Located], subjects: Sequence[str]
) -> tuple[Erasure, dict[str, _Located]]:
    """Erase bodies and everything derived from them. Return what was erased, and all events."""
    holders = holders_of(session, located)
    located = located | _locate(session, sorted(holders["events"] - located.keys()))
    erased = [event_id for event_id, where in located.items() if where.erasable]
    seqs = [where.seq for where in located.values() if where.erasable]
    erasure = Erasure(
        events=erased,
        artefacts=erase_artefacts(session, sorted(holders["artefacts"])),
        records=erase_records(session, sorted(holders["records"]), subjects),
        passages=remove_passages(session, passages, seqs),
        responses=erase_responses(session, sorted(holders["requests"])),
    )
    for marks, part in chunks(erased):
        sql = f"UPDATE events SET body = NULL, salt = NULL WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        session.execute(sql, part)
    # The key of a record may hold part of what was forgotten.
    delete(session, "derivations", "source", list(located))
    return erasure, located


def _locate(session: Session, event_ids: Sequence[str]) -> dict[str, _Located]:
    """Return where events are, and whether they have a body to erase."""
    columns = "id, seq, stream, subject, kind, body IS NULL"
    unique = list(dict.fromkeys(event_ids))
    return {
        event_id: _Located(seq, stream, subject, kind != "erased" and not empty)
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
