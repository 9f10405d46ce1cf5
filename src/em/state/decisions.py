"""Decisions: the events by which a person corrects a state, made from the state as it is now."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from em.errors import InputError, NotFound, UsageError
from em.log.event import Draft, EventQuery, subject_stream
from em.state.fold import merged_key
from em.state.rules import rule_key
from em.state.schema import Decision, FieldSchema, Policy, PolicyName, Verdict
from em.state.state import State
from em.state.types import holds, resolve
from em.store.protocol import Store
from em.values.canonical import Json
from em.values.mismatch import closest


def field_decision(
    state: State,
    field: str,
    *,
    value: Any = None,
    event: str | None = None,
    policy: PolicyName | None = None,
    order: Sequence[str] = (),
    key: Sequence[Any] | None = None,
    by: str = "",
) -> Draft:
    """Make the event that decides a field: by a value, by an event's value, or by a policy.

    Where an event has several values for the field, `value` and `key` say which is right.
    by: who decides.
    """
    if (policy is None) == (value is None and event is None):
        raise UsageError(
            "resolve needs a value, an event or a policy, and no policy beside the others",
            place="resolve",
        )
    if policy == "source" and not order:
        raise UsageError("the policy `source` needs an order of sources", place="order")
    type_, found = state.find_field(field)
    if policy is not None:
        chosen = Policy(policy, list(order))
        decision = Decision(type=type_.given, field=found.given, policy=chosen, by=by)
        return decided(state.subject, decision)
    if event is None:
        _check_held(found, value)
    else:
        history = state.history(f"{type_.name}.{found.name}")
        key, value = _value_of(event, history, field, value, key)
    decision = Decision(
        type=type_.given,
        field=found.given,
        value=value,
        event=event,
        record_key=list(key or ()),
        by=by,
    )
    return decided(state.subject, decision)


def correction(state: State, record: Any, changes: Mapping[str, Any], *, by: str = "") -> Draft:
    """Make the event that corrects a record; it is found by its event in the state of now."""
    if not changes:
        raise InputError("a correction needs at least one field", place="changes")
    place = _place(state, record)
    named = _given(state, place, dict(changes))
    return decided(state.subject, Decision(place=place, changes=named, by=by))


def retraction(state: State, what: Any, key: Sequence[Any] = (), *, by: str = "") -> Draft:
    """Make the event that takes back a record, or the value of a field."""
    if not isinstance(what, str):
        return record_retraction(state, what, by=by)
    try:
        type_, field = state.find_field(what)
    except NotFound:
        if not any(state._store.read(EventQuery(ids=[what], subject=state.subject))):
            raise
        return record_retraction(state, what, by=by)
    key = list(key)
    taken = Decision(type=type_.given, field=field.given, record_key=key, retract=True, by=by)
    return decided(state.subject, taken)


def record_retraction(state: State, record: Any, *, by: str = "") -> Draft:
    """Make the event that takes back a record, given itself or by the id of its event."""
    return decided(state.subject, Decision(place=_place(state, record), by=by))


def merging(
    state: State,
    one: Sequence[Any],
    other: Sequence[Any],
    type_: str = "Person",
    *,
    by: str = "",
) -> Draft:
    """Make the event that makes two records one."""
    known = next(
        (found for found in state.schema.types.values() if type_ in (found.given, found.name)),
        None,
    )
    if known is None or not known.key:
        raise NotFound(
            f"{state.subject!r} has no records of {type_!r} with a key",
            place="type",
            fix="`em state code SUBJECT` shows the types; `em state key` declares a key",
        )
    keys = [merged_key(state.schema, known.given, key) for key in (one, other)]
    stored = [list(key) for key, _ in state._histories(known)]
    for key in keys:
        if key not in stored:
            raise NotFound(f"no {type_} with the key {key}", place="key")
    if keys[0] == keys[1]:
        raise InputError(f"{list(one)} and {list(other)} are one record already", place="key")
    decision = Decision(type=known.given, same=keys[0], record_key=keys[1], by=by)
    return decided(state.subject, decision)


def _given(state: State, place: str, changes: Json) -> Json:
    """Return changes by the names that the fields were given with.

    A field that the type does not have, or a value that it can't hold, is refused: a typo would
    leave the record out of every sum.
    """
    type_ = state.schema.types[place.rsplit("/", 2)[0]]
    fields = {field.given: field for field in type_.fields.values()}
    fields |= {field.name: field for field in type_.fields.values()}
    found: Json = {}
    for name, value in changes.items():
        if name not in fields:
            names = [field.name for field in type_.fields.values()]
            raise NotFound(
                f"a {type_.name} has no field {name!r}",
                place=name,
                fix=closest(name, names) or f"it has: {', '.join(names[:20])}",
            )
        _check_held(fields[name], value)
        found[fields[name].given] = value
    return found


def _place(state: State, record: Any) -> str:
    if isinstance(record, str):
        return state.place(record)
    for name, type_ in state.collections.items():
        if type_.key is None:
            for one in state.collection(name):
                if one.event_ids == record.event_ids and repr(one) == repr(record):
                    return state.place(one)
    return state.place(record)


def rule_verdict(state: State, rule: str, verdict: Verdict, *, by: str = "") -> Draft:
    """Make the event of a verdict on a rule."""
    found = [one for one in state.rules if one.id == rule]
    if not found:
        raise NotFound(
            f"no rule {rule!r} about {state.subject!r}",
            place="rule",
            fix="`em state rules SUBJECT` lists the rules",
        )
    return decided(state.subject, Decision(rule=rule_key(found[0]), verdict=verdict, by=by))


def acceptance(store: Store, subject: str, event: str, by: str) -> Draft:
    """Make the event that lets an observation count which anybody may have written."""
    found = next(iter(store.read(EventQuery(ids=[event], subject=subject))), None)
    if found is None or (found.body or {}).get("origin") != "web":
        raise NotFound(
            f"no observation {event} about {subject!r} waits for a person",
            place="event",
            fix="`em state show SUBJECT` lists those that wait",
        )
    return decided(subject, Decision(accept=event, by=by))


def undoing(store: Store, subject: str, decision: str, by: str) -> Draft:
    """Make the event that takes back a decision."""
    found = next(iter(store.read(EventQuery(ids=[decision]))), None)
    if found is None or found.kind != "decided" or found.stream != subject_stream(subject):
        raise NotFound(
            f"no decision {decision} about {subject!r}",
            place="event",
            fix="`em log show --kind decided` lists them",
        )
    return decided(subject, Decision(undo=decision, by=by))


def _check_held(field: FieldSchema, value: Any) -> None:
    """InputError if a field's type can't hold a value that a person decided."""
    if holds(field, msgspec.to_builtins(value)):
        return
    like = f"give a value such as {field.examples[0].text}" if field.examples else "see the type"
    quoting = "" if isinstance(value, str) else "; a text in quotes stays a text: '\"1\"'"
    raise InputError(
        f"{field.name!r} holds {resolve(field, 'object').annotation}, not {value!r:.60}",
        place=field.name,
        fix=like + quoting,
    )


def _value_of(
    event: str,
    history: Sequence[tuple[list[Any], Any]],
    field: str,
    value: Any,
    key: Sequence[Any] | None,
) -> tuple[list[Any], Any]:
    """Return the key and the value that an event has for a field; it must be only one."""
    found = [
        (known, entry.value)
        for known, entry in history
        if event in entry.event_ids
        and (key is None or list(known) == list(key))
        and (value is None or entry.value == value)
    ]
    if not found:
        raise NotFound(f"event {event} has no such value for {field}", place="event")
    if any(one != found[0] for one in found):
        raise InputError(
            f"event {event} has several values for {field}",
            place="event",
            fix="say which one is right: give the value, and the key of the record, too",
        )
    return found[0]


def decided(subject: str, decision: Decision) -> Draft:
    """Make the event of a decision."""
    body: Json = msgspec.to_builtins(decision)
    return Draft(stream=subject_stream(subject), kind="decided", body=body, subject=subject)
