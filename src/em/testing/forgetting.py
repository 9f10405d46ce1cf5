"""What a store promises of forgetting."""

import pytest

from em.errors import (
    NotFound,
    PositionConflict,
)
from em.models.artefact import ArtefactDraft
from em.models.document import Document, DocumentQuery
from em.models.event import Draft, EventQuery
from em.models.record import Record
from em.models.request import RequestOutcome
from em.store.protocol import Commit, Store
from em.store.verify import verify
from em.testing.events import MINUTE, T0, append, note, texts


class ForgettingConformance:
    """Erased, with all that was derived, and still provable."""

    def test_an_erased_body_is_gone_and_the_chain_still_proves_it(self, store: Store) -> None:
        """The row, its hash and the fact of the erasure stay."""
        log = append(store, note("secret plan", subject="ana"), note("other", subject="ana"))
        erasure = store.erase([log[0].id], reason="asked")
        assert erasure.events == [log[0].id]
        assert erasure.scrubbed
        first, second, fact = store.read(EventQuery())
        assert (first.body, first.salt, first.hash) == (None, None, log[0].hash)
        assert second == log[1]
        assert (fact.kind, fact.stream, fact.subject) == ("erased", "notes", "ana")
        assert fact.body == {"events": [log[0].id], "reason": "asked"}
        report = verify(store)
        assert (report.ok, report.erased) == (True, 1)
        assert store.erase([log[0].id]).events == []

    def test_erasing_what_is_not_there_erases_nothing(self, store: Store) -> None:
        """All or none."""
        (event,) = append(store, note("stays"))
        with pytest.raises(NotFound):
            store.erase([event.id, "no such id"])
        assert texts(store.read(EventQuery())) == ["stays"]

    def test_everything_derived_is_erased_too(self, store: Store) -> None:
        """Through any number of steps; what came from elsewhere stays."""
        claim = store.claim("k", "f", lease=MINUTE, keep=MINUTE)
        source, elsewhere = append(store, note("plan"), note("else"))
        (derived,) = append(
            store,
            Draft(
                stream="derived",
                kind="lesson",
                body={"text": "plan!", "from_events": [source.id, elsewhere.id]},
            ),
            artefacts=[
                ArtefactDraft(kind="routine", name="r", body={"v": 1}, from_events=[source.id]),
                ArtefactDraft(kind="routine", name="q", body={}, from_events=[elsewhere.id]),
            ],
            records=[Record(subject="a", type="T", id="1", body={}, from_events=[source.id])],
            request=RequestOutcome(
                key="k", owner=claim.owner, response=b"plan", from_events=[source.id]
            ),
        )
        document = Document(id="d", kind="n", text="plan", at=T0, from_events=[derived.id])
        store.commit(Commit(documents=[document]))
        erasure = store.erase([source.id])
        assert sorted(erasure.events) == sorted([source.id, derived.id])
        counts = (erasure.artefacts, erasure.records, erasure.documents, erasure.responses)
        assert counts == (1, 1, 1, 1)
        artefact = store.artefact("routine", "r", 1)
        assert artefact is not None
        assert (artefact.body, artefact.hash) == (None, "")
        assert store.artefact("routine", "q", 1) is not None
        assert list(store.records("a")) == []
        assert store.search(DocumentQuery(text="plan")) == []
        assert store.claim("k", "f", lease=MINUTE, keep=MINUTE).status == "erased"
        assert texts(store.read(EventQuery(ids=[elsewhere.id]))) == ["else"]
        assert verify(store).ok

    def test_forgetting_a_subject_leaves_the_others(self, store: Store) -> None:
        """Its records and documents go, even those that name no source."""
        mine, other = append(store, note("1", subject="ana"), note("2", subject="bo"))
        store.commit(
            Commit(
                records=[Record(subject=name, type="T", id="1", body={}) for name in ("ana", "bo")],
                documents=[
                    Document(id=name, kind="n", text="word", at=T0, subject=name)
                    for name in ("ana", "bo")
                ],
            )
        )
        store.erase([mine.id], subjects=["ana"])
        assert list(store.records("ana")) == []
        assert len(list(store.records("bo"))) == 1
        assert [hit.document.id for hit in store.search(DocumentQuery(text="word"))] == ["bo"]
        assert texts(store.read(EventQuery(ids=[other.id]))) == ["2"]

    def test_who_compiled_from_what_was_erased_is_fenced_off(self, store: Store) -> None:
        """The fact of the erasure moves the stream on."""
        (event,) = append(store, note("1"))
        pos, _ = store.head("notes")
        store.erase([event.id])
        draft = ArtefactDraft(kind="state", name="x", body={"copied": "1"})
        with pytest.raises(PositionConflict):
            store.commit(Commit(artefacts=[draft], expected_pos={"notes": pos}))
