"""What holds content of events: artefacts, records and stored responses, with their sources.

The table `derivations` lists for each source event its holders, so that forgetting the event finds
them (`em.store.erasure`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from em.errors import ClaimLost, Conflict, StoreCorrupt
from em.store.preparation import PreparedArtefact
from em.store.protocol import Artefact, Card, Claim, Held, Record, RequestOutcome
from em.store.register import Tally, new_seal, register_artefacts
from em.store.session import SqlSession, chunks, delete, is_side_by_side, select
from em.values.times import from_micros, new_id, now_micros

_MANY = 100
"""With more sources than this, ask first whether anything was ever erased."""
_ERASED = "SELECT 1 FROM events WHERE kind = 'erased' LIMIT 1"


class Derivation(NamedTuple):
    """A holder of a source event. `noun` is its table, `holder` its id there."""

    source: str
    noun: str
    holder: str


def derivations_of(sources: Iterable[str], noun: str, holder: str) -> list[Derivation]:
    """Return the derivations of one holder."""
    return [Derivation(source, noun, holder) for source in sources]


def put_derivations(session: SqlSession, derivations: Sequence[Derivation]) -> None:
    """Insert derivations; those that are there already are left alone."""
    if derivations:
        session.executemany(
            "INSERT INTO derivations(source, noun, holder) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            derivations,
        )


def drop_derivations(session: SqlSession, noun: str, holders: Iterable[tuple[str, str]]) -> None:
    """Delete the derivations of holders, given as pairs of id and stored list of sources."""
    gone = [
        Derivation(source, noun, holder)
        for holder, sources in holders
        for source in msgspec.json.decode(sources)
    ]
    if gone:
        session.executemany(
            "DELETE FROM derivations WHERE source = ? AND noun = ? AND holder = ?", gone
        )


def sources_text(event_ids: Iterable[str]) -> str:
    """Encode a list of sources as the tables store it."""
    return msgspec.json.encode(list(event_ids)).decode()


def refuse_erased_sources(session: SqlSession, sources: set[str]) -> None:
    """Raise Conflict if a source was erased: a late commit must not bring its content back."""
    if len(sources) > _MANY and session.execute(_ERASED).fetchone() is None:
        return
    for event_id, erased in select(session, "id, body IS NULL", "events", "id", sorted(sources)):
        if erased:
            raise Conflict(
                "the commit was derived from an event that was erased since",
                place=f"event {event_id}",
                fix="compile again from the events that are left",
            )


ARTEFACT_COLUMNS = "id, kind, name, version, body, hash, from_events, created_at, retired_at"


def put_artefact(session: SqlSession, item: PreparedArtefact, created_at: int) -> Artefact:
    """Store a new version; if the newest has the same content, add the sources to that one."""
    draft = item.draft
    content = sha256(item.text).hexdigest()
    newest = session.execute(
        f"SELECT {ARTEFACT_COLUMNS} FROM artefacts WHERE kind = ? AND name = ?"  # noqa: S608 - fixed words
        " ORDER BY version DESC LIMIT 1",
        (draft.kind, draft.name),
    ).fetchone()
    previous = to_artefact(newest) if newest else None
    is_same = previous is not None and previous.hash == content
    if previous and is_same and (draft.retired or previous.retired_at is None):
        artefact = _add_evidence(session, previous, draft.from_events)
    else:
        version = previous.version + 1 if previous else 1
        artefact = _add_artefact(session, item, content, version, created_at)
    put_derivations(session, derivations_of(draft.from_events, "artefacts", artefact.id))
    return artefact


def _add_evidence(session: SqlSession, artefact: Artefact, sources: Sequence[str]) -> Artefact:
    both = tuple(dict.fromkeys((*artefact.from_events, *sources)))
    session.execute(
        "UPDATE artefacts SET from_events = ? WHERE id = ?", (sources_text(both), artefact.id)
    )
    return msgspec.structs.replace(artefact, from_events=both)


def _add_artefact(
    session: SqlSession, item: PreparedArtefact, content: str, version: int, created_at: int
) -> Artefact:
    draft, artefact_id = item.draft, new_id()
    named = (artefact_id, draft.kind, draft.name, version)
    sources, retired_at = sources_text(draft.from_events), created_at if draft.retired else None
    row = (*named, item.text.decode(), content, sources, created_at, retired_at)
    session.execute(
        f"INSERT INTO artefacts({ARTEFACT_COLUMNS}, seal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - fixed words
        (*row, new_seal(*named, content, created_at)),
    )
    return msgspec.structs.replace(to_artefact((*named, None, *row[5:])), body=item.body)


def to_artefact(row: tuple[Any, ...]) -> Artefact:
    """Decode a row of ARTEFACT_COLUMNS."""
    artefact_id, kind, name, version, text, own, sources, created_at, retired_at = row
    try:
        body = None if text is None else msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):  # who may write to the file damaged it
        raise StoreCorrupt(
            "the stored body is not the JSON object that em wrote",
            place=f"{kind} {name}@{version}",
            fix="restore a backup; `em log export` saves the events, of which it can be made again",
        ) from None
    return Artefact(
        id=artefact_id,
        kind=kind,
        name=name,
        version=version,
        body=body,
        hash=own,
        from_events=tuple(msgspec.json.decode(sources)),
        created_at=from_micros(created_at),
        retired_at=None if retired_at is None else from_micros(retired_at),
    )


def retire_artefacts(session: SqlSession, ids: Sequence[str], moment: int) -> list[str]:
    """Take artefacts out of use, and return the ids of those that were in use."""
    sql = "UPDATE artefacts SET retired_at = ? WHERE id = ? AND retired_at IS NULL"
    return [one for one in ids if session.execute(sql, (moment, one)).rowcount == 1]


def restore_artefacts(session: SqlSession, ids: Sequence[str]) -> None:
    """Put retired artefacts in use again."""
    for one in ids:
        session.execute("UPDATE artefacts SET retired_at = NULL WHERE id = ?", (one,))


CARD_COLUMNS = (
    "id, name, version, created_at, retired_at,"
    " (SELECT cards.body FROM cards WHERE cards.id = artefacts.id) AS card"
)
READABLE = "body IS NOT NULL"
USABLE = f"retired_at IS NULL AND {READABLE}"


def to_card(row: tuple[Any, ...]) -> Card:
    """Decode a row of CARD_COLUMNS."""
    one, name, version, created_at, retired_at, body = row
    return Card(
        id=one,
        name=name,
        version=version,
        created_at=from_micros(created_at),
        retired_at=None if retired_at is None else from_micros(retired_at),
        body=None if body is None else msgspec.json.decode(body),
    )


def put_cards(session: SqlSession, cards: Sequence[tuple[str, bytes]]) -> None:
    """Store what lists show of artefacts. One that was erased meanwhile gets no card."""
    for artefact_id, text in cards:
        session.execute(
            "INSERT INTO cards(id, body) SELECT id, ? FROM artefacts"
            " WHERE id = ? AND body IS NOT NULL"
            " ON CONFLICT(id) DO UPDATE SET body = excluded.body",
            (text.decode(), artefact_id),
        )


def holders_of(session: SqlSession, event_ids: Sequence[str]) -> Iterator[Held]:
    """Yield what states that it was made of these events: other events and artefacts."""
    rows = list(select(session, "source, noun, holder", "derivations", "source", event_ids))
    ids = sorted({holder for _, noun, holder in rows if noun == "artefacts"})
    artefacts = {
        one: f"{kind} {name}" for one, (kind, name) in find_artefacts(session, ids).items()
    }
    for source, noun, holder in rows:
        if noun == "events":
            yield Held(source, noun, holder)
        elif holder in artefacts:
            yield Held(source, noun, artefacts[holder])


def find_artefacts(session: SqlSession, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return kind and `name@version` of the artefacts that have a body, by id."""
    columns = "id, kind, name, version, body IS NULL"
    return {
        one: (kind, f"{name}@{version}")
        for one, kind, name, version, empty in select(session, columns, "artefacts", "id", ids)
        if not empty
    }


def erase_artefacts(session: SqlSession, ids: Sequence[str]) -> None:
    """Erase bodies and cards, and hashes too: short content could be guessed from them."""
    delete(session, "cards", "id", ids)
    for marks, part in chunks(ids):
        sql = f"UPDATE artefacts SET body = NULL, hash = '', seal = NULL WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        session.execute(sql, part)
    register_artefacts(session, ids)


def put_records(session: SqlSession, records: Sequence[tuple[Record, bytes | None]]) -> None:
    """Insert or replace records; delete those without a body."""
    tally = Tally()
    _forget_sources(session, [(one.subject, one.type, one.id) for one, _ in records], tally)
    session.executemany(
        "DELETE FROM records WHERE subject = ? AND type = ? AND id = ?",
        [(record.subject, record.type, record.id) for record, text in records if text is None],
    )
    stored = {
        (record.subject, record.type, record.id): (record, text.decode())
        for record, text in records
        if text is not None
    }
    rows = [
        (*key, text, sources_text(record.from_events)) for key, (record, text) in stored.items()
    ]
    seals = [new_seal(*row) for row in rows]
    session.executemany(
        "INSERT INTO records(subject, type, id, body, from_events, seal) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT(subject, type, id) DO UPDATE SET"
        " body = excluded.body, from_events = excluded.from_events, seal = excluded.seal",
        [(*row, seal) for row, seal in zip(rows, seals, strict=True)],
    )
    for row, seal in zip(rows, seals, strict=True):
        tally.add(row[0], seal)
    tally.save(session)
    derivations: list[Derivation] = []
    for record, _ in stored.values():
        holder = _record_holder(record.subject, record.type, record.id)
        derivations += derivations_of(record.from_events, "records", holder)
    put_derivations(session, derivations)


def _forget_sources(
    session: SqlSession, keys: Iterable[tuple[str, str, str]], tally: Tally
) -> None:
    """Take records that are replaced or deleted out of the derivations and the tally."""
    by_type: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for *of_type, record_id in keys:
        by_type[of_type[0], of_type[1]].add(record_id)
    sql = "SELECT id, from_events, seal FROM records WHERE subject = ? AND type = ? AND id IN ({})"
    for of, ids in by_type.items():
        for marks, part in chunks(sorted(ids)):
            rows = session.execute(sql.format(marks), (*of, *part)).fetchall()
            holders = [(_record_holder(*of, row[0]), row[1]) for row in rows]
            drop_derivations(session, "records", holders)
            for row in rows:
                tally.subtract(of[0], row[2])


def find_records(
    session: SqlSession, holders: Sequence[str], subjects: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Return subject, type and id of the records of these holders, and of all of the subjects."""
    found: dict[tuple[str, str, str], None] = {}
    for holder in holders:
        sql = "SELECT subject, type, id FROM records WHERE subject = ? AND type = ? AND id = ?"
        key = msgspec.json.decode(holder, type=tuple[str, str, str])
        found |= {(*row,): None for row in session.execute(sql, key).fetchall()}
    rows = select(session, "subject, type, id", "records", "subject", subjects)
    return list(found | {(*row,): None for row in rows})


def erase_records(session: SqlSession, records: Sequence[tuple[str, str, str]]) -> None:
    """Delete records, and their derivations: their keys may hold part of what was forgotten."""
    tally = Tally()
    _forget_sources(session, records, tally)
    sql = "DELETE FROM records WHERE subject = ? AND type = ? AND id = ?"
    session.executemany(sql, records)
    tally.save(session)


def _record_holder(subject: str, record_type: str, record_id: str) -> str:
    return msgspec.json.encode((subject, record_type, record_id)).decode()


def complete_request(session: SqlSession, request: RequestOutcome) -> None:
    """Store the response of a claimed request. Raise ClaimLost if the claim was taken over."""
    changed = session.execute(
        "UPDATE requests SET state = 'done', response = ?, from_events = ?"
        " WHERE key = ? AND owner = ? AND state = 'running'",
        (request.response, sources_text(request.from_events), request.key, request.owner),
    ).rowcount
    if changed != 1:
        raise ClaimLost(
            "the lease ran out and another process has claimed this request",
            place=f"request {request.key!r}",
            fix="nothing was written; send the request again to get the response",
        )
    put_derivations(session, derivations_of(request.from_events, "requests", request.key))


def find_responses(session: SqlSession, keys: Sequence[str]) -> list[str]:
    """Return those of the keys whose requests have a response."""
    found = select(session, "key, response IS NULL", "requests", "key", keys)
    return [key for key, empty in found if not empty]


def erase_responses(session: SqlSession, keys: Sequence[str]) -> None:
    """Erase responses. Their keys stay used."""
    for marks, part in chunks(keys):
        sql = f"UPDATE requests SET state = 'erased', response = NULL WHERE key IN ({marks})"  # noqa: S608 - question marks; values are bound
        session.execute(sql, part)


EXPIRED_AT_ONCE = 100
"""Expired requests that one claim deletes at most: more than come in."""


def expire_requests(session: SqlSession, moment: int, but: str) -> None:
    """Delete expired requests with other keys than this one."""
    # Another process may be deleting some of them: leave those to it, don't wait for it.
    passing = " FOR UPDATE SKIP LOCKED" if is_side_by_side(session) else ""
    sql = (
        f"SELECT key, from_events FROM requests WHERE expires_at <= ? AND key <> ? LIMIT ?{passing}"  # noqa: S608 - fixed words
    )
    rows = session.execute(sql, (moment, but, EXPIRED_AT_ONCE)).fetchall()
    drop_derivations(session, "requests", rows)
    delete(session, "requests", "key", [row[0] for row in rows])


_MICROSECOND = timedelta(microseconds=1)


def claim(
    session: SqlSession, key: str, fingerprint: str, lease: timedelta, keep: timedelta
) -> Claim:
    """Claim a key, or return what became of the request that used it."""
    moment = now_micros()
    # The own key first: who deletes expired requests waits for nobody.
    found = _used(session, key, fingerprint, moment)
    if found is None:
        owner = new_id()
        session.execute(
            "INSERT INTO requests(key, fingerprint, owner, state, lease_until, expires_at)"
            " VALUES (?, ?, ?, 'running', ?, ?) ON CONFLICT(key)"
            " DO UPDATE SET owner = excluded.owner, lease_until = excluded.lease_until",
            (
                key,
                fingerprint,
                owner,
                moment + lease // _MICROSECOND,
                moment + keep // _MICROSECOND,
            ),
        )
        found = Claim(status="yours", owner=owner)
    expire_requests(session, moment, key)
    return found


def _used(session: SqlSession, key: str, fingerprint: str, moment: int) -> Claim | None:
    """Return what became of a request; None if there is none, or its lease ran out."""
    row = session.execute(
        "SELECT fingerprint, state, response, lease_until, expires_at, from_events"
        " FROM requests WHERE key = ?",
        (key,),
    ).fetchone()
    if row is None:
        return None
    known, state, response, lease_until, expires_at, sources = row
    if expires_at <= moment:
        if delete(session, "requests", "key", [key]):
            drop_derivations(session, "requests", [(key, sources)])
        return None
    if known != fingerprint:
        return Claim(status="mismatch")
    if state == "done":
        return Claim(status="done", response=bytes(response))
    if state == "erased":
        return Claim(status="erased")
    return Claim(status="running") if lease_until > moment else None


def release(session: SqlSession, key: str, owner: str) -> None:
    """Give up a claim, unless another owner has taken it over."""
    session.execute(
        "DELETE FROM requests WHERE key = ? AND owner = ? AND state = 'running'", (key, owner)
    )
