"""The protocol of a store, with the values it takes and returns.

A new back end adds to `em.store.sql.SqlStore` its connections and the statements that differ, and
passes `em.testing.StoreConformance`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec

from em.log.chain import Entry, Holding
from em.log.event import Draft, Event, EventQuery, Row
from em.redaction.redactor import Redactor
from em.text.tags import FIELDS, field_tags
from em.trust import Database
from em.values.canonical import Json

if TYPE_CHECKING:
    from em.store.search_index import SearchIndex
    from em.store.sql import Tickets
    from em.store.summaries import Summaries


class ArtefactDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A version of an artefact to store. Content equal to the newest version's makes no new one.

    from_log: the body quotes events as they are in the log, so it is redacted already.
    retired: store it out of use. `Commit.restore` puts it in use.
    """

    kind: str
    name: str
    body: Json
    from_events: Sequence[str] = ()
    from_log: bool = False
    retired: bool = False


class Artefact(msgspec.Struct, frozen=True, kw_only=True):
    """A version of an artefact. `body` is None once it was erased."""

    id: str
    kind: str
    name: str
    version: int
    body: Json | None
    hash: str
    from_events: tuple[str, ...]
    created_at: datetime
    retired_at: datetime | None

    @property
    def ref(self) -> str:
        """The name with the number of the version."""
        return f"{self.name}@{self.version}"


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """An artefact as a list shows it, without its body.

    body: what was made of the artefact for lists, as `Commit.cards` stored it; None if nothing was.
    """

    id: str
    name: str
    version: int
    created_at: datetime
    retired_at: datetime | None
    body: Json | None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A typed record of a subject. A commit replaces the record of the same subject, type and id.

    body: None deletes the record.
    from_log: the body quotes events as they are in the log, so it is redacted already.
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
"""How many neighbours on each side count when a passage is ranked."""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an event's text, with its event and how well it fits a question.

    score: comparable within one answer only.
    neighbours: the passages around it in reading order, if they were asked for.
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
    agent: str | None = None
    run: str | None = None
    metadata: Mapping[str, Any] = {}
    start: int
    number: int
    neighbours: Sequence["Passage"] = ()


class Within(msgspec.Struct, frozen=True):
    """The scope of a search.

    subject: one subject; "" for passages without a subject, None for all.
    since, until: when the event happened.
    lessons: search lessons instead of what was said. The two are never mixed.
    role, speaker: who said it, in any case of letters.
    session, agent, run: where it was said. The run of a trace's messages is the trace.
    metadata: fields of the caller's own; all must match, compared as text.
    """

    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    lessons: bool = False
    role: str | None = None
    speaker: str | None = None
    session: str | None = None
    agent: str | None = None
    run: str | None = None
    metadata: Mapping[str, Any] = {}

    def holds(self, at: datetime) -> bool:
        """Return whether a time is in the scope."""
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)

    @property
    def tags(self) -> list[str]:
        """The terms that a passage must all have."""
        given = {name: value for name in FIELDS if (value := getattr(self, name)) is not None}
        if not given and not self.metadata:
            return []
        return list(field_tags({**given, "metadata": self.metadata}))

    @property
    def is_voiced(self) -> bool:
        """Whether only some of those who speak in a conversation count."""
        return self.role is not None or self.speaker is not None

    @property
    def is_bounded(self) -> bool:
        """Whether times, roles or speakers bound it."""
        return self.is_voiced or self.since is not None or self.until is not None

    def of_all_voices(self) -> "Within":
        """Return the scope with what everybody said."""
        return (
            self if not self.is_voiced else msgspec.structs.replace(self, role=None, speaker=None)
        )

    def admits(self, passage: Passage) -> bool:
        """Return whether a passage of the subject is in the scope."""
        if not (wanted := self.tags):
            return self.holds(passage.at)
        given = {name: getattr(passage, name) for name in FIELDS}
        has = set(field_tags({**given, "metadata": passage.metadata}))
        return self.holds(passage.at) and has.issuperset(wanted)


class PassageMark(msgspec.Struct, frozen=True):
    """A passage without its text: what ranking needs besides the words."""

    number: int
    shape: int
    seq: int
    speaker: str | None
    role: str | None
    at: int


def scope_range(scope: int) -> tuple[int, int]:
    """Return the first and the last number that the passages of a scope may have."""
    return scope << SLOT_BITS, ((scope + 1) << SLOT_BITS) - 1


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to claiming a request key.

    status: `yours`: carry out the request and commit its `RequestOutcome`. `running`: another
    process is carrying it out. `done`: `response` is its response. `mismatch`: the key was used for
    another request. `erased`: it was done, and its response was erased since.
    """

    status: Literal["yours", "running", "done", "mismatch", "erased"]
    owner: str = ""
    response: bytes | None = None


class RequestOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The response to store for a claimed key, committed together with what the request did."""

    key: str
    owner: str
    response: bytes
    from_events: Sequence[str] = ()


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A set of changes that is written in one transaction or not at all.

    events: an `Event` is an import. It keeps its id, position, times and hash, and must continue
        its stream.
    lessons: for a stream, the id of the event that is indexed as its lesson; None removes it.
    retire: ids of artefacts to take out of use. They stay readable by their version.
    restore: ids of retired artefacts to put in use again.
    cards: by the ids of artefacts, what lists show of them. It can be made again from the bodies,
        and goes when the body is erased; erased and unknown artefacts get none.
    expected_pos: for a stream, the position of its last event (0: none). Makes the commit a
        compare-and-append: it raises PositionConflict if the stream has moved.
    skip_known: skip events that are in the log. One with the same id and other content is refused.
    is_decoded: the events' bodies consist of what was decoded from JSON, as an import's do. They
        are not decoded again to see what JSON makes of them.
    only_rows: the caller does not look at the events; a store may return none.
    """

    events: Sequence[Draft | Event] = ()
    artefacts: Sequence[ArtefactDraft] = ()
    records: Sequence[Record] = ()
    lessons: Mapping[str, str | None] = {}
    retire: Sequence[str] = ()
    restore: Sequence[str] = ()
    cards: Mapping[str, Json] = {}
    request: RequestOutcome | None = None
    expected_pos: Mapping[str, int] = {}
    skip_known: bool = False
    is_decoded: bool = False
    only_rows: bool = False

    @property
    def is_only_events(self) -> bool:
        """Whether the commit has events and nothing else."""
        return not (
            self.artefacts or self.records or self.lessons or self.retire or self.restore
            or self.cards or self.request
        )  # fmt: skip


class Committed(msgspec.Struct, frozen=True):
    """The result of a commit. `retired`: ids of the artefacts that it took out of use."""

    events: Sequence[Event]
    artefacts: Sequence[Artefact]
    retired: Sequence[str] = ()


class Held(NamedTuple):
    """A use of an event: `holder` is the id of an event, or the kind and name of an artefact."""

    source: str
    noun: str
    holder: str


class Erasure(msgspec.Struct, frozen=True, kw_only=True):
    """What was erased, or in a dry run what would be.

    gone: the ids of all of it: by noun (events, artefacts, records, passages, responses), then by
        kind. Artefacts are listed as `name@version`, records as `subject/id`.
    scrubbed: whether it is also gone from the store's files; if not, `scrub_problem` tells why.
    """

    events: Sequence[str] = ()
    artefacts: int = 0
    records: int = 0
    passages: int = 0
    responses: int = 0
    gone: Mapping[str, Mapping[str, Sequence[str]]] = {}
    is_dry_run: bool = False
    scrubbed: bool = True
    scrub_problem: str = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The condition of a store. `problems` is empty when all is well."""

    backend: str
    location: str
    version: str
    schema: int
    events: int
    size_bytes: int
    scrub_pending: bool
    settings: Mapping[str, str]
    problems: Sequence[str]


class IndexStatus(msgspec.Struct, frozen=True):
    """The state of a scope of the search index.

    passages: how many there are.
    stamp: changes when a passage is removed, or a vector added or removed.
    embedder: the identity of the embedder that made the vectors, if there are any.
    """

    passages: int
    stamp: int
    embedder: str | None


class Store(Protocol):
    """The log and everything compiled from it. Safe to share between threads."""

    @property
    def location(self) -> str:
        """The path or address, as it may be shown: without a password."""

    @property
    def database(self) -> Database:
        """What it is known by in the user's list of trusted databases."""

    @property
    def times_lost(self) -> int:
        """How often another database was found in the place of the one that was open, or none."""

    @property
    def redactor(self) -> Redactor:
        """Removes secrets from everything that is committed."""

    @property
    def index(self) -> "SearchIndex":
        """The search index over what was said and over lessons."""

    @property
    def summaries(self) -> "Summaries":
        """Runs, traces, jobs and lessons in short, for lists."""

    @property
    def tickets(self) -> "Tickets":
        """What the processes of a service must agree on: logins, counts, a key."""

    def commit(self, commit: Commit) -> Committed:
        """Write a commit in one transaction."""

    def commit_all(self, commits: Iterable[Commit]) -> int:
        """Write many commits in one transaction, and return how many events they had.

        A list is checked and encoded before the write lock is taken. Any other iterable is taken
        one at a time under the lock, so that memory stays bounded: it must not use the store.
        """

    def read(self, query: EventQuery) -> Iterator[Event]:
        """Stream events, oldest first, up to the newest there was when reading began."""

    def rows(self, query: EventQuery) -> Iterator[Row]:
        """Stream events as `read` does, undecoded."""

    def register(self, after: int = 0) -> Iterator[Entry | Holding]:
        """Stream the entries of the register, then artefacts and records, as of one moment.

        Every commit appends its entries: see `em.log.chain`. after: only entries behind this one.
        """

    def head(self, stream: str) -> tuple[int, str]:
        """Return position and hash of a stream's last event; `(0, "")` where there is none."""

    def streams(self, prefix: str) -> Iterator[str]:
        """Return the names of the streams that begin with a prefix, in their order."""

    def artefact(self, kind: str, name: str, version: int | None = None) -> Artefact | None:
        """Return one version of an artefact; without a number the newest that is not retired."""

    def artefacts(self, kind: str | None = None, name: str | None = None) -> Iterator[Artefact]:
        """Return every version, by kind, name and number."""

    def cards(self, kind: str, *, retired: bool = False) -> Iterator[Card]:
        """Return every version that is in use and not erased, by name and number, in small rows.

        retired: also those out of use.
        """

    def changed_artefacts(self, since: int | None = None) -> tuple[int, bool]:
        """Return how far the register goes, and whether artefacts may have changed since then.

        since: the number that was returned before; None is the first time, when all is new. It is
        for who keeps what was made of artefacts: the answer does not take longer with more of them.
        """

    def records(
        self,
        subject: str,
        type: str | None = None,  # noqa: A002 - the noun's own field
        ids: Sequence[str] = (),
    ) -> Iterator[Record]:
        """Return a subject's records, by type and id; of the given ids only, if any are given."""

    def holders(self, event_ids: Sequence[str]) -> list[Held]:
        """Return the events and artefacts that state that they were made of these events."""

    def claim(self, key: str, fingerprint: str, *, lease: timedelta, keep: timedelta) -> Claim:
        """Claim a request key. A claim not completed within `lease` may be taken over."""

    def release(self, key: str, owner: str) -> None:
        """Give up a claim without an outcome, so that the request may be tried again."""

    def erase(
        self,
        event_ids: Sequence[str],
        *,
        subjects: Sequence[str] = (),
        reason: str = "",
        dry_run: bool = False,
    ) -> Erasure:
        """Erase bodies and everything made of them; `subjects` also lose their records.

        Their remains in the files are removed too. If that can't be done now, it is done with the
        next erasure, which may be one of nothing.

        dry_run: change nothing, and return what would be erased.
        """

    def health(self, *, deep: bool = False) -> Health:
        """Report the condition of the store; `deep` reads every page."""

    def close(self) -> None:
        """Close files and connections."""
