"""Renewal: stored routines of an older form are compiled again from their recordings.

A migration marks a database that has routines; opening it for writing renews them, once. A routine
that can't be compiled again is retired, and the log has the reason. Every change is committed
against the position of the routine's stream, so of two processes that renew at once one does it and
the other finds it done.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from em.compiler.compile_trace import Compiled, compile_several
from em.compiler.growth import AT_ONCE, made_of, why_only_by_hand
from em.compiler.kind import declared_effects
from em.errors import Conflict, EmError, NotFound, RoutineError, StoreError
from em.log.event import Draft, EventQuery, routine_stream
from em.log.kinds import event_body
from em.runner.package import ROUTINE, keep_routine, kept_routines, parse_yaml, texts_of
from em.runner.retirement import retirement
from em.runner.routine import ToolSpec, removed_fields
from em.runner.validation import RECORDING
from em.store.migrations import TO_RENEW
from em.store.protocol import Artefact, Commit, Store
from em.traces.catalogue import get_traces
from em.traces.trace import KeptTrace
from em.values.call import Effect
from em.values.canonical import Json

ATTEMPTS = 5
"""How often a routine is looked at again because another process changed it meanwhile."""
FORGOTTEN = "a recording that it was compiled from was forgotten"
OUTDATED = "its form is not run any more"


@event_body("routine_decided")
class RoutineDecided(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person decided something about a routine of the old form; forgotten with its recordings."""

    routine: str = ""
    from_events: Sequence[str] = ()


class Renewed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a routine of an older form.

    old, new: `name@version`; `new` is empty if it was retired, and `reason` says why.
    """

    old: str
    new: str = ""
    reason: str = ""


def renew_marked(store: Store) -> list[Renewed]:
    """Renew the routines of a database that a migration marked, and remove the mark.

    A store that can't be written now stays as it is, with its mark.
    """
    try:
        done = renew_routines(store)
        store.tickets.drop(TO_RENEW)
    except (Conflict, StoreError):
        return []
    return done


def renew_routines(store: Store) -> list[Renewed]:
    """Compile every routine in use that has an older form again, or retire it.

    Routines that this version of em runs, and versions out of use, stay as they are.
    """
    names = dict.fromkeys(one.name for one in kept_routines(store) if one.retired_at is None)
    return [one for name in names if (one := _renewed(store, name)) is not None]


def _renewed(store: Store, name: str) -> Renewed | None:
    for _ in range(ATTEMPTS - 1):
        try:
            return _renew(store, name)
        except Conflict:  # another process changed it or its recordings: look again
            continue
    return _renew(store, name)


def _renew(store: Store, name: str) -> Renewed | None:
    """Renew the version that a name means; return None if there is nothing to do.

    Older versions in use that have an older form are retired too: the name could come to mean one.
    """
    stream = routine_stream(name)
    expected = {stream: store.head(stream)[0]}  # read first: a change since is a conflict
    used = [one for one in kept_routines(store, name) if one.retired_at is None]
    old = [one for one in used if one.body is not None and _is_old(store, one)]
    if all(one in old or one.body is None for one in used):
        old = used  # no version is left that runs, so what was erased is retired too
    if not old:
        return None
    is_meant = old[-1] is used[-1]
    made = _compiled(store, old[-1]) if is_meant else _WhyNot(OUTDATED)
    ref = f"{name}@{old[-1].version}"
    if isinstance(made, Compiled):
        notes = _notes(old, _WhyNot(OUTDATED))
        try:
            new = keep_routine(
                store, made.files, made.from_events, retires=notes, expected_pos=expected
            )
            return Renewed(old=ref, new=new.ref)
        except (Conflict, StoreError):
            raise
        except EmError as error:
            made = _WhyNot(str(error), old[-1].from_events)
    notes = _notes(old, made)
    events = list(notes.values())
    store.commit(Commit(events=events, retire=list(notes), expected_pos=expected))
    return Renewed(old=ref, reason=made.reason) if is_meant else None


class _WhyNot(NamedTuple):
    """Why a routine is retired. quotes: the events that the reason may quote."""

    reason: str
    quotes: Sequence[str] = ()


def _notes(old: Sequence[Artefact], why: _WhyNot) -> dict[str, Draft]:
    """Return by id the events that say that versions were retired, the last for this reason."""
    notes = {one.id: retirement(one, reason=OUTDATED) for one in old}
    last = old[-1]
    # What quotes recordings is forgotten with them.
    notes[last.id] = retirement(last, reason=why.reason, from_events=why.quotes)
    return notes


def _compiled(store: Store, artefact: Artefact) -> Compiled | _WhyNot:
    """Compile the recordings of a routine."""
    if artefact.body is None:
        return _WhyNot(FORGOTTEN)
    refused = why_only_by_hand(artefact)
    if refused:
        return _WhyNot(refused)
    try:
        traces = _recordings(store, artefact)
        declared = _declared(_document(artefact))
        return compile_several(traces, name=artefact.name, declared=declared)
    except NotFound:
        return _WhyNot(FORGOTTEN)
    except (Conflict, StoreError):
        raise
    except EmError as error:
        return _WhyNot(str(error), artefact.from_events)
    except Exception as error:  # noqa: BLE001 - no recording may keep a database from being opened
        reason = f"compiling its recordings failed: {type(error).__name__}: {error}"
        return _WhyNot(reason, artefact.from_events)


def _recordings(store: Store, artefact: Artefact) -> list[KeptTrace]:
    """Return the traces that a routine was compiled from; raise NotFound unless all are whole."""
    traces = get_traces(store, made_of(store, artefact)[0])
    ids = list({*artefact.from_events, *(one for kept in traces for one in kept.event_ids)})
    whole = 0
    for start in range(0, len(ids), AT_ONCE):
        found = store.read(EventQuery(ids=ids[start : start + AT_ONCE]))
        whole += sum(event.body is not None for event in found)
    if not traces and not ids:
        raise RoutineError("it was not compiled from recordings", place=artefact.name)
    if not traces or whole < len(ids):
        raise NotFound(FORGOTTEN, place=artefact.name)
    return traces


# --- the older form -------------------------------------------------------------------------------


def _is_old(store: Store, artefact: Artefact) -> bool:
    """Return whether a version has fields or steps that are not run any more.

    One without them that was compiled from recordings is of the older form too if it says nothing
    about failed checks: its steps check nothing.
    """
    try:
        document, files = _document(artefact), texts_of(artefact)
    except RoutineError:
        return False  # no routine of any form
    if any(removed_fields(document)):
        return True
    is_plain = document.get("checks") == "hand_over"
    if is_plain or not _has_old_recording(files.get(RECORDING, "")):
        return False
    return bool(made_of(store, artefact)[0])


def _document(artefact: Artefact) -> Json:
    """Return routine.yaml as it was written; `read_routine` refuses fields of an older form."""
    document = parse_yaml(texts_of(artefact)[ROUTINE].encode(), artefact.name)
    return document if isinstance(document, dict) else {}


def _has_old_recording(text: str) -> bool:
    try:
        return "calls" in msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return False


def _declared(document: Mapping[str, Any]) -> dict[str, Effect | None]:
    """Return the effects of tools that a person or the tool itself declared."""
    try:
        tools = msgspec.convert(document.get("tools", ()), Sequence[ToolSpec])
    except msgspec.ValidationError:
        return {}
    return declared_effects(tools)
