"""Retirement: a version of a routine is taken out of use, and put in use again.

The name of a routine means its newest version in use. A retired version can still be read, and it
is neither run by that name nor offered to agents. The log says who retired and who restored it.
"""

import msgspec

from em.errors import RoutineError
from em.log.event import Draft, routine_stream
from em.log.kinds import event_body
from em.runner.card import KIND, retired_refs
from em.runner.package import find_routine, routine_of
from em.store.protocol import Artefact, Commit, Store


@event_body("routine_retired")
class RoutineRetired(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A version of a routine was taken out of use."""

    routine: str
    by: str = ""


@event_body("routine_restored")
class RoutineRestored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A retired version of a routine was put in use again."""

    routine: str
    by: str = ""


class NeverInUse(RoutineError):
    """A version that was stored out of use can't be restored: it is accepted."""

    code = "never_in_use"


class InUse(msgspec.Struct, frozen=True, kw_only=True):
    """What came of retiring or restoring a version.

    now: the version that the name means from now on; empty if none is in use.
    """

    routine: str
    changed: bool
    now: str = ""


def retire(store: Store, ref: str, *, by: str = "") -> InUse:
    """Take a version out of use: its name then means the version before. It can still be read."""
    artefact = find_routine(store, ref)
    name = artefact.ref
    changed = artefact.retired_at is None
    if changed:
        note = _note("routine_retired", artefact, RoutineRetired(routine=name, by=by))
        store.commit(Commit(events=[note], retire=[artefact.id]))
    return InUse(routine=name, changed=changed, now=meaning_of(store, artefact.name))


def restore(store: Store, ref: str, *, by: str = "") -> InUse:
    """Put a retired version in use again. One that never was in use raises NeverInUse."""
    artefact = find_routine(store, ref)
    name = artefact.ref
    changed = artefact.retired_at is not None
    if changed and not was_in_use(store, artefact):
        raise NeverInUse(
            "this version never was in use",
            place=name,
            fix=f"read it, then: em routine accept {name}",
        )
    if changed:
        routine_of(artefact)  # raises for a form that is not run any more
        body = RoutineRestored(routine=name, by=by)
        note = _note("routine_restored", artefact, body)
        store.commit(Commit(events=[note], restore=[artefact.id]))
    return InUse(routine=name, changed=changed, now=meaning_of(store, artefact.name))


def was_in_use(store: Store, artefact: Artefact) -> bool:
    """Return whether a retired version was in use before, as the log says."""
    return artefact.ref in retired_refs(store, routine_stream(artefact.name))


def _note(kind: str, artefact: Artefact, body: RoutineRetired | RoutineRestored) -> Draft:
    stream = routine_stream(artefact.name)
    return Draft(stream=stream, kind=kind, body=msgspec.to_builtins(body))


def meaning_of(store: Store, name: str) -> str:
    """Return the version that a name means; empty if none is in use."""
    artefact = store.artefact(KIND, name)
    return "" if artefact is None else artefact.ref
