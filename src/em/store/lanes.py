"""Lanes: how commits run side by side on PostgreSQL, and how far a reader may follow them.

A commit locks what it changes: its streams, the subjects whose records or passages it writes, the
names of its artefacts, its request key. It takes these advisory locks in their order, so commits
can't deadlock, and two wait for each other only if they share one. Each commit also shares the lock
`WHOLE`; what can't say beforehand what it changes (forgetting, an import, a migration) holds that
lock alone.

Commits take `seq` from a sequence, so one with a smaller number may become visible after one with a
greater number. Once it has its locks, a commit therefore marks the next number of the sequence, by
a shared lock that has this number as its key (`em_enter`): all that it draws is that number or a
greater one. A lock ends when the commit is visible, or has failed. So a reader first looks up the
newest visible number, then the marks: nothing below the smallest mark can still appear. With
`pg_snapshot_xmin` a long transaction of any other program on the server would hold readers up.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

from em.errors import StoreReadOnly
from em.log.event import EventQuery
from em.store.preparation import PreparedCommit
from em.store.session import SqlSession

WHOLE = int.from_bytes(b"em-write")
FOLDING = int.from_bytes(b"em-chain")
MOST_KEYS = 160
"""Locks of one commit; a server has room for some thousands. A commit with more runs alone."""
MOST_EVENTS = 1_000
"""Events of one commit. A larger one runs alone: readers would wait for it."""


def request_name(key: str) -> str:
    """Name the lock of a request key."""
    return f"request {key}"


def keys_of(commits: Sequence[PreparedCommit]) -> list[int] | None:
    """Return the locks of commits that are written together, in their order.

    None if they must run alone: they are too many, or change what is not known beforehand.
    """
    names: set[str] = set()
    events = 0
    for commit in commits:
        events += len(commit.events)
        if commit.retire or commit.restore or events > MOST_EVENTS:
            return None
        if any(event.kind == "erased" for event in commit.events):
            return None
        names.update(_names(commit))
        if len(names) > MOST_KEYS:
            return None
    return lock_keys(names)


def lock_keys(names: Iterable[str]) -> list[int]:
    """Return the locks with these names, in their order."""
    return sorted({lock_key(name) for name in names})


def lock_key(name: str) -> int:
    """Return the key of a lock. Two names with one key only wait for each other."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)


def stream_name(stream: str) -> str:
    """Name the lock of a stream."""
    return f"stream {stream}"


def _names(commit: PreparedCommit) -> Iterator[str]:
    for event in commit.events:
        yield stream_name(event.stream)
        if event.pieces:
            yield f"subject {event.subject or ''}"
    yield from map(stream_name, commit.expected_pos)
    for event_id in commit.given_ids:
        yield f"id {event_id}"
    for record, _ in commit.records:
        yield f"subject {record.subject}"
    for artefact in commit.artefacts:
        yield f"artefact {artefact.draft.kind} {artefact.draft.name}"
    for artefact_id, _ in commit.cards:
        yield f"card {artefact_id}"
    if commit.lessons:
        yield "lessons"
    if commit.request is not None:
        yield request_name(commit.request.key)


def enter(session: SqlSession, keys: Sequence[int]) -> None:
    """Take the locks of a commit, and mark which numbers it may draw."""
    session.execute("SELECT em_enter(?, ?)", (WHOLE, list(keys)))


def enter_quietly(session: SqlSession) -> None:
    """Begin what changes no events, beside commits."""
    session.execute("SELECT pg_advisory_xact_lock_shared(?)", (WHOLE,))


def enter_alone(session: SqlSession) -> None:
    """Wait for all commits, and hold up new ones. What is drawn now is greater than all before."""
    session.execute("SELECT pg_advisory_xact_lock(?)", (WHOLE,))


def crosses_streams(query: EventQuery) -> bool:
    """Return whether a reader may take the last number of a query to know all up to there."""
    return query.stream is None and not query.ids and not query.by_stream


NEWEST = "SELECT COALESCE(MAX(seq), 0), pg_is_in_recovery() FROM events"
"""The newest visible number, and whether this is a replica, which knows no marks."""
MARKS = (
    "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2"
    " AND classid = 'events'::regclass AND database ="
    " (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def refuse_replica(query: EventQuery, place: str) -> None:
    """Raise StoreReadOnly for who follows the log by `seq`: late commits would be skipped."""
    if query.after:
        raise StoreReadOnly(
            "a replica does not know which commits are still under way, so the log can't be"
            " followed there",
            place=place,
            fix="connect to the primary; on a replica, read streams, or without `after`",
        )


def settled(newest: int, marks: Iterable[int]) -> int:
    """Return the number up to which everything is visible, or will never be.

    newest: the newest visible number. marks: looked up after it; their lowest 32 bits.
    """
    return min((newest, *(_near(newest, mark) - 1 for mark in marks)))


def _near(number: int, low: int) -> int:
    """Return the number nearest to another that has these lowest 32 bits."""
    return number + (low - number + 2**31) % 2**32 - 2**31
