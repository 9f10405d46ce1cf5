"""Writing a prepared commit inside a transaction that holds the write lock."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from em.errors import DuplicateEvent
from em.store.derivations import refuse_erased_sources
from em.store.holders import (
    DocumentExtras,
    complete_request,
    put_artefact,
    put_documents,
    put_records,
)
from em.store.preparation import Prepared, PreparedEvent
from em.store.protocol import Committed
from em.store.sequence import Chain, Tip
from em.store.session import Session, chunks
from em.store.word_index import PassageTable, index_events
from em.values.times import now_micros


class Writer:
    """The SQL of a commit. A back end says what a document adds."""

    def __init__(self, chain: Chain, extras: DocumentExtras, passages: PassageTable) -> None:
        self.chain = chain
        self._extras = extras
        self.passages = passages

    def write(self, session: Session, prepared: Prepared) -> tuple[Committed, Tip | None]:
        """Write all of it; the caller commits or rolls back. Also where the log then ends."""
        recorded_at = now_micros()
        if prepared.skip_known:
            prepared = _without_known(session, prepared)
        if prepared.given_ids:
            _refuse_duplicates(session, prepared.given_ids)
        if prepared.sources:
            refuse_erased_sources(session, prepared.sources)
        events, tip = self.chain.append(
            session, prepared.events, recorded_at, prepared.expected_pos
        )
        artefacts = [put_artefact(session, item, recorded_at) for item in prepared.artefacts]
        if prepared.records:
            put_records(session, prepared.records)
        if prepared.documents:
            put_documents(session, prepared.documents, self._extras, self.passages)
        searched = [
            (item, event.seq, recorded_at if item.at is None else item.at)
            for item, event in zip(prepared.events, events, strict=True)
            if item.pieces
        ]
        if searched:
            index_events(session, self.passages, searched)
        if prepared.request is not None:
            complete_request(session, prepared.request)
        return Committed(events, artefacts), tip


class _Known(NamedTuple):
    """What an event that is there already says; `body` is None once it was erased."""

    stream: str
    kind: str
    subject: str | None
    v: int
    at: int | None
    body: str | None
    hash: bytes

    @classmethod
    def of(cls, item: PreparedEvent) -> "_Known":
        text = None if item.text is None else item.text.decode()
        own = b"" if item.imported is None else bytes.fromhex(item.imported.hash)
        return cls(item.stream, item.kind, item.subject, item.v, item.at, text, own)

    def says(self, item: PreparedEvent) -> bool:
        """Whether the other is this event: by its hash, or by all that its writer said."""
        other = _Known.of(item)
        if other.hash:
            return self.hash == other.hash
        body = self.body if self.body is not None else other.body
        at = self.at if other.at is not None else None
        return self._replace(body=body, at=at, hash=b"") == other


def _without_known(session: Session, prepared: Prepared) -> Prepared:
    """Leave out events that are there already; those of the same id must be the same."""
    known: dict[str, _Known] = {}
    for marks, part in chunks(prepared.given_ids):
        sql = (
            f"SELECT id, stream, kind, subject, v, at, body, hash FROM events WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        )
        known |= {row[0]: _Known(*row[1:]) for row in session.execute(sql, part)}
    # A file may hold one event twice, as two exports put together do.
    new: dict[str, PreparedEvent] = {}
    for item in prepared.events:
        there = known.get(item.id) or (_Known.of(new[item.id]) if item.id in new else None)
        if there is None:
            new[item.id] = item
        elif not there.says(item):
            raise DuplicateEvent(
                "an event of that id says something else",
                place=f"event {item.id}",
                fix="import it into another log",
            )
    return prepared._replace(
        events=list(new.values()),
        given_ids=[],  # none of those that are left is there
        documents=[doc for doc in prepared.documents if known.keys().isdisjoint(doc.from_events)],
    )


def _refuse_duplicates(session: Session, ids: Sequence[str]) -> None:
    twice = [event_id for event_id, count in Counter(ids).items() if count > 1]
    for marks, part in chunks(ids):
        sql = f"SELECT id FROM events WHERE id IN ({marks})"  # noqa: S608 - question marks; values are bound
        twice += [row[0] for row in session.execute(sql, part)]
    if twice:
        raise DuplicateEvent("it is in the log already", place=f"event {twice[0]}", id=twice[0])
