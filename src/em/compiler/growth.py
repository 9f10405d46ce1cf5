"""Growth: a routine is compiled again with the traces of its kind that were recorded since.

A task that a routine handed over, and that an agent then did, is such a trace. The new version is
stored only if it is as good on the traces that the old one knew.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec

from em.compiler.calls import calls_of
from em.compiler.checks import value_in_words
from em.compiler.commands import HANDED_OVER, is_done_by_em, runs_of_em
from em.compiler.compile_trace import Compiled, compile_several
from em.compiler.file_changes import session_of
from em.compiler.kind import Declared, declared_effects, effects_of, writes_of
from em.errors import EmError, NotFound
from em.log.event import TRACE_PREFIX, EventQuery
from em.runner.authorship import WRITTEN_BY
from em.runner.history import RECORDING, read_run
from em.runner.package import (
    UDF,
    KeptRoutine,
    find_routine,
    keep_routine,
    kept_routines,
    routine_of,
    texts_of,
)
from em.runner.routine import Routine, ToolStep
from em.runner.standing import changes, proof_change, why_waiting
from em.runner.tools.coding import FILE_TEXT
from em.store.protocol import Artefact, Store
from em.traces.catalogue import get_traces
from em.traces.outcomes import outcome_of_kept
from em.traces.trace import KeptTrace, Trace
from em.values.canonical import Json
from em.values.json_schema import properties_of

AT_ONCE = 500
"""Events that are looked up at a time."""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """What came of compiling a routine again.

    old, new: `name@version`; `new` is empty if none was stored, and `why_not` says why. waits: why
    the new version is proposed, and not in use before a person accepts it.
    added: the traces that the old version did not know, also where em can't learn from them.
    left_out: those of them that it would have done wrongly. changes: what was learnt, in words.
    """

    old: str
    new: str = ""
    added: Sequence[str] = ()
    left_out: Sequence[str] = ()
    changes: Sequence[str] = ()
    why_not: str = ""
    waits: str = ""


def compile_again(
    store: Store, name: str, *, allow_unlabelled: bool = False, by_itself: bool = False
) -> Growth:
    """Compile the newest version of a routine again, with new traces that have its effects.

    New are traces that succeeded and were recorded after those of the routine. `allow_unlabelled`
    adds traces that don't say how they ended. by_itself: no person wants it now, so what may not
    be used by itself is proposed.
    """
    artefact = find_routine(store, name)
    old = routine_of(artefact)
    refused = why_only_by_hand(artefact)
    known, newest = made_of(store, artefact)
    if not known:
        lost = "the traces that it was compiled from are not there"
        return Growth(old=old.ref, why_not=refused or lost)
    declared = declared_effects(old.tools)
    alike = [
        kept
        for kept in _since(store, newest)
        if kept.id not in known and _has_effects_of(old, kept.trace, declared)
    ]
    added = [one for one in alike if allow_unlabelled or outcome_of_kept(one) == "success"]
    if refused or not added:
        none = "there are no new traces that did the same"
        if alike:
            none += (
                f" and say that they succeeded; of {len(alike)} nothing shows how they ended:"
                " label them (`em traces label TRACE success`), or allow them with"
                " --allow-unlabelled"
            )
        return Growth(old=old.ref, added=[one.id for one in added], why_not=refused or none)
    try:
        return _grown(store, artefact, get_traces(store, known), added, by_itself=by_itself)
    except EmError as error:
        return Growth(old=old.ref, added=[kept.id for kept in added], why_not=str(error))


def mend(store: Store, trace_ids: Sequence[str]) -> list[Growth]:
    """Compile again the routines that handed over in these sessions: an agent did the task then."""
    names: dict[str, None] = {}
    for trace_id in trace_ids:
        with suppress(NotFound):  # erased since
            (kept,) = get_traces(store, [trace_id])
            for run in runs_of_em(kept.trace):
                if run.get("status") == HANDED_OVER:
                    with suppress(EmError):  # it is not in use, or the run is not here
                        started = read_run(store, str(run["run_id"])).started
                        ref = str(started.get("routine", ""))
                        names[find_routine(store, ref.partition("@")[0]).name] = None
    return [compile_again(store, name, allow_unlabelled=True, by_itself=True) for name in names]


def _grown(
    store: Store,
    artefact: Artefact,
    known: Sequence[KeptTrace],
    added: Sequence[KeptTrace],
    *,
    by_itself: bool,
) -> Growth:
    """Compile a version with new traces, and store what comes of it if that is as good.

    It is compiled with what people said about the old version, and with the names of its inputs.
    A wrong trial is judged against those of the old version. A version that is not in use yet is
    not put in use by growing.
    """
    old = routine_of(artefact)
    recorded = msgspec.json.decode(texts_of(artefact).get(RECORDING, "{}")).get("recordings", ())

    def compiled(traces: Sequence[KeptTrace]) -> Compiled:
        return compile_several(
            traces,
            name=old.name,
            declared=declared_effects(old.tools),
            inputs_before={one["name"]: one["inputs"] for one in recorded if one.get("name")},
            force=True,
            review=old.review,
            struck=old.struck,
        )

    made = compiled([*known, *added])
    wrong = {one.trace for one in made.draft.trials.made if one.verdict == "wrong"}
    left_out = [kept.id for kept in added if kept.id in wrong]
    if left_out:
        # One new trace that did something else must not keep the routine from growing.
        added = [kept for kept in added if kept.id not in left_out]
        made = compiled([*known, *added]) if added else made
    found = Growth(
        old=old.ref,
        added=[kept.id for kept in added],
        left_out=left_out,
        changes=[*changes(old, made.draft.routine), proof_change(old.trials, made.draft.trials)],
        why_not=_why_worse(old, made),
    )
    if found.why_not:
        return found
    waits = ""
    if by_itself:
        waits = why_waiting(store, made.draft.proof) or _why_freed(old, made)
    retired = artefact.retired_at is not None or bool(waits)
    before = {one.version for one in kept_routines(store, old.name)}
    new = keep_routine(store, made.files, made.from_events, retired=retired).ref
    if int(new.rpartition("@")[2]) in before:
        return msgspec.structs.replace(found, why_not=f"{new} has learnt that already")
    return msgspec.structs.replace(found, new=new, waits=waits)


def _why_freed(old: KeptRoutine, made: Compiled) -> str:
    """Say which states a new version takes any word for; empty if it has none.

    Two words that went well don't say that a third one would, and the old version handed over.
    """
    now = {place for place, _ in _states(made.draft.routine)}
    freed = [f"{place} is not {word} any more" for place, word in _states(old) if place not in now]
    return f"it would act whatever it reads: {'; '.join(freed)}" if freed else ""


def _states(routine: Routine) -> Iterator[tuple[str, str]]:
    """Yield the places in the results of reads where one of a few words is expected."""
    for step in routine.all_steps:
        if isinstance(step, ToolStep) and step.expect is not None and step.effect != "write":
            yield from _words_in(step.expect, step.save_as or step.id)


def _words_in(schema: Json, place: str) -> Iterator[tuple[str, str]]:
    words = schema.get("enum") or [schema.get("const")]
    if any(isinstance(one, str) for one in words):
        yield place, value_in_words(schema)
    for name, one in properties_of(schema).items():
        yield from _words_in(one, f"{place}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _words_in(schema["items"], f"{place}[]")


def why_only_by_hand(artefact: Artefact) -> str:
    """Say why em can't compile a routine again by itself; empty if it can."""
    files = texts_of(artefact)
    if WRITTEN_BY in files:
        return "a model wrote a part of it, which would be lost: compile it again with the model"
    if UDF in files:
        return "it has functions in udf.py, which would be lost: compile it again with --udf"
    return ""


def _why_worse(old: KeptRoutine, made: Compiled) -> str:
    """Say why a new version must not replace the old one; empty if it may."""
    before, after = old.trials, made.draft.trials
    if after.count("wrong") > before.count("wrong"):
        reasons = "; ".join(after.reasons("wrong")[:3])
        return f"it would do the wrong thing in {after.count('wrong')} trials: {reasons}"
    same = {one.trace for one in before.made} & {one.trace for one in after.made}
    was, now = (
        sum(one.verdict == "right" and one.trace in same for one in trials.made)
        for trials in (before, after)
    )
    if now < was:
        return (
            f"it would be right in {now} of the {len(same)} traces that it knew; it was right in"
            f" {was} of them"
        )
    return ""


# --- traces ---------------------------------------------------------------------------------------


def made_of(store: Store, artefact: Artefact) -> tuple[list[str], int]:
    """Return the traces that a routine was compiled from, and where in the log the last began."""
    found: dict[str, int] = {}
    ids = list(artefact.from_events)
    for start in range(0, len(ids), AT_ONCE):
        query = EventQuery(ids=ids[start : start + AT_ONCE], kinds=["trace_started"])
        for event in store.read(query):
            if event.stream.startswith(TRACE_PREFIX) and event.body is not None:
                found[event.stream.removeprefix(TRACE_PREFIX)] = event.seq
    return sorted(found, key=found.__getitem__), max(found.values(), default=0)


def _since(store: Store, seq: int) -> Iterator[KeptTrace]:
    """Yield the complete traces that began after an event and did not fail, oldest first."""
    query = EventQuery(kinds=["trace_started"], after=seq)
    streams = [event.stream for event in store.read(query) if event.body is not None]
    known = store.summaries.of(streams)
    for row in (known[stream] for stream in streams if stream in known):
        if row.status != "failure" and not row.shown.get("incomplete"):
            with suppress(NotFound):  # erased since
                (kept,) = get_traces(store, [row.id])
                if not is_done_by_em(kept.trace):
                    yield kept


def routines_of_kind(store: Store, trace: Trace) -> list[str]:
    """Return the names of the routines in use that do what a trace did, no less."""
    newest = {one.name: one for one in kept_routines(store) if one.retired_at is None}
    found = []
    for artefact in newest.values():
        with suppress(EmError):  # a form that is not run any more, or an erased one
            routine = routine_of(artefact)
            if _has_effects_of(routine, trace, declared_effects(routine.tools), exactly=True):
                found.append(routine.name)
    return found


def _has_effects_of(
    routine: Routine, trace: Trace, declared: Declared, *, exactly: bool = False
) -> bool:
    """Return whether a trace does what a routine does: its effects, or some of them."""
    session = session_of(trace, declared) if FILE_TEXT in routine.called_tools else None
    calls = calls_of(trace, declared)[0] if session is None else session.calls
    done, own = effects_of(calls), writes_of(routine)
    if not own:
        return not done and {one.name for one in calls if not one.failed} >= routine.called_tools
    return done == own if exactly else bool(done) and done <= own
