"""The narrow waist: what a store must do. A new back end does this and passes `em.testing`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from em.log.event import Draft, Event, EventQuery, Row
from em.store.artefact import Artefact, ArtefactDraft
from em.store.document import Document, DocumentQuery, Hit
from em.store.passage import Mark, Passage, Within
from em.store.record import Record
from em.store.request import Claim, RequestOutcome
from em.values.canonical import Json


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """What is written together, or not at all.

    An `Event` among the events is an import: it keeps its id, position, times and hash, and must
    continue its stream. `expected_pos` says for a stream the position of its last event (0: there
    is none), and makes the commit a compare-and-append. `skip_known` passes over events that are in
    the log already, with their documents; one of the same id that says something else is refused.
    """

    events: Sequence[Draft | Event] = ()
    artefacts: Sequence[ArtefactDraft] = ()
    records: Sequence[Record] = ()
    documents: Sequence[Document] = ()
    request: RequestOutcome | None = None
    expected_pos: Mapping[str, int] = {}
    skip_known: bool = False

    @property
    def is_only_events(self) -> bool:
        """Whether nothing but events is to be written."""
        return not (self.artefacts or self.records or self.documents or self.request)


class Committed(msgspec.Struct, frozen=True):
    """What a commit became."""

    events: Sequence[Event]
    artefacts: Sequence[Artefact]


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What forgetting took away.

    `scrubbed`: nothing of it is left in the store's files either; else `scrub_problem` says why.
    """

    events: Sequence[str] = ()
    artefacts: int = 0
    records: int = 0
    documents: int = 0
    responses: int = 0
    scrubbed: bool = True
    scrub_problem: str = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is doing. `problems` is empty when all is well."""

    backend: str
    location: str
    version: str
    schema: int
    events: int
    size_bytes: int
    scrub_pending: bool
    settings: Mapping[str, str]
    problems: Sequence[str]


class Store(Protocol):
    """Where the log and everything compiled from it live. Safe to share between threads."""

    @property
    def location(self) -> str:
        """Where it is, as it may be shown."""

    def commit(self, commit: Commit) -> Committed:
        """Write all of it in one transaction."""

    def commit_all(self, commits: Iterable[Commit]) -> int:
        """Write many commits in one transaction, one in memory at a time; how many events.

        The iterable must not use the store: it is asked while the write lock is held.
        """

    def commit_together(self, commits: Sequence[Commit]) -> list[Committed]:
        """Write several commits in one transaction, made ready before the lock is taken."""

    def streams(self, prefix: str) -> Iterator[str]:
        """The names of streams that begin so, in their order."""

    def redacted(self, body: Json) -> Json:
        """A body without its secrets, as it would be kept."""

    def check(self, commit: Commit) -> None:
        """Raise what `commit` would say of the content, without writing."""

    def read(self, query: EventQuery) -> Iterator[Event]:
        """Stream events, oldest first, up to the newest there was when reading began."""

    def rows(self, query: EventQuery) -> Iterator[Row]:
        """The same, undecoded."""

    def head(self, stream: str) -> tuple[int, str]:
        """Position and hash of a stream's last event; `(0, "")` where there is none."""

    def artefact(self, kind: str, name: str, version: int | None = None) -> Artefact | None:
        """One version of an artefact; without a number the newest that is not retired."""

    def artefacts(self, kind: str | None = None, name: str | None = None) -> Iterator[Artefact]:
        """Every version, by kind, name and number."""

    def retire(self, artefact_id: str) -> bool:
        """Take a version out of use; it stays readable by its number."""

    def records(
        self,
        subject: str,
        type: str | None = None,  # noqa: A002 - the noun's own field
        ids: Sequence[str] = (),
    ) -> Iterator[Record]:
        """A subject's records, by type and id; only those of the given ids, if any are given."""

    def search(self, query: DocumentQuery) -> list[Hit]:
        """Documents that share a word with the query, best first."""

    def count_passages(self, subject: str | None) -> int:
        """How many passages of events can be found; of one subject, or of all."""

    def find_words(
        self, groups: Sequence[Sequence[str]], within: Within, limit: int
    ) -> list[list[int]]:
        """For each group of words the postings of passages that have one of them, newest first.

        At most `limit` of each.
        """

    def count_words(self, group: Sequence[str], within: Within) -> int:
        """How many passages have one of the words."""

    def find_together(
        self, group: Sequence[str], others: Sequence[str], within: Within, limit: int
    ) -> list[int]:
        """Postings of passages that have one of the words and one of the others."""

    def marks(self, numbers: Sequence[int]) -> list[Mark]:
        """What ranking needs of passages; numbers that nothing has are passed over."""

    def passages(self, numbers: Sequence[int]) -> list[Passage]:
        """Passages with their texts, in no order."""

    def embedder(self) -> str | None:
        """The identity of the embedder that made the vectors, if there are any."""

    def without_vector(
        self, identity: str, subject: str | None, limit: int
    ) -> tuple[int, list[int]]:
        """How many passages have no vector of this embedder, and the newest of them."""

    def put_vectors(self, identity: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Keep vectors of length 1, of passages and of documents, by their numbers.

        Those of another embedder go: two are never mixed.
        """

    def documents_without_vector(
        self, identity: str, query: DocumentQuery, after: tuple[int, str] | None = None
    ) -> tuple[tuple[int, str] | None, dict[int, str]]:
        """Numbers and texts of documents that have no vector of this embedder, newest first.

        Before them the number and id of the newest document there is: as long as that one is there,
        who had them all may ask only for those `after` it. The query's text does not count.
        """

    def near_documents(
        self, identity: str, vector: Sequence[float], query: DocumentQuery
    ) -> list[Hit]:
        """The documents nearest to a vector of this embedder; the query's text does not count."""

    def nearest(
        self, identity: str, vector: Sequence[float], within: Within, limit: int
    ) -> list[tuple[int, float]]:
        """Numbers and similarities of the passages nearest to a vector of this embedder."""

    def similarities(
        self, identity: str, vector: Sequence[float], numbers: Sequence[int]
    ) -> dict[int, float]:
        """How near passages are to a vector; those without one are passed over."""

    def claim(self, key: str, fingerprint: str, *, lease: timedelta, keep: timedelta) -> Claim:
        """Claim a request key; a claim not completed within `lease` may be taken over."""

    def release(self, key: str, owner: str) -> None:
        """Give a claim back without an outcome, so that the request may be tried again."""

    def erase(
        self, event_ids: Sequence[str], *, subjects: Sequence[str] = (), reason: str = ""
    ) -> Erasure:
        """Erase bodies, and all that was derived from them; `subjects` also lose their records."""

    def scrub(self) -> None:
        """Remove what erased bodies left in the files; StoreBusy if a reader is in the way."""

    def health(self, *, deep: bool = False) -> Health:
        """How the store is doing; `deep` reads every page."""

    def close(self) -> None:
        """Let go of files and connections."""
