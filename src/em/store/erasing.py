"""Forgetting: a body goes, its row and its hash stay, and so does the fact of the erasure.

The fact is an event of kind `erased` in the same stream. So a stream proves by itself what was
erased, and whoever compiled from the old content and commits with `expected_pos` is fenced off.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from em.errors import NotFound
from em.models.canonical import canonical
from em.models.ids import new_id
from em.models.times import now, to_micros
from em.store.holders import delete
from em.store.prepare import PreparedEvent
from em.store.protocol import Erasure
from em.store.session import Session, chunks
from em.store.writing import Writer

IDS_PER_TOMBSTONE = 1_000


def erase(
    session: Session,
    writer: Writer,
    event_ids: Sequence[str],
    subjects: Sequence[str],
    reason: str,
) -> Erasure:
    """Erase the events and everything that was derived from them; the caller commits."""
    streams = _locate(session, event_ids)
    holders = _derived(session, set(streams))
    streams |= _locate(session, sorted(holders["events"] - set(streams)), missing_ok=True)
    artefacts = _erase_artefacts(session, holders["artefacts"])
    records = _erase_records(session, holders["records"], subjects)
    documents = delete(session, "documents", "id", sorted(holders["documents"]))
    documents += delete(session, "documents", "subject", subjects)
    responses = _erase_responses(session, holders["requests"])
    erased = _erase_bodies(session, writer, streams, reason)
    return Erasure(
        events=erased,
        artefacts=artefacts,
        records=records,
        documents=documents,
        responses=responses,
    )


def _locate(
    session: Session, event_ids: Sequence[str], *, missing_ok: bool = False
) -> dict[str, tuple[str, str | None, bool]]:
    """For each id: its stream, its subject, and whether there is something to erase."""
    found: dict[str, tuple[str, str | None, bool]] = {}
    for marks, part in chunks(list(dict.fromkeys(event_ids))):
        sql = f"SELECT id, stream, subject, kind, body IS NULL FROM events WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        for event_id, stream, subject, kind, empty in session.execute(sql, part):
            found[event_id] = (stream, subject, kind != "erased" and not empty)
    missing = [event_id for event_id in event_ids if event_id not in found]
    if missing and not missing_ok:
        raise NotFound(
            f"no event has the id {missing[0]!r}"
            + (f", nor have {len(missing) - 1} more" if len(missing) > 1 else ""),
            place="event",
            fix="`em log show` prints ids; nothing was erased",
        )
    return found


def _derived(session: Session, event_ids: Iterable[str]) -> defaultdict[str, set[str]]:
    """Everything that holds something of these events, through any number of steps."""
    holders: defaultdict[str, set[str]] = defaultdict(set)
    todo = sorted(event_ids)
    seen = set(todo)
    while todo:
        step: set[str] = set()
        for marks, part in chunks(todo):
            sql = f"SELECT noun, holder FROM derivations WHERE source IN ({marks})"  # noqa: S608 - question marks; values are bound
            for noun, holder in session.execute(sql, part):
                holders[noun].add(holder)
                if noun == "events":
                    step.add(holder)
        todo = sorted(step - seen)
        seen |= step
    return holders


def _erase_artefacts(session: Session, ids: Iterable[str]) -> int:
    """The hash goes too: it is not salted, and short content can be guessed from it."""
    count = 0
    for marks, part in chunks(sorted(ids)):
        sql = f"UPDATE artefacts SET body = NULL, hash = '' WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        count += session.execute(sql, part).rowcount
    return count


def _erase_records(session: Session, holders: Iterable[str], subjects: Sequence[str]) -> int:
    count = 0
    for holder in sorted(holders):
        key = msgspec.json.decode(holder)
        sql = "DELETE FROM records WHERE subject = ? AND type = ? AND id = ?"
        count += session.execute(sql, key).rowcount
    count += delete(session, "records", "subject", subjects)
    return count


def _erase_responses(session: Session, keys: Iterable[str]) -> int:
    count = 0
    for marks, part in chunks(sorted(keys)):
        sql = f"UPDATE requests SET state = 'erased', response = NULL WHERE key IN ({marks})"  # noqa: S608 - question marks; values are bound
        count += session.execute(sql, part).rowcount
    return count


def _erase_bodies(
    session: Session,
    writer: Writer,
    located: dict[str, tuple[str, str | None, bool]],
    reason: str,
) -> list[str]:
    by_stream: defaultdict[str, list[str]] = defaultdict(list)
    subjects: defaultdict[str, set[str | None]] = defaultdict(set)
    for event_id, (stream, subject, there) in located.items():
        if there:
            by_stream[stream].append(event_id)
            subjects[stream].add(subject)
    erased = [event_id for ids in by_stream.values() for event_id in ids]
    for marks, part in chunks(erased):
        sql = f"UPDATE events SET body = NULL, salt = NULL WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        session.execute(sql, part)
    tombstones = [
        _tombstone(stream, ids[start : start + IDS_PER_TOMBSTONE], subjects[stream], reason)
        for stream, ids in by_stream.items()
        for start in range(0, len(ids), IDS_PER_TOMBSTONE)
    ]
    writer.append(session, tombstones, to_micros(now()))
    # A record's key may say something of what it held.
    delete(session, "derivations", "source", erased)
    return erased


def _tombstone(
    stream: str, ids: Sequence[str], subjects: set[str | None], reason: str
) -> PreparedEvent:
    text, body = canonical({"events": list(ids), "reason": reason})
    subject = next(iter(subjects)) if len(subjects) == 1 else None
    return PreparedEvent(new_id(), stream, subject, "erased", 1, None, text, body, None)
