"""Proposals: what recurs in the traces, proven, stored until somebody accepts it.

A proposal is made of a suggestion that was right on at least half of its own traces and never
wrong. It is told to an agent once. Nothing is compiled into the memory, and nothing is run, until
somebody accepts it (`em routine accept KEY`). A proposal is forgotten with its traces.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.compile_trace import compile_several
from em.compiler.draft import package_texts
from em.compiler.example import request_of
from em.compiler.group import Group
from em.compiler.growth import Growth, made_of, mend, routines_of_kind
from em.compiler.kind import is_of_another_kind
from em.compiler.match import LEAST_LIKENESS, Matcher
from em.compiler.sessions import is_session
from em.compiler.submission import FORMAT, Submission, judged
from em.compiler.suggestions import Suggestion, kept_from, suggest
from em.errors import InputError, NotFound, RoutineError, UsageError
from em.log.event import Draft, EventQuery, proposal_stream
from em.log.kinds import event_body
from em.runner.package import (
    ROUTINE,
    UDF,
    find_routine,
    keep_routine,
    kept_routines,
    routine_of,
    texts_of,
)
from em.runner.standing import InUse, standing_of, version_meant
from em.runner.standing import accept as accept_version
from em.store.protocol import Commit, Store
from em.traces.catalogue import get_traces
from em.traces.intake import digest
from em.traces.trace import KeptTrace, Trace
from em.values.canonical import Json

KEY_LENGTH = 8
MOST_OPEN = 1_000
"""Proposals that are looked at: the newest."""
MOST_GROUPS = 10
"""Groups that are shown to whoever writes a routine."""
LEAST_RIGHT = 0.5
"""The share of trials that must be right."""


@event_body("routine_proposed")
class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """Traces that are worth compiling, as they were when it was found.

    key: names the proposal; the same for traces with the same effects; `name@version` of a version
    that is stored already. proof: in words. waits: why the routine would not be used by itself,
    once it is kept; empty if it would be. routine: a version in use that handed tasks over which em
    can't learn by itself: an agent is asked for the next version.
    """

    key: str
    goal: str
    effects: Sequence[str]
    traces: Sequence[str]
    count: int
    proof: str
    waits: str = ""
    from_events: Sequence[str] = ()
    routine: str = ""


@event_body("proposal_told")
class ProposalTold(msgspec.Struct, frozen=True):
    """An agent was told of a proposal."""

    key: str


def propose(store: Store, suggestions: Sequence[Suggestion]) -> list[Proposal]:
    """Store the suggestions that are proven, and not kept or proposed already. Return those."""
    stored, matcher = learnt_from(store), Matcher(store)
    known = {one.key: one for one in _every(store)}
    made = []
    for one in suggestions:
        if not _is_proven(one):
            continue
        key = key_of(one)
        traces = get_traces(store, one.sample)
        if stored.intersection(event for kept in traces for event in kept.event_ids):
            continue
        if _is_there(store, matcher, traces[-1].trace):
            continue
        assert one.proof is not None
        effects, proof = [*one.effects], one.proof.summary
        proposal = _proposal(key, traces, one.sample, proof, effects=effects, waits=one.waits)
        proposal = msgspec.structs.replace(proposal, goal=one.goal, count=one.count)
        if key not in known or set(known[key].traces) != set(one.sample):
            made.append(proposal)
    _note(store, made)
    return made


def _is_there(store: Store, matcher: Matcher, trace: Trace) -> bool:
    """Return whether a routine in use does what a trace did, and was asked for as it was."""
    names = routines_of_kind(store, trace)
    if not names or not is_session(trace):
        return bool(names)
    alike = matcher.ranked(request_of(trace), at_least=LEAST_LIKENESS)
    return any(one.routine.name in names for one in alike)


def _note(store: Store, made: Sequence[Proposal]) -> None:
    drafts = [
        Draft(
            stream=proposal_stream(one.key), kind="routine_proposed", body=msgspec.to_builtins(one)
        )
        for one in made
    ]
    if drafts:
        store.commit(Commit(events=drafts))


def propose_mended(store: Store, trace_ids: Sequence[str]) -> list[Growth]:
    """Compile again what handed over in these sessions; tell agents what waits for them."""
    made = mend(store, trace_ids)
    for one in made:
        propose_grown(store, one)
    return made


def propose_grown(store: Store, grown: Growth) -> None:
    """Tell of a new version that waits for a person; if em made none, ask an agent for it."""
    if grown.new and grown.waits:
        artefact = find_routine(store, grown.new)
        traces = get_traces(store, made_of(store, artefact)[0])
        proof = routine_of(artefact).trials.summary
        _note(store, [_proposal(grown.new, traces, grown.added, proof, waits=grown.waits)])
    elif grown.added and not grown.new:
        known, _ = made_of(store, find_routine(store, grown.old))
        traces = get_traces(store, [*known, *grown.added])
        key = digest([grown.old], ["again"])[:KEY_LENGTH]
        proposal = _proposal(key, traces, grown.added, grown.why_not, routine=grown.old)
        _note(store, [msgspec.structs.replace(proposal, count=len(grown.added))])


def _proposal(
    key: str, traces: Sequence[KeptTrace], added: Sequence[str], proof: str, **more: Any
) -> Proposal:
    """Return a proposal of traces. added: the ids of those that were not learnt from before."""
    return Proposal(
        key=key,
        goal=traces[-1].trace.mission.goal,
        traces=[kept.id for kept in traces],
        count=len(traces),
        proof=proof,
        from_events=[kept.event_ids[0] for kept in traces if kept.id in added],
        **{"effects": [], **more},
    )


def key_of(one: Suggestion) -> str:
    """Return the key of a suggestion; the same for traces with the same effects."""
    what = [*one.words] if one.effects else one.way
    return digest(one.effects, what)[:KEY_LENGTH]


def _is_proven(one: Suggestion) -> bool:
    return bool(
        not one.problem and one.proof and not one.proof.wrong and one.right_share >= LEAST_RIGHT
    )


def open_proposals(store: Store, *, untold: bool = False) -> list[Proposal]:
    """Return the proposals of which no routine was stored, or one that waits, newest first.

    untold: only those that no agent was told of.
    """
    told = _told(store) if untold else set()
    found = [one for one in _every(store) if one.key not in told]
    in_use = kept_from(store) if found else {}
    stored = kept_from(store, proposed=True) if found else {}
    return [one for one in found if _is_open(one, in_use, stored)]


def _is_open(one: Proposal, in_use: Mapping[str, str], stored: Mapping[str, str]) -> bool:
    """Return whether no version was stored of it; of a stored one, whether it waits."""
    if "@" in one.key:
        waiting = {*stored.values()} - {*in_use.values()}
        return one.key in waiting and not any(event in in_use for event in one.from_events)
    return not any(event in stored for event in one.from_events)


def find_proposal(store: Store, key: str) -> Proposal:
    """Return the newest proposal of a key. Raise InputError if a routine was stored of it."""
    for one in _every(store):
        if one.key == key:
            stored = kept_from(store, proposed=True)
            ref = next((stored[event] for event in one.from_events if event in stored), key)
            if ref != key:
                raise InputError(
                    f"a routine was stored of it already: {ref}",
                    place=f"proposal {key}",
                    fix=f"read it, then: em routine accept {ref}",
                )
            return one
    raise NotFound(
        f"there is no proposal {key!r}", place="proposal", fix="`em routine suggest` lists them"
    )


def accept(
    store: Store,
    ref: str,
    *,
    by: str = "",
    name: str | None = None,
    agree: Callable[[Mapping[str, str]], None] | None = None,
) -> InUse:
    """Accept a version of a routine, or a proposal by its key: it is compiled and put in use.

    name: of the routine that is compiled from a proposal. It must be a new one, so that a name
    never comes to mean something else.
    agree: is given the files of the package before anything is stored, and raises to stop.
    """
    is_proposal = not any(kept_routines(store, ref.partition("@")[0])) and any(
        one.key == ref for one in _every(store)
    )
    if not is_proposal:
        if name is not None:
            raise UsageError("only a proposal is given a name", place=ref, fix="leave out the name")
        if agree is not None:
            agree(texts_of(version_meant(store, ref)))
        return accept_version(store, ref, by=by)
    proposal = find_proposal(store, ref)
    if proposal.routine:
        raise UsageError(
            f"em could not learn the next version of {proposal.routine}: {proposal.proof}",
            place=f"proposal {ref}",
            fix=f"let an agent write it: `propose` with the group {ref}; then accept that version",
        )
    traces = get_traces(store, proposal.traces)
    made = compile_several(traces, name=name, kept_in=store)
    if any(kept_routines(store, made.draft.name)):
        raise UsageError(
            f"there is a routine {made.draft.name!r} already",
            place=f"proposal {ref}",
            fix=f"give it another name: em routine accept {ref} --name NAME",
        )
    if agree is not None:
        agree(made.files)
    # Out of use first: if the second commit fails, it is still only proposed.
    kept = keep_routine(store, made.files, made.from_events, retired=True)
    return accept_version(store, kept.ref, by=by)


# --- routines that somebody else writes -----------------------------------------------------------


def groups(store: Store) -> Json:
    """Return the groups of traces that recur, with what em learnt of them by itself.

    more: how many there are beside those.
    """
    proven = open_proposals(store)
    found = suggest(store, allow_unlabelled=True, limit=MOST_GROUPS)
    known = {one.key for one in proven}
    shown = [
        _shown(one.key, one, one.proof) | ({"next_version_of": one.routine} if one.routine else {})
        for one in proven
        if "@" not in one.key
    ]
    shown += [
        _shown(key_of(one), one, one.problem or (one.proof.summary if one.proof else ""))
        for one in found
        if not one.kept_as and key_of(one) not in known
    ]
    more = max(0, len(shown) - MOST_GROUPS) + found.more
    return {"groups": shown[:MOST_GROUPS], **({"more": more} if more else {})}


def _shown(key: str, one: Proposal | Suggestion, proof: str) -> Json:
    return {"group": key, "task": one.goal, "count": one.count, "proof": proof}


def shown_group(store: Store, group: str | Sequence[str]) -> Json:
    """Return a group for whoever writes a routine: its recordings, and how a routine is written.

    Of tasks that a version in use handed over, also that version.
    """
    found = group_of(store, group)
    shown = {"format": FORMAT, **found.shown()}
    before = _next_version_of(store, group)
    if before:
        files = texts_of(find_routine(store, before))
        code = {name: files[name] for name in (ROUTINE, UDF) if name in files}
        shown |= {"next_version_of": before, "version_in_use": code}
    return shown


def _next_version_of(store: Store, group: str | Sequence[str]) -> str:
    """Return the version whose next one an agent is asked for; empty if a group is a new kind."""
    return next((one.routine for one in _every(store) if one.key == group), "")


def group_of(store: Store, group: str | Sequence[str]) -> Group:
    """Return the traces of a group with what em learnt from them.

    group: the key of a proposal or of a group that recurs; or the ids of traces.
    """
    traces = get_traces(store, _traces_of(store, group) if isinstance(group, str) else group)
    try:
        made = compile_several(traces)
    except RoutineError:
        usable = [one for one in traces if one.trace.outcome != "failure"]
        return Group(usable or traces, None)
    used = {*made.same_way}
    return Group([one for one in traces if one.id in used], made.draft)


def _traces_of(store: Store, key: str) -> Sequence[str]:
    try:
        return find_proposal(store, key).traces
    except NotFound:
        found = suggest(store, allow_unlabelled=True, limit=MOST_GROUPS)
        for one in found:
            if key_of(one) == key and not one.kept_as:
                return one.sample
        raise


def submit(store: Store, group: str | Sequence[str], written: Submission) -> Json:
    """Try what somebody wrote on all recordings of a group, and store it if it is right.

    Return how often it was right, handed over and wrong, with the first differences. A routine is
    stored out of use: a person reads it and accepts it. It is the next version of a routine if that
    handed tasks of the group over, or if it has the name of a routine of this kind.
    """
    recorded = group_of(store, group)
    before = _next_version_of(store, group).partition("@")[0]
    if before:
        written = msgspec.structs.replace(written, name=before)
    found = judged(recorded, written)
    told = found.as_dict()
    if found.draft is None:
        return {**told, "next": "mend it, and send all files again"}
    events = [event for kept in recorded.traces for event in kept.event_ids]
    in_use = kept_from(store)
    added = [one.id for one in recorded.traces if one.event_ids[0] not in in_use]
    name = found.draft.name
    if name != before and is_of_another_kind(store, name, recorded.traces, {}):
        raise UsageError(
            f"there is a routine {name!r} of another kind already",
            place="name",
            fix="give it another `name`",
        )
    kept = keep_routine(store, package_texts(found.draft), events, retired=True)
    waits = standing_of(store, find_routine(store, kept.ref)).why
    proof = kept.trials.summary
    _note(store, [_proposal(kept.ref, recorded.traces, added, proof, waits=waits)])
    next_ = f"a person reads it and says: em routine accept {kept.ref}"
    return {**told, "routine": kept.ref, "proof": proof, "next": next_}


def note_told(store: Store, keys: Sequence[str]) -> None:
    """Note that an agent was told of these proposals."""
    drafts = [
        Draft(stream=proposal_stream(key), kind="proposal_told", body={"key": key}) for key in keys
    ]
    if drafts:
        store.commit(Commit(events=drafts))


def _every(store: Store) -> list[Proposal]:
    """Return the newest proposal of each key, newest first."""
    query = EventQuery(kinds=["routine_proposed"], newest=True, limit=MOST_OPEN)
    found: dict[str, Proposal] = {}
    for event in store.read(query):
        if event.body is not None:
            proposal = msgspec.convert(event.body, Proposal)
            found.pop(proposal.key, None)
            found[proposal.key] = proposal
    return [*reversed(found.values())]


def _told(store: Store) -> set[str]:
    query = EventQuery(kinds=["proposal_told"], newest=True, limit=MOST_OPEN)
    return {event.body["key"] for event in store.read(query) if event.body is not None}


def learnt_from(store: Store) -> set[str]:
    """Return the events from which the routines in use were learnt."""
    return {*kept_from(store)}
