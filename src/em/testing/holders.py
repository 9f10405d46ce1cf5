"""What a store promises of artefacts, records, documents and requests."""

from datetime import timedelta
from typing import Any

import pytest

from em.errors import ClaimLost, InputError
from em.log.event import EventQuery
from em.store.protocol import (
    ArtefactDraft,
    Commit,
    Document,
    DocumentQuery,
    Record,
    RequestOutcome,
    Store,
)
from em.testing.events import MINUTE, T0, append, note


class HolderConformance:
    """What is compiled from events, and idempotency keys."""

    def test_artefacts_have_versions_and_equal_content_is_one(self, store: Store) -> None:
        """A new version never overwrites an old one."""

        def put(body: dict[str, Any], *sources: str) -> Any:
            draft = ArtefactDraft(kind="routine", name="r", body=body, from_events=sources)
            return store.commit(Commit(artefacts=[draft])).artefacts[0]

        first, again, second, third = (
            put({"a": 1}, "e1"),
            put({"a": 1}, "e2"),
            put({}),
            put({"a": 1}),
        )
        assert [first.version, again.version, second.version, third.version] == [1, 1, 2, 3]
        assert again.from_events == ("e1", "e2")
        assert store.artefact("routine", "r") == third
        assert store.artefact("routine", "r", 2) == second
        assert store.artefact("routine", "none") is None
        assert store.retire(third.id)
        assert not store.retire(third.id)
        assert store.artefact("routine", "r") == second
        assert [a.version for a in store.artefacts("routine")] == [1, 2, 3]
        assert list(store.artefacts("state")) == []

    def test_records_are_replaced_and_removed_by_key(self, store: Store) -> None:
        """Subject, type and id; listed in that order, over many pages."""
        records = [
            Record(subject="ana", type="T", id=f"{n:04}", body={"n": n}) for n in range(1_200)
        ]
        store.commit(Commit(records=[*records, Record(subject="bo", type="T", id="1", body={})]))
        store.commit(
            Commit(
                records=[
                    Record(subject="ana", type="T", id="0001", body={"n": "new"}),
                    Record(subject="ana", type="T", id="0002", body=None),
                    Record(subject="ana", type="U", id="1", body={}),
                ]
            )
        )
        kept = list(store.records("ana", "T"))
        assert len(kept) == 1_199
        assert [record.body for record in kept[:3]] == [{"n": 0}, {"n": "new"}, {"n": 3}]
        assert len(list(store.records("ana"))) == 1_200

    def test_documents_are_found_by_any_word_within_their_scope(self, store: Store) -> None:
        """Stemmed; one subject never sees another's."""
        documents = [
            Document(id="1", kind="note", text="She was running in Lisbon", at=T0, subject="ana"),
            Document(id="2", kind="note", text="He runs a shop", at=T0 + MINUTE, subject="bo"),
            Document(id="3", kind="fact", text="nothing here", at=T0, vector=(0.5, -1.25)),
        ]
        store.commit(Commit(documents=documents))

        def find(text: str, **scope: Any) -> set[str]:
            hits = store.search(DocumentQuery(text=text, **scope))
            return {hit.document.id for hit in hits}

        assert find("run") == {"1", "2"}
        assert find("run", subject="ana") == {"1"}
        assert find("run", since=T0 + MINUTE) == {"2"}
        assert find("run", until=T0 + MINUTE) == {"1"}
        assert find("nothing", kinds=["note"]) == set()
        assert find("run", limit=1) < {"1", "2"}
        assert find("lisbon shop") == {"1", "2"}
        assert store.search(DocumentQuery(text="nothing"))[0].document == documents[2]

    def test_a_word_is_found_however_it_is_surrounded(self, store: Store) -> None:
        """Parts of addresses, paths and versions; with or without accents; and no stop words."""
        text = "write to ana@example.com about invoice-4711 in /etc/hosts, version 1.2.3; café, who"
        store.commit(Commit(documents=[Document(id="1", kind="n", text=text, at=T0)]))
        queries = (
            *("ana@example.com", "ana", "example", "4711", "/etc/hosts", "hosts", "1.2.3"),
            *("cafe", "café", "who", "versions", "CAFÉ"),
        )
        for query in queries:
            assert len(store.search(DocumentQuery(text=query))) == 1, query
        assert store.search(DocumentQuery(text="nowhere")) == []

    @pytest.mark.parametrize("vector", [(), (float("nan"),), (1e300,), ("a",), ([1.0],)])
    def test_a_vector_is_finite_numbers(self, store: Store, vector: Any) -> None:
        """Of the precision that comes back."""
        with pytest.raises(InputError):
            store.commit(
                Commit(documents=[Document(id="1", kind="n", text="t", at=T0, vector=vector)])
            )
        exact = Document(id="1", kind="n", text="t", at=T0, vector=(0.1, 3))
        store.commit(Commit(documents=[exact]))
        (hit,) = store.search(DocumentQuery(text="t"))
        assert hit.document.vector == pytest.approx((0.1, 3), rel=1e-7)

    @pytest.mark.parametrize("query", ["", " ", '"', "AND", "a* OR (", "'; DROP TABLE", "%", "\0"])
    def test_a_query_is_words_never_syntax(self, store: Store, query: str) -> None:
        """No query breaks the search."""
        store.commit(Commit(documents=[Document(id="1", kind="n", text="text", at=T0)]))
        assert store.search(DocumentQuery(text=query)) == []
        assert len(store.search(DocumentQuery(text=f"{query} text"))) == 1

    def test_a_document_is_replaced_and_removed(self, store: Store) -> None:
        """And is not found by what it said before."""
        for text in ("alpha", "beta", None):
            store.commit(Commit(documents=[Document(id="1", kind="n", text=text, at=T0)]))
            for word in ("alpha", "beta"):
                assert len(store.search(DocumentQuery(text=word))) == (word == text)

    # --- requests ------------------------------------------------------------------------------

    def test_a_request_key_is_carried_out_once(self, store: Store) -> None:
        """Claimed, running, done; another request with the key is told so."""

        def claim(fingerprint: str = "f") -> Any:
            return store.claim("key", fingerprint, lease=MINUTE, keep=MINUTE)

        mine = claim()
        assert mine.status == "yours"
        assert claim().status == "running"
        assert claim("other").status == "mismatch"
        outcome = RequestOutcome(key="key", owner=mine.owner, response=b'{"ok":\x00}')
        append(store, note("done"), request=outcome)
        assert claim().status == "done"
        assert claim().response == b'{"ok":\x00}'

    def test_a_claim_can_be_given_back_taken_over_and_expires(self, store: Store) -> None:
        """Who lost a claim writes nothing."""
        now = timedelta(0)
        lost = store.claim("key", "f", lease=now, keep=MINUTE)
        taken = store.claim("key", "f", lease=MINUTE, keep=MINUTE)
        assert taken.status == "yours"
        late = RequestOutcome(key="key", owner=lost.owner, response=b"")
        with pytest.raises(ClaimLost):
            append(store, note("late"), request=late)
        assert list(store.read(EventQuery())) == []
        store.release("key", lost.owner)
        assert store.claim("key", "f", lease=MINUTE, keep=MINUTE).status == "running"
        store.release("key", taken.owner)
        assert store.claim("key", "f", lease=MINUTE, keep=now).status == "yours"
        assert store.claim("key", "other", lease=MINUTE, keep=MINUTE).status == "yours"
