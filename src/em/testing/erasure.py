"""What a store promises of forgetting."""

from datetime import timedelta

import pytest

from em.errors import (
    Conflict,
    NotFound,
    PositionConflict,
)
from em.log.event import Draft, EventQuery
from em.log.verify import verify
from em.store.protocol import (
    ArtefactDraft,
    Commit,
    Document,
    DocumentQuery,
    Record,
    RequestOutcome,
    Store,
)
from em.store.sqlite import SqliteStore
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
        report = verify(store.rows)
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
        assert verify(store.rows).ok

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

    def test_what_replaced_a_derived_thing_is_not_erased_with_the_old_source(
        self, store: Store
    ) -> None:
        """The index follows the holder."""
        old, new = append(store, note("1"), note("2"))
        for source in (old, new):
            store.commit(
                Commit(
                    records=[
                        Record(subject="a", type="T", id="1", body={}, from_events=[source.id])
                    ],
                    documents=[
                        Document(id="d", kind="n", text="word", at=T0, from_events=[source.id])
                    ],
                )
            )
        erasure = store.erase([old.id])
        assert (erasure.records, erasure.documents) == (0, 0)
        assert len(list(store.records("a"))) == 1
        assert len(store.search(DocumentQuery(text="word"))) == 1
        assert store.erase([new.id]).records == 1

    def test_a_key_used_again_is_not_erased_with_what_it_was_used_for_before(
        self, store: Store
    ) -> None:
        """An expired request takes its derivations along."""
        (event,) = append(store, note("1"))
        first = store.claim("k", "f", lease=MINUTE, keep=timedelta(0))
        store.commit(
            Commit(
                request=RequestOutcome(
                    key="k", owner=first.owner, response=b"", from_events=[event.id]
                )
            )
        )
        assert store.claim("k", "g", lease=MINUTE, keep=MINUTE).status == "yours"
        assert store.erase([event.id]).responses == 0
        assert store.claim("k", "g", lease=MINUTE, keep=MINUTE).status == "running"

    def test_nothing_can_be_derived_from_what_was_erased(self, store: Store) -> None:
        """Whoever had read it before."""
        (event,) = append(store, note("1"))
        store.erase([event.id])
        derived = {"text": "copied", "from_events": [event.id]}
        record = Record(subject="a", type="T", id="1", body={}, from_events=[event.id])
        for commit in (
            Commit(artefacts=[ArtefactDraft(kind="k", name="n", body={}, from_events=[event.id])]),
            Commit(records=[record]),
            Commit(events=[Draft(stream="s", kind="lesson", body=derived)]),
        ):
            with pytest.raises(Conflict, match="erased since"):
                store.commit(commit)

    def test_an_erasure_travels_with_an_export(self, store: Store) -> None:
        """A copy that still has the body erases it when the fact arrives."""
        first = append(store, note("plan", subject="ana"))
        store.erase([first[0].id])
        exported = list(store.read(EventQuery()))
        with SqliteStore(":memory:") as copy:
            copy.commit_all([Commit(events=first)])
            assert texts(copy.read(EventQuery())) == ["plan"]
            copy.commit_all([Commit(events=exported, skip_known=True)])
            assert next(copy.read(EventQuery())).erased
            report = verify(copy.rows)
            assert (report.ok, report.erased) == (True, 1)
        with SqliteStore(":memory:") as copy:
            copy.commit(Commit(events=first))
            copy.commit(Commit(events=exported[1:]))
            assert next(copy.read(EventQuery())).erased

    def test_forgetting_a_subject_selects_within_its_transaction(self, store: Store) -> None:
        """Nobody has to list the events first, and those erased before are followed again."""
        append(store, note("1", subject="ana"), note("2", subject="bo"))
        assert len(store.erase([], subjects=["ana"]).events) == 1
        assert store.erase([], subjects=["ana"]).events == []
        assert verify(store.rows).erased == 1

    def test_who_compiled_from_what_was_erased_is_fenced_off(self, store: Store) -> None:
        """The fact of the erasure moves the stream on."""
        (event,) = append(store, note("1"))
        pos, _ = store.head("notes")
        store.erase([event.id])
        draft = ArtefactDraft(kind="state", name="x", body={"copied": "1"})
        with pytest.raises(PositionConflict):
            store.commit(Commit(artefacts=[draft], expected_pos={"notes": pos}))
