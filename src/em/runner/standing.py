"""The standing of a routine: how its versions may be used, a person's word, and what has changed.

A version is proposed (stored, and never in use), in use, or retired. The name of a routine means
its newest version in use. A retired version can still be read; it is neither run by that name nor
offered to agents. One in use does what it does when somebody runs it. It is used by itself, without
asking a person each time, if a person accepted it, or if its proof and the outcomes of its
recordings are enough. A person's word is about one version; it stays in the log until it is taken
back or the version is retired. The command, HTTP and the pages show what is returned here.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from em.errors import NotFound, RoutineError, UsageError
from em.log.event import Draft, EventQuery, routine_stream, shadow_stream, trace_stream
from em.log.kinds import event_body
from em.runner.authorship import WRITTEN_BY
from em.runner.card import KIND, retired_refs
from em.runner.package import (
    ROUTINE,
    UDF,
    current_version,
    find_routine,
    kept_routines,
    proof_of,
    routine_of,
    texts_of,
    trials_of,
)
from em.runner.routine import Routine
from em.runner.trial import AS_RECORDED, ENOUGH, LEFT_OUT, Proof, TrialCounts, Trials, hash_of
from em.settings import Settings
from em.store.protocol import Artefact, Commit, Store
from em.values.canonical import Json, short
from em.values.leaves import differences

State = Literal["proposed", "in use", "retired"]
Mode = Literal["off", "shadow", "on"]
Move = Literal["retire", "restore", ""]


class RoutinesOff(RoutineError):
    """The switch for all routines does not let them act."""

    code = "routines_off"


class NeverInUse(RoutineError):
    """A version that was stored out of use can't be restored: it is accepted."""

    code = "never_in_use"


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


class _UseChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody changed how a version of a routine may be used."""

    routine: str
    by: str = ""


@event_body("routine_accepted")
class RoutineAccepted(_UseChanged, frozen=True, kw_only=True, omit_defaults=True):
    """A person accepted a version of a routine. put_in_use: it was not in use before."""

    put_in_use: bool = False


@event_body("acceptance_withdrawn")
class AcceptanceWithdrawn(_UseChanged, frozen=True, kw_only=True, omit_defaults=True):
    """A person took their word for a version of a routine back."""


@event_body("routine_retired")
class RoutineRetired(_UseChanged, frozen=True, kw_only=True, omit_defaults=True):
    """A version of a routine was taken out of use."""


@event_body("routine_restored")
class RoutineRestored(_UseChanged, frozen=True, kw_only=True, omit_defaults=True):
    """A retired version of a routine was put in use again."""


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


class StoredRoutine(Standing, frozen=True, kw_only=True):
    """One version of a stored routine. `proof` is null if it was not tried on other traces.

    from_events: how many recorded events it was made of. tried: how it did on recordings, in words.
    """

    ref: str
    name: str
    version: int
    created_at: datetime
    from_events: int = 0
    proof: TrialCounts | None = None
    tried: str = ""


class InUse(msgspec.Struct, frozen=True, kw_only=True):
    """What came of changing how a version is used.

    now: the version that the name means from now on; empty if none is in use.
    """

    routine: str
    changed: bool
    now: str = ""


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
    by_itself = state == "in use" and not waits
    return Standing(
        state=state,
        by_itself=by_itself,
        why=waits or "its proof and the outcomes of its recordings are enough",
        beside_agent=_beside_agent(store, artefact) if state == "proposed" else "",
        next="" if by_itself else f"em routine accept {artefact.ref}",
    )


def _beside_agent(store: Store, artefact: Artefact) -> str:
    """Say how often a version agreed with the agent since it last differed, and how it differed."""
    verdicts = dict[str, str]()
    query = EventQuery(stream=shadow_stream(artefact.name), kinds=["shadow_compared"])
    for event in store.read(query):
        body = event.body or {}
        if body.get("routine") == artefact.ref:
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


def _state(store: Store, artefact: Artefact) -> State:
    if artefact.retired_at is None:
        return "in use"
    return "retired" if was_in_use(store, artefact) else "proposed"


def was_in_use(store: Store, artefact: Artefact) -> bool:
    """Return whether a version that is out of use was in use before, as the log says."""
    return artefact.ref in retired_refs(store, routine_stream(artefact.name))


def _word(store: Store, artefact: Artefact) -> tuple[datetime, RoutineAccepted] | None:
    """Return when a person accepted a version and how; None if no word for it stands."""
    kinds = ["routine_accepted", "acceptance_withdrawn", "routine_retired"]
    found = None
    for event in store.read(EventQuery(stream=routine_stream(artefact.name), kinds=kinds)):
        if event.body is not None and event.body.get("routine") == artefact.ref:
            found = event if event.kind == "routine_accepted" else None
    if found is None:
        return None
    return found.at, msgspec.convert(found.body, RoutineAccepted)


# --- changes of the standing ----------------------------------------------------------------------


def accept(store: Store, ref: str, *, by: str = "") -> InUse:
    """Accept a version on a person's word: it is in use, and used by itself.

    ref: `name@version`; or `name` for the version in use, or for the newest if none is.
    """
    head, artefact = _meant(store, ref)
    routine_of(artefact)  # raises for a form that is not run any more
    state = _state(store, artefact)
    if state == "retired":
        raise RoutineError(
            "this version is retired",
            place=artefact.ref,
            fix=f"restore it first: em routine restore {artefact.ref}",
        )
    if state == "in use" and _word(store, artefact) is not None:
        return _unchanged(store, artefact)
    is_new = state == "proposed"
    body = RoutineAccepted(routine=artefact.ref, by=by, put_in_use=is_new)
    move: Move = "restore" if is_new else ""
    return _change(store, artefact, "routine_accepted", body, move, head)


def withdraw(store: Store, ref: str, *, by: str = "") -> InUse:
    """Take a person's word for a version back; one that it put in use is out of use again."""
    head, artefact = _meant(store, ref)
    word = _word(store, artefact)
    if word is None:
        return _unchanged(store, artefact)
    body = AcceptanceWithdrawn(routine=artefact.ref, by=by)
    move: Move = "retire" if word[1].put_in_use else ""
    return _change(store, artefact, "acceptance_withdrawn", body, move, head)


def retire(store: Store, ref: str, *, by: str = "") -> InUse:
    """Take a version out of use: its name then means the version before. It can still be read."""
    artefact = find_routine(store, ref)
    if artefact.retired_at is not None:
        return _unchanged(store, artefact)
    body = RoutineRetired(routine=artefact.ref, by=by)
    return _change(store, artefact, "routine_retired", body, "retire")


def restore(store: Store, ref: str, *, by: str = "") -> InUse:
    """Put a retired version in use again. One that never was in use raises NeverInUse."""
    artefact = find_routine(store, ref)
    if artefact.retired_at is None:
        return _unchanged(store, artefact)
    if not was_in_use(store, artefact):
        raise NeverInUse(
            "this version never was in use",
            place=artefact.ref,
            fix=f"read it, then: em routine accept {artefact.ref}",
        )
    routine_of(artefact)  # raises for a form that is not run any more
    body = RoutineRestored(routine=artefact.ref, by=by)
    return _change(store, artefact, "routine_restored", body, "restore")


def _change(
    store: Store,
    artefact: Artefact,
    kind: str,
    body: _UseChanged,
    move: Move,
    head: int | None = None,
) -> InUse:
    """Log a change and make it, in one commit. head: of the stream, before it was looked at."""
    stream = routine_stream(artefact.name)
    note = Draft(stream=stream, kind=kind, body=msgspec.to_builtins(body))
    store.commit(
        Commit(
            events=[note],
            retire=[artefact.id] if move == "retire" else [],
            restore=[artefact.id] if move == "restore" else [],
            expected_pos={} if head is None else {stream: head},
        )
    )
    return InUse(routine=artefact.ref, changed=True, now=_meaning(store, artefact.name))


def _unchanged(store: Store, artefact: Artefact) -> InUse:
    return InUse(routine=artefact.ref, changed=False, now=_meaning(store, artefact.name))


def _meaning(store: Store, name: str) -> str:
    """Return the version that a name means; empty if none is in use."""
    artefact = store.artefact(KIND, name)
    return "" if artefact is None else artefact.ref


def version_meant(store: Store, ref: str) -> Artefact:
    """Return the version that a person means by `name@version` or `name`."""
    return _meant(store, ref)[1]


def _meant(store: Store, ref: str) -> tuple[int, Artefact]:
    """Return the head of a routine's stream, and the version that is meant.

    A name alone must not mean two: a version in use, and a newer one that waits for a person.
    """
    name = ref.partition("@")[0]
    head = store.head(routine_stream(name))[0]  # read first: a change since is a conflict
    if "@" in ref:
        return head, find_routine(store, ref)
    artefact = current_version(store, name)
    newer = [one for one in kept_routines(store, name) if one.version > artefact.version]
    waiting = [one for one in newer if one.body is not None and not was_in_use(store, one)]
    if waiting:
        raise UsageError(
            f"{name}@{artefact.version} is in use, and {name}@{waiting[-1].version} waits",
            place=ref,
            fix="name the version",
        )
    return head, artefact


# --- versions -------------------------------------------------------------------------------------


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


class VersionDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between two versions, one line each."""

    old: str
    new: str
    changes: list[str]
    proof: str


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


def changes(old: Routine, new: Routine) -> list[str]:
    """Return every field that differs between two versions: what it is now, and what it was."""
    before, after = _by_step(old), _by_step(new)
    found = [*_field_changes(_own_fields(old), _own_fields(new))]
    for step in dict.fromkeys([*after, *before]):
        if step not in before or step not in after:
            found.append(f"{step}: {'removed' if step in before else f'new: {short(after[step])}'}")
        else:
            found += [f"{step}: {line}" for line in _field_changes(before[step], after[step])]
    return found


def _by_step(routine: Routine) -> dict[str, Json]:
    """Return the fields of each step by its id; the steps of a block stand for themselves."""
    found = {step.id: msgspec.to_builtins(step) for step in routine.all_steps}
    for fields in found.values():
        if "steps" in fields:
            fields["steps"] = ", ".join(inner["id"] for inner in fields["steps"])
    return found


def _own_fields(routine: Routine) -> Json:
    """Return the fields of a routine, and the order of its steps."""
    names = [name for name in Routine.__struct_fields__ if name != "steps"]
    found = {name: _by_name(msgspec.to_builtins(getattr(routine, name))) for name in names}
    return {**found, "order of the steps": ", ".join(step.id for step in routine.all_steps)}


def _by_name(value: Any) -> Any:
    """Return a list of tools or secrets by their names, so that one more is not a change of all."""
    if isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value):
        named = {one["name"]: one for one in value}
        return named if len(named) == len(value) else value
    return value


def _field_changes(before: Json, after: Json) -> Iterator[str]:
    for where, *both in differences(before, after):
        was, now = ("not set" if one is msgspec.UNSET else short(one) for one in both)
        yield f"{where} has changed" if was == now else f"{where} is {now}; before: {was}"


def file_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return which of the other files differ that a run of a package uses."""
    return [
        f"{name} has changed: `em routine unpack` writes both versions"
        for name in (UDF, WRITTEN_BY)
        if old.get(name) != new.get(name)
    ]


def proof_change(old: Trials, new: Trials) -> str:
    """Return the proof before and after."""
    none = "not tried on other traces"
    return f"proof: {new.summary or none}; before: {old.summary or none}"
