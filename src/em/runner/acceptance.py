"""Acceptance: whether a routine is used by itself, and a person's word for it.

A version of a routine is proposed (stored, and never in use), in use, or retired. One in use does
what it does when somebody runs it. It is used by itself, without asking a person each time, if a
person accepted it, or if its proof and the outcomes of its recordings are enough. The word of a
person is about one version; it stays in the log until it is taken back or the version is retired.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from em.errors import RoutineError, UsageError
from em.log.event import Draft, EventQuery, routine_stream, shadow_stream, trace_stream
from em.log.kinds import event_body
from em.runner.package import (
    ROUTINE,
    current_version,
    find_routine,
    kept_routines,
    proof_of,
    routine_of,
    texts_of,
)
from em.runner.retirement import InUse, meaning_of, was_in_use
from em.runner.trial import AS_RECORDED, ENOUGH, LEFT_OUT, Proof, hash_of
from em.settings import Settings
from em.store.protocol import Artefact, Commit, Store

State = Literal["proposed", "in use", "retired"]
Mode = Literal["off", "shadow", "on"]


class RoutinesOff(RoutineError):
    """The switch for all routines does not let them act."""

    code = "routines_off"


def routines_mode(settings: Settings | None = None) -> Mode:
    """Return how routines may be used: not at all, compared beside the agent only, or as they are.

    settings: None to read those that count here.
    """
    return (settings or Settings.load(tells=False)).routines


def refuse_if_off(mode: Mode, place: str, *, is_dry: bool = False) -> None:
    """Raise RoutinesOff if no routine may act; a dry run is refused only where all is off."""
    if mode == "off" or (mode == "shadow" and not is_dry):
        raise RoutinesOff(
            "routines are switched off"
            if mode == "off"
            else "routines are only compared beside the agent",
            place=place,
            fix="set EM_ROUTINES=on, or `routines: on` in em.yaml",
        )


@event_body("routine_accepted")
class RoutineAccepted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person accepted a version of a routine. put_in_use: it was not in use before."""

    routine: str
    by: str = ""
    put_in_use: bool = False


@event_body("acceptance_withdrawn")
class AcceptanceWithdrawn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person took their word for a version of a routine back."""

    routine: str
    by: str = ""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How a version of a routine may be used.

    by_itself: without asking a person. why: the reason for that, as a sentence. accepted_at,
    accepted_by: a person's word, if one stands. beside_agent: how a proposed one did in shadow.
    next: the command that changes it; empty if a person need not do anything.
    """

    state: State
    by_itself: bool
    why: str
    accepted_at: datetime | None = None
    accepted_by: str = ""
    beside_agent: str = ""
    next: str = ""


def standing_of(store: Store, artefact: Artefact) -> Standing:
    """Return how a stored version may be used."""
    state = _state(store, artefact)
    if state == "retired":
        next_ = f"em routine restore {artefact.ref}"
        return Standing(state=state, by_itself=False, why="it is retired", next=next_)
    word = _word(store, artefact) if state == "in use" else None
    if word is not None:
        at, by = word[0], word[1].by
        why = f"{by or 'a person'} accepted it on {at:%Y-%m-%d}"
        return Standing(state=state, by_itself=True, why=why, accepted_at=at, accepted_by=by)
    files = texts_of(artefact)
    waits = why_waiting(store, proof_of(files), files[ROUTINE])
    enough = "its proof and the outcomes of its recordings are enough"
    by_itself = state == "in use" and not waits
    return Standing(
        state=state,
        by_itself=by_itself,
        why=waits or enough,
        beside_agent=_beside_agent(store, artefact) if state == "proposed" else "",
        next="" if by_itself else f"em routine accept {artefact.ref}",
    )


def _beside_agent(store: Store, artefact: Artefact) -> str:
    """Say how often a version agreed with the agent since it last differed, and how it differed."""
    name, verdicts = artefact.ref, dict[str, str]()
    query = EventQuery(stream=shadow_stream(artefact.name), kinds=["shadow_compared"])
    for event in store.read(query):
        body = event.body or {}
        if body.get("routine") == name:
            trace = body.get("trace") or event.id
            verdicts.pop(trace, None)  # of two about one trace, the last counts
            verdicts[trace] = body["verdict"]
    if not verdicts:
        return "it was not compared with an agent"
    in_a_row, differed = 0, 0
    for verdict in verdicts.values():
        differed += verdict == "differed"
        in_a_row = 0 if verdict == "differed" else in_a_row + (verdict == "agreed")
    return (
        f"it agreed with the agent {in_a_row} times in a row, and differed {differed} times in all"
    )


def why_waiting(store: Store, proof: Proof | None, text: str | None = None) -> str:
    """Say why a routine is not used without a person's word; empty if it may be.

    text: its routine.yaml as it is now, if it may have been changed since the proof.
    """
    if proof is None:
        return "it was not tried on recordings"
    if text is not None and proof.routine != hash_of(text):
        return "it was changed after its trials"
    return proof.why_not_alone or _why_not_by_outcomes(store, proof)


def _why_not_by_outcomes(store: Store, proof: Proof) -> str:
    """Say what the outcomes of the recordings lack, as they are labelled now."""
    every = {one.trace for one in proof.trials.get(AS_RECORDED, ())}
    right = {one.trace for one in proof.trials.get(LEFT_OUT, ()) if one.verdict == "right"}
    rows = store.summaries.of([trace_stream(one) for one in sorted(every)]).values()
    failed = sum(row.status == "failure" for row in rows)
    if failed:
        return f"{failed} of its {len(every)} recordings say that they failed"
    good = sum(row.status == "success" and row.id in right for row in rows)
    if good < ENOUGH:
        return (
            f"it was right on {good} recordings left out that say that they succeeded, and {ENOUGH}"
            " are needed"
        )
    return ""


def accept(store: Store, ref: str, *, by: str = "") -> InUse:
    """Accept a version on a person's word: it is in use, and used by itself.

    ref: `name@version`; or `name` for the version in use, or for the newest if none is.
    """
    stream, head, artefact = _found(store, ref)
    routine_of(artefact)  # raises for a form that is not run any more
    name = artefact.ref
    state = _state(store, artefact)
    if state == "retired":
        raise RoutineError(
            "this version is retired",
            place=name,
            fix=f"restore it first: em routine restore {name}",
        )
    changed = state == "proposed" or _word(store, artefact) is None
    if changed:
        body = RoutineAccepted(routine=name, by=by, put_in_use=state == "proposed")
        put_in_use = [artefact.id] if body.put_in_use else []
        _note(store, "routine_accepted", stream, head, body, restore=put_in_use)
    return InUse(routine=name, changed=changed, now=meaning_of(store, artefact.name))


def withdraw(store: Store, ref: str, *, by: str = "") -> InUse:
    """Take a person's word for a version back; one that it put in use is out of use again."""
    stream, head, artefact = _found(store, ref)
    name = artefact.ref
    word = _word(store, artefact)
    if word is not None:
        body = AcceptanceWithdrawn(routine=name, by=by)
        put_in_use = [artefact.id] if word[1].put_in_use else []
        _note(store, "acceptance_withdrawn", stream, head, body, retire=put_in_use)
    return InUse(routine=name, changed=word is not None, now=meaning_of(store, artefact.name))


def version_meant(store: Store, ref: str) -> Artefact:
    """Return the version that a person means by `name@version` or `name`."""
    return _found(store, ref)[2]


def _found(store: Store, ref: str) -> tuple[str, int, Artefact]:
    """Return the stream of a routine, its head, and the version that is meant.

    A name alone must not mean two: a version in use, and a newer one that waits for a person.
    """
    name = ref.partition("@")[0]
    stream = routine_stream(name)
    head = store.head(stream)[0]  # read first: a change since is a conflict
    if "@" in ref:
        return stream, head, find_routine(store, ref)
    artefact = current_version(store, name)
    newer = [one for one in kept_routines(store, name) if one.version > artefact.version]
    waiting = [one for one in newer if one.body is not None and not was_in_use(store, one)]
    if waiting:
        raise UsageError(
            f"{name}@{artefact.version} is in use, and {name}@{waiting[-1].version} waits",
            place=ref,
            fix="name the version",
        )
    return stream, head, artefact


def _note(
    store: Store,
    kind: str,
    stream: str,
    head: int,
    body: RoutineAccepted | AcceptanceWithdrawn,
    *,
    retire: Sequence[str] = (),
    restore: Sequence[str] = (),
) -> None:
    event = Draft(stream=stream, kind=kind, body=msgspec.to_builtins(body))
    expected: Mapping[str, int] = {stream: head}
    store.commit(Commit(events=[event], retire=retire, restore=restore, expected_pos=expected))


def _state(store: Store, artefact: Artefact) -> State:
    if artefact.retired_at is None:
        return "in use"
    return "retired" if was_in_use(store, artefact) else "proposed"


def _word(store: Store, artefact: Artefact) -> tuple[datetime, RoutineAccepted] | None:
    """Return when a person accepted a version and how; None if no word for it stands."""
    kinds = ["routine_accepted", "acceptance_withdrawn", "routine_retired"]
    query = EventQuery(stream=routine_stream(artefact.name), kinds=kinds)
    name, found = artefact.ref, None
    for event in store.read(query):
        if event.body is not None and event.body.get("routine") == name:
            found = event if event.kind == "routine_accepted" else None
    if found is None:
        return None
    return found.at, msgspec.convert(found.body, RoutineAccepted)
