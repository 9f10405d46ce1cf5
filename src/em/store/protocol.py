"""The narrow waist: what a store must do. A new back end does this and passes `em.testing`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol

import msgspec

from em.log.event import Draft, Event, EventQuery, Row
from em.values.canonical import Json


class ArtefactDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A version to store. Content equal to the newest version's is that version.

    from_log: what it quotes are bodies of events as the log has them, which are redacted.
    """

    kind: str
    name: str
    body: Json
    from_events: Sequence[str] = ()
    from_log: bool = False


class Artefact(msgspec.Struct, frozen=True, kw_only=True):
    """One version, as the store holds it. `body` is None once it was erased."""

    id: str
    kind: str
    name: str
    version: int
    body: Json | None
    hash: str
    from_events: tuple[str, ...]
    created_at: datetime
    retired_at: datetime | None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Committing one replaces that of the same subject, type and id; `body=None` removes it.

    from_log: it holds nothing but bodies of events as the log has them, which are redacted.
    """

    subject: str
    type: str
    id: str
    body: Json | None
    from_events: Sequence[str] = ()
    from_log: bool = False


SLOT_BITS = 32
SHAPE_BITS = 8
REACH = 3
"""How far a passage's neighbours count."""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """What was found: a text with its event, when it happened, and how well it fits.

    `score` is comparable within one answer only. `neighbours` are the passages around it, in
    reading order, where they were asked for.
    """

    event_id: str
    text: str
    at: datetime
    recorded_at: datetime
    score: float
    subject: str | None
    stream: str
    kind: str
    speaker: str | None
    role: str | None
    session: str | None
    start: int
    number: int
    neighbours: Sequence["Passage"] = ()


class Within(msgspec.Struct, frozen=True):
    """Where to search, and when it happened.

    subject: one subject; "" for what is about nobody, None for all of it.
    lessons: search the lessons, which are never among what was said.
    """

    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    lessons: bool = False

    def holds(self, at: datetime) -> bool:
        """Whether a moment is within the times."""
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)


class Mark(msgspec.Struct, frozen=True):
    """What ranking needs of a passage besides its words."""

    number: int
    shape: int
    seq: int
    speaker: str | None
    role: str | None
    at: int


def scope_range(scope: int) -> tuple[int, int]:
    """The first and the last number that a scope's passages may have."""
    return scope << SLOT_BITS, ((scope + 1) << SLOT_BITS) - 1


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What became of claiming a key.

    `yours`: carry the request out and commit its `RequestOutcome`. `running`: somebody else is at
    it. `done`: here is its `response`. `mismatch`: the key was used for another request.
    `erased`: it was done, and its response was forgotten since.
    """

    status: Literal["yours", "running", "done", "mismatch", "erased"]
    owner: str = ""
    response: bytes | None = None


class RequestOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The response to keep for a claimed key, committed together with what the request did."""

    key: str
    owner: str
    response: bytes
    from_events: Sequence[str] = ()


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """What is written together, or not at all.

    An `Event` among the events is an import: it keeps its id, position, times and hash, and must
    continue its stream. `expected_pos` says for a stream the position of its last event (0: there
    is none), and makes the commit a compare-and-append. `skip_known` passes over events that are in
    the log already; one of the same id that says something else is refused. `lessons` says for a
    stream which of its events is found among the lessons (None: no longer any).
    """

    events: Sequence[Draft | Event] = ()
    artefacts: Sequence[ArtefactDraft] = ()
    records: Sequence[Record] = ()
    lessons: Mapping[str, str | None] = {}
    request: RequestOutcome | None = None
    expected_pos: Mapping[str, int] = {}
    skip_known: bool = False

    @property
    def is_only_events(self) -> bool:
        """Whether nothing but events is to be written."""
        return not (self.artefacts or self.records or self.lessons or self.request)


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
    passages: int = 0
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

    def count_passages(self, within: Within) -> int:
        """Count the passages in a scope, whenever they happened."""

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

    def without_vector(self, identity: str, within: Within, limit: int) -> tuple[int, list[int]]:
        """Count the passages without a vector of this embedder, and return the newest of them."""

    def put_vectors(self, identity: str, vectors: Mapping[int, Sequence[float]]) -> None:
        """Store vectors of length 1 by the numbers of their passages.

        Those of another embedder go: two are never mixed.
        """

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
