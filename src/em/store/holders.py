"""What was compiled from events, each holder with the events it came from.

`derivations` is the index behind forgetting: it leads from an event to everything that holds
something of it.
"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from em.errors import ClaimLost
from em.models.artefact import Artefact
from em.models.document import Document
from em.models.event import MAX_NAME
from em.models.ids import new_id
from em.models.record import Record
from em.models.request import RequestOutcome
from em.models.times import from_micros, to_micros
from em.store.prepare import PreparedArtefact
from em.store.session import Session, chunks

ARTEFACT_COLUMNS = "id, kind, name, version, body, hash, from_events, created_at, retired_at"

Derivation = tuple[str, str, str]
"""source event, noun of what holds it (`events`, `artefacts`, …), id of the holder"""

EncodeVector = Callable[[Sequence[float]], Any]


def delete(session: Session, table: str, column: str, values: Sequence[str]) -> int:
    """Delete the rows whose column is one of the values; how many there were."""
    count = 0
    for marks, part in chunks(values):
        sql = f"DELETE FROM {table} WHERE {column} IN ({marks})"  # noqa: S608 - names from this module's callers; values are bound
        count += session.execute(sql, part).rowcount
    return count


def put_artefact(session: Session, item: PreparedArtefact, created_at: int) -> Artefact:
    """Store a new version, or find that the newest one says the same."""
    draft = item.draft
    content = sha256(item.text).hexdigest()
    newest = session.execute(
        f"SELECT {ARTEFACT_COLUMNS} FROM artefacts WHERE kind = ? AND name = ?"  # noqa: S608 - fixed words
        " ORDER BY version DESC LIMIT 1",
        (draft.kind, draft.name),
    ).fetchone()
    previous = to_artefact(newest) if newest else None
    if previous and previous.hash == content and previous.retired_at is None:
        artefact = msgspec.structs.replace(
            previous, from_events=tuple(dict.fromkeys((*previous.from_events, *draft.from_events)))
        )
        session.execute(
            "UPDATE artefacts SET from_events = ? WHERE id = ?",
            (_ids(artefact.from_events), artefact.id),
        )
    else:
        artefact = Artefact(
            id=new_id(),
            kind=draft.kind,
            name=draft.name,
            version=previous.version + 1 if previous else 1,
            body=item.body,
            hash=content,
            from_events=tuple(draft.from_events),
            created_at=from_micros(created_at),
            retired_at=None,
        )
        session.execute(
            f"INSERT INTO artefacts({ARTEFACT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - fixed words
            (
                artefact.id,
                artefact.kind,
                artefact.name,
                artefact.version,
                item.text.decode(),
                content,
                _ids(artefact.from_events),
                created_at,
                None,
            ),
        )
    put_derivations(session, derivations_of(draft.from_events, "artefacts", artefact.id))
    return artefact


def to_artefact(row: tuple[Any, ...]) -> Artefact:
    """A row of ARTEFACT_COLUMNS as the artefact it is."""
    return Artefact(
        id=row[0],
        kind=row[1],
        name=row[2],
        version=row[3],
        body=None if row[4] is None else msgspec.json.decode(row[4]),
        hash=row[5],
        from_events=tuple(msgspec.json.decode(row[6])),
        created_at=from_micros(row[7]),
        retired_at=None if row[8] is None else from_micros(row[8]),
    )


def record_holder(subject: str, record_type: str, record_id: str) -> str:
    """The key under which a record's derivations stand."""
    return msgspec.json.encode((subject, record_type, record_id)).decode()


def put_records(session: Session, records: Sequence[tuple[Record, bytes | None]]) -> None:
    """Put records in the place of those of the same key; those without a body are removed."""
    if not records:
        return
    gone = [record for record, text in records if text is None]
    kept = [(record, text.decode()) for record, text in records if text is not None]
    session.executemany(
        "DELETE FROM records WHERE subject = ? AND type = ? AND id = ?",
        [(record.subject, record.type, record.id) for record in gone],
    )
    session.executemany(
        "INSERT INTO records(subject, type, id, body, from_events) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT(subject, type, id)"
        " DO UPDATE SET body = excluded.body, from_events = excluded.from_events",
        [
            (record.subject, record.type, record.id, text, _ids(record.from_events))
            for record, text in kept
        ],
    )
    derivations: list[Derivation] = []
    for record, _ in kept:
        holder = record_holder(record.subject, record.type, record.id)
        derivations += derivations_of(record.from_events, "records", holder)
    put_derivations(session, derivations)


def put_documents(
    session: Session, documents: Sequence[Document], encode_vector: EncodeVector
) -> None:
    """Put documents in the place of those of the same ids; those without a text are removed."""
    if not documents:
        return
    delete(session, "documents", "id", [document.id for document in documents])
    kept = {document.id: document for document in documents if document.text is not None}
    session.executemany(
        "INSERT INTO documents(id, kind, subject, at, text, vector, from_events)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                document.id,
                document.kind,
                document.subject,
                to_micros(document.at),
                document.text,
                None if document.vector is None else encode_vector(document.vector),
                _ids(document.from_events),
            )
            for document in kept.values()
        ],
    )
    derivations: list[Derivation] = []
    for document in kept.values():
        derivations += derivations_of(document.from_events, "documents", document.id)
    put_derivations(session, derivations)


def complete_request(session: Session, request: RequestOutcome) -> None:
    """Keep a claimed request's response."""
    changed = session.execute(
        "UPDATE requests SET state = 'done', response = ? WHERE key = ? AND owner = ?"
        " AND state = 'running'",
        (request.response, request.key, request.owner),
    ).rowcount
    if changed != 1:
        raise ClaimLost(
            "its lease ran out and somebody else has it",
            place=f"request {request.key!r}",
            fix="nothing was written; ask for the other's response",
        )
    put_derivations(session, derivations_of(request.from_events, "requests", request.key))


def _ids(event_ids: Iterable[str]) -> str:
    return msgspec.json.encode(list(event_ids)).decode()


def derivations_of(sources: Any, noun: str, holder: str) -> list[Derivation]:
    """The index entries for a holder; what can't be an event's id is left out."""
    if not isinstance(sources, list | tuple):
        return []
    return [
        (source, noun, holder)
        for source in sources
        if isinstance(source, str) and len(source) <= MAX_NAME and source.isprintable()
    ]


def put_derivations(session: Session, derivations: Sequence[Derivation]) -> None:
    """Add to the index."""
    if derivations:
        session.executemany(
            "INSERT INTO derivations(source, noun, holder) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            derivations,
        )
