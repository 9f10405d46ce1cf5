"""Retention: erase what old finished workflow runs left, unless something refers to it.

The events stay, with their hashes and the fact of the erasure; their bodies are gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from em.errors import UsageError
from em.log.event import WORKFLOW_CLEAN_UP, Draft, EventQuery
from em.runner.history import PastRun, read_run, run_id_of, sources_of_steps, started_runs
from em.settings import Settings, WorkflowMemorySettings
from em.store import Commit, open_store
from em.store.protocol import Store

CLEANED = "workflow_cleaned"
EVERY = timedelta(hours=1)
"""The shortest time between two automatic clean-ups."""


class Cleaned(msgspec.Struct, frozen=True, kw_only=True):
    """What was erased, and in `left` the old runs that were not, with the reason."""

    runs: Sequence[str] = ()
    events: int = 0
    bytes: int = 0
    left: dict[str, str] = {}
    scrubbed: bool = True


class MemoryStore:
    """What workflows left, as the original's `MemoryStore`: one class to look after it.

    db: a path or an address; where it is not given, that of the settings.
    """

    def __init__(self, db: str | Path | Store | None = None) -> None:
        self._owns = db is None or isinstance(db, str | Path)
        self._store: Store = (
            open_store(db, Settings.load()) if db is None or isinstance(db, str | Path) else db
        )

    def __enter__(self) -> "MemoryStore":
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._owns:
            self._store.close()

    def cleanup_old_entries(self, days_old: float = 30) -> int:
        """Erase what finished runs of this age left; return the number of entries."""
        return clean(self._store, older_than=timedelta(days=days_old)).events


def clean(
    store: Store,
    *,
    older_than: timedelta | None = None,
    max_bytes: float | None = None,
    reason: str = "clean-up of workflow memory",
    dry_run: bool = False,
) -> Cleaned:
    """Erase old runs; and the oldest runs while there is more than `max_bytes`."""
    if older_than is not None and older_than < timedelta(0):
        raise UsageError("an age is not negative", place="days_old")
    runs = list(_runs(store))
    chosen: dict[str, PastRun] = {}
    if older_than is not None:
        before = datetime.now(UTC) - older_than
        chosen |= {run.run_id: run for run in runs if run.began <= before}
    if max_bytes is not None:
        total = sum(_bytes(run) for run in runs)
        for run in runs:
            if total <= max_bytes:
                break
            total -= _bytes(run)
            chosen[run.run_id] = run
    left = _left(store, list(chosen.values()))
    gone = [run for run in chosen.values() if run.run_id not in left]
    cleaned = Cleaned(
        runs=[run.run_id for run in gone],
        events=sum(len(run.events) for run in gone),
        bytes=sum(_bytes(run) for run in gone),
        left=left,
    )
    if dry_run or not gone:
        return cleaned
    erasure = store.erase([event.id for run in gone for event in run.events], reason=reason)
    _note(store, cleaned, reason)
    return msgspec.structs.replace(cleaned, scrubbed=erasure.scrubbed)


def clean_if_due(store: Store, limits: WorkflowMemorySettings) -> Cleaned | None:
    """Clean up by the limits of em.yaml, at most once an hour."""
    query = EventQuery(stream=WORKFLOW_CLEAN_UP, kinds=[CLEANED], limit=1, newest=True)
    for event in store.read(query):
        if datetime.now(UTC) - event.at < EVERY:
            return None
    cleaned = clean(
        store,
        older_than=None if limits.keep_days is None else timedelta(days=limits.keep_days),
        max_bytes=None if limits.max_mb is None else limits.max_mb * 1e6,
        reason="em.yaml, workflow_memory",
    )
    if not cleaned.runs:
        _note(store, cleaned, "em.yaml, workflow_memory")
    return cleaned


def _note(store: Store, cleaned: Cleaned, reason: str) -> None:
    body = {
        "runs": list(cleaned.runs),
        "events": cleaned.events,
        "bytes": cleaned.bytes,
        "reason": reason,
    }
    store.commit(Commit(events=[Draft(stream=WORKFLOW_CLEAN_UP, kind=CLEANED, body=body)]))


def _runs(store: Store) -> Iterator[PastRun]:
    """Yield every run that is not erased, oldest first."""
    for started in reversed(started_runs(store, "workflow")):
        yield read_run(store, run_id_of(started), "workflow")


def _bytes(run: PastRun) -> int:
    return sum(len(msgspec.json.encode(event.body)) for event in run.events)


def _left(store: Store, runs: Sequence[PastRun]) -> dict[str, str]:
    """Return the runs that can't be erased, with the reason."""
    left = {run.run_id: "it is not over" for run in runs if not run.is_over}
    owners = {event.id: run.run_id for run in runs for event in run.events}
    uses = list(_uses(store, owners))
    more = True
    while more:
        # Who stays for one run's sake may be what another is needed for.
        more = False
        for owner, user, told in uses:
            if owner not in left and (user in left or user not in owners.values()):
                left[owner] = f"{told} refers to it"
                more = True
    return left


def _uses(store: Store, owners: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield each use of a run by something else: the run, the user's run, and its name."""
    for artefact in store.artefacts():
        for event_id in artefact.from_events:
            if event_id in owners:
                yield owners[event_id], "", f"{artefact.kind} {artefact.name}@{artefact.version}"
    for user, event_id in sources_of_steps(store):
        if event_id in owners and owners[event_id] != user:
            yield owners[event_id], user, f"run {user}"
