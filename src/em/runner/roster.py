"""The roster: the stored versions of routines, how each may be used, and what has changed.

The command, HTTP and the pages show what is returned here.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from em.errors import NotFound
from em.runner.acceptance import State, standing_of
from em.runner.package import (
    current_version,
    find_routine,
    kept_routines,
    proof_of,
    routine_of,
    texts_of,
    trials_of,
)
from em.runner.trial import TrialCounts
from em.runner.version_change import changes, file_changes, proof_change
from em.store.protocol import Artefact, Store


class StoredRoutine(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a stored routine. `proof` is null if it was not tried on other traces.

    by_itself: agents use it without asking a person; `why` is the reason for that, as a sentence.
    accepted_by, accepted_at: a person's word for it, if one stands. beside_agent: how a proposed
    one did beside the agent. next: the command that changes how it is used. from_events: how many
    recorded events it was made of. tried: how it did on recordings, in words.
    """

    ref: str
    name: str
    version: int
    created_at: datetime
    state: State
    by_itself: bool
    why: str
    accepted_by: str = ""
    beside_agent: str = ""
    next: str = ""
    accepted_at: datetime | None = None
    from_events: int = 0
    proof: TrialCounts | None = None
    tried: str = ""


class VersionDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What a version has learnt since another one, in words."""

    old: str
    new: str
    changes: list[str]
    proof: str


def versions(store: Store, name: str | None = None) -> Iterator[Artefact]:
    """Yield the stored versions of routines that were not erased; name: only of this one."""
    return (one for one in kept_routines(store, name) if one.body is not None)


def version(store: Store, ref: str) -> Artefact:
    """Find `name@version`; for a name, the version in use, or the newest if none is."""
    return find_routine(store, ref) if "@" in ref else current_version(store, ref)


def tried_in_words(files: Mapping[str, str]) -> str:
    """Say how a routine did on recordings left out, else on its own; empty without a proof."""
    proof = proof_of(files)
    return trials_of(files).summary or next(iter(proof.sentences if proof else ()), "")


def stored_routine(store: Store, artefact: Artefact) -> StoredRoutine:
    """Return how a version may be used and how it did on recordings."""
    files = texts_of(artefact)
    return StoredRoutine(
        ref=artefact.ref,
        name=artefact.name,
        version=artefact.version,
        created_at=artefact.created_at,
        from_events=len(artefact.from_events),
        proof=trials_of(files).counts,
        tried=tried_in_words(files),
        **msgspec.structs.asdict(standing_of(store, artefact)),
    )


def difference(
    store: Store, name: str, old: int | None = None, new: int | None = None
) -> VersionDifference:
    """Return what a version has learnt since another one.

    Without numbers: the newest version, also one that waits for a person, and the one before it.
    """
    known = [*versions(store, name)]
    if not known:
        find_routine(store, name)  # raises
    later = known[-1] if new is None else find_routine(store, f"{name}@{new}")
    if old is None and len(known) < 2:
        raise NotFound(f"{later.ref} has no version before it", place=name)
    earlier = known[-2] if old is None else find_routine(store, f"{name}@{old}")
    before, after = routine_of(earlier), routine_of(later)
    learnt = [*changes(before, after), *file_changes(texts_of(earlier), texts_of(later))]
    proof = proof_change(before.trials, after.trials)
    return VersionDifference(old=before.ref, new=after.ref, changes=learnt, proof=proof)
