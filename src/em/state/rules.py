"""Rules that warn before an action or when something is due.

A user writes them as functions:

    @rule("take", severity="high")
    def interaction(state, drug, meal=None):
        ...return a message, or Fired(message, evidence=[records]), or nothing

    @alert(severity="warning")
    def check_up(state, now): ...

A model writes them as constraints: JSON that is checked and compiled to Python, never code.

    {"id": "nsaid", "severity": "high", "action": "take", "message": "{drug} is an NSAID",
     "when": {"op": "in", "left": {"detail": "drug"}, "right": {"value": ["ibuprofen"]}},
     "active": {"from": "2025-04-01", "until": null}, "deadline": "2025-06-01", "offset": "14d"}

A deadline is a date, or names the field that holds it: {"in": "visits", "field": "date", "plus":
"180d"} is one deadline for each record, {"profile": "passport_expires"} the current value. "each":
{"in": "trips", "where": …} makes a rule about every such record. `em.state.conditions` describes
conditions. A rule with neither an action nor a deadline is a standing one: it is due while its
condition holds. A message names details and fields of the record, by `{name}` alone: it can't reach
attributes or use format specs. Deadlines offer `{deadline}` and `{days_remaining}`.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import msgspec

from em.errors import InputError
from em.llm.client import struct_schema
from em.state.conditions import NAME, Conditions, details_in
from em.state.schema import (
    PROFILE,
    ActiveWindow,
    Constraint,
    ConstraintDraft,
    Severity,
    StateSchema,
)
from em.values.canonical import Json
from em.values.mismatch import mismatch
from em.values.syntax_tree import module_of
from em.values.times import moment, parse_duration

PROMPT = """\
  Conditions: {op, left, right}, {"all": […]}, {"any": […]}, {"not": …}, {"some": {"in":
  "allergies", "where": …}}. Operators: == != < <= > >= in, not in, contains, mentions (a text, or
  one of a list, has these words). Operands: {"detail": name} of the action, {"value": …},
  {"profile": field}, {"item": field} of the record that "some" looks at, {"outer": field} of the
  record around it, {"count": {"in": …, "where": …}}, {"sum": {"in": …, "field": …}}, {"now": true};
  dates can be moved: {"item": "returns", "plus": "180d"}, or "minus". Dates as 2025-06-01, moments
  with their zone as 2025-06-01T10:00:00Z, amounts with their currency as "12.50 EUR".
  A rule that warns before an action has "action", and its details come from whoever takes that
  action. A rule about records has
  "each": {"in": "dinners", "where": {"some": {"in": "dinners", "where": {"op": "==", "left":
  {"item": "time"}, "right": {"outer": "time"}}}}}: one warning for each such record (a record is
  never compared with itself); without an action it holds at all times. A deadline is a date, or
  names the field that has it: {"in": "visits", "field": "date", "plus": "180d"}, {"profile":
  "passport_expires"}; "offset" is how long before it to warn (14d, 36h, 2w). "active": {"from":
  null, "until": null} limits a rule in time. Never write a rule that can't fire.
  A message may have in braces: details that the condition names, fields of the record of "each" or
  of the deadline, {deadline} and {days_remaining}; nothing else.
"""
"""The format of rules, for a model."""


def rule_schema() -> Json:
    """Return the JSON Schema of a rule that is handed in with a text, with its format in words."""
    return {**struct_schema(ConstraintDraft, {}), "description": PROMPT}


RANKS: Mapping[str, int] = {"critical": 0, "high": 1, "warning": 2, "info": 3}
"""Severities, the worst first."""

_ID = re.compile(r"[a-z][a-z0-9_-]{0,59}")
_SLOT = re.compile(r"\{([^{}]*)\}")
_OF_DEADLINE = ("deadline", "days_remaining")
"""What a deadline offers to its message and its condition."""


def read_constraint(given: Json, schema: StateSchema, events: list[str]) -> Constraint:
    """Read a constraint that can be compiled; InputError says why it can't."""
    place = f"constraint {str(given.get('id', ''))[:60]!r}"
    try:
        draft = msgspec.convert(given, ConstraintDraft)
    except msgspec.ValidationError as error:
        raise InputError(mismatch(error).message, place=mismatch(error).place(place)) from None
    constraint = check_shape(draft, events)
    check_constraint(constraint, schema)
    return constraint


def check_shape(draft: ConstraintDraft, events: Sequence[str] = ()) -> Constraint:
    """Check what needs no types: the id, the times, the form of the message."""
    place = f"constraint {draft.id[:60]!r}"
    if not _ID.fullmatch(draft.id):
        raise InputError(
            "the id must be lower-case letters, digits, _ and -, starting with a letter",
            place=place,
        )
    active = draft.active or ActiveWindow()
    if draft.offset is not None:
        parse_duration(draft.offset, "offset", place=place)
    _check_slots(draft.message, f"{place}, message")
    return Constraint(
        id=draft.id,
        severity=draft.severity,
        message=draft.message,
        action=draft.action,
        when=draft.when,
        active_from=_time(active.from_, place),
        active_until=_time(active.until, place),
        deadline=_deadline(draft.deadline, place),
        offset=draft.offset,
        each=draft.each,
        events=list(events),
    )


def _check_slots(message: str, place: str) -> None:
    for slot in slots(message):
        if not NAME.fullmatch(slot):
            raise InputError(
                f"expected the name of a detail in braces, got {{{slot[:60]}}}",
                place=place,
                fix="write {name}: attributes, indexes and format specs are not allowed",
            )
    if re.sub(_SLOT, "", message).count("{") or "}" in _SLOT.sub("", message):
        raise InputError("expected braces in pairs, as in {name}", place=place)


def _time(given: str | None, place: str) -> str | None:
    return None if given is None else moment(given, place).isoformat()


def _deadline(given: Any, place: str) -> str | Json | None:
    """Write a deadline in the stored form. A date stays a date: it is over when the day ends."""
    if isinstance(given, str) and len(given.strip()) > len("2025-06-01"):
        return _time(given, place)
    if isinstance(given, str):
        return moment(given, place).date().isoformat()
    found: Json | None = given
    return found


def check_constraint(constraint: Constraint, schema: StateSchema) -> None:
    """Refuse a constraint that can't be compiled."""
    place = f"constraint {constraint.id!r}"
    if constraint.offset is not None:
        parse_duration(constraint.offset, "offset", place=place)
    begins, ends = constraint.active_from, constraint.active_until
    if begins is not None and ends is not None and moment(begins) >= moment(ends):
        raise InputError("its window ends before it begins", place=f"{place}, active")
    if constraint.when is not None:
        Conditions(schema, f"{place}, when").condition(constraint.when)
    if isinstance(constraint.deadline, dict):
        Conditions(schema, f"{place}, deadline").deadlines(constraint.deadline)
    if constraint.each is not None:
        if constraint.deadline is not None:
            raise InputError(
                "a rule has `each` or a deadline, not both",
                place=place,
                fix='write the records into the deadline: {"in": …, "field": …, "where": …}',
            )
        Conditions(schema, f"{place}, each").each(constraint.each)
    _check_evaluated(constraint, schema, place)
    _check_message(constraint, schema, f"{place}, message")


def _check_evaluated(constraint: Constraint, schema: StateSchema, place: str) -> None:
    """Refuse a rule that nothing evaluates, or whose details nobody gives."""
    if constraint.action is not None:
        return
    named = _details(constraint)
    if constraint.deadline is not None:
        unknown = named - offered(constraint, schema)
        if unknown:
            raise InputError(f"a deadline offers no detail {min(unknown)!r}", place=place)
        return
    is_standing = constraint.when is not None or constraint.each is not None
    has_window = constraint.active_from is not None or constraint.active_until is not None
    if named or not (is_standing or has_window):
        raise InputError(
            "the rule would never be evaluated",
            place=place,
            fix="give an action, a deadline, an active window, or a condition without details",
        )


def _check_message(constraint: Constraint, schema: StateSchema, place: str) -> None:
    _check_slots(constraint.message, place)
    known = slot_names(constraint, schema)
    for slot in slots(constraint.message):
        if known is not None and slot not in known:
            raise InputError(
                f"nothing fills {{{slot}}} in",
                place=place,
                fix=f"use {', '.join(sorted(known))}" if known else "write it without {…}",
            )


def _details(constraint: Constraint) -> set[str]:
    return {*details_in(constraint.when), *details_in(constraint.each)}


def slot_names(constraint: Constraint, schema: StateSchema) -> set[str] | None:
    """Return the names that a message may have in braces; None if only a caller knows them.

    That is so before an action, if the condition names no detail at all.
    """
    named = _details(constraint)
    if constraint.action is None:
        return offered(constraint, schema)
    return (named | offered(constraint, schema)) if named else None


def offered(constraint: Constraint, schema: StateSchema) -> set[str]:
    """Return the names that a rule offers itself: its record's fields, and its deadline's."""
    about: Json = constraint.each or {}
    names: set[str] = set()
    if constraint.deadline is not None:
        names.update(_OF_DEADLINE)
        about = constraint.deadline if isinstance(constraint.deadline, dict) else {}
    if "in" in about:
        type_ = Conditions(schema, "").collection(about["in"])
    elif "profile" in about:
        type_ = schema.types[PROFILE]
    else:
        return names
    return names | {name for one in type_.fields.values() for name in (one.name, one.given)}


def rule_key(constraint: Constraint) -> str:
    """Return what a verdict is about: a rule with this content, whoever said it."""
    content = msgspec.structs.replace(constraint, events=[], verdict="proposed")
    written = msgspec.json.encode(content, order="deterministic")
    return f"{constraint.id} {sha256(written).hexdigest()[:32]}"


def written_condition(constraint: Constraint, schema: StateSchema) -> str:
    """Write when a rule fires as Python, for people who accept it."""
    code = Conditions(schema, f"constraint {constraint.id!r}")
    parts = [] if constraint.when is None else [code.condition(constraint.when)]
    if constraint.each is not None:
        parts.append(code.each(constraint.each))
    if isinstance(constraint.deadline, dict):
        parts.append(code.deadlines(constraint.deadline))
    return "; ".join(parts)


def slots(message: str) -> list[str]:
    """Return the names between braces."""
    return _SLOT.findall(message)


_MOMENT = timedelta(microseconds=1)
F = TypeVar("F", bound=Callable[..., Any])


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that fired. If `error` is set, the rule itself failed and its result is unknown.

    days_remaining: whole days until it is due, by the calendar in UTC; negative once overdue.
    proposed: a model derived the rule, and nobody has accepted it yet.
    """

    severity: Severity
    message: str
    rule: str
    event_ids: tuple[str, ...] = ()
    due: datetime | None = None
    overdue: bool = False
    days_remaining: int | None = None
    proposed: bool = False
    error: str = ""


class Fired(msgspec.Struct, frozen=True):
    """What a rule may return: a message, with records or event ids as its evidence."""

    message: str
    evidence: Sequence[Any] = ()
    severity: Severity | None = None


class UserRule(msgspec.Struct, frozen=True):
    """A decorated function. `action` is None for an alert."""

    name: str
    severity: Severity
    function: Callable[..., Any]
    action: str | None
    uses: frozenset[str]


def rule(action: str, *, severity: Severity = "warning") -> Callable[[F], F]:
    """Mark a function to be called before an action, as `function(state, **details)`."""
    return _marker(action, severity)


def alert(*, severity: Severity = "warning") -> Callable[[F], F]:
    """Mark a function that finds what is due, called as `function(state, now)`."""
    return _marker(None, severity)


def _marker(action: str | None, severity: Severity) -> Callable[[F], F]:
    if severity not in RANKS:
        raise InputError(
            f"severity must be {', '.join(RANKS)}, got {severity!r}", place=f"rule for {action!r}"
        )

    def mark(function: F) -> F:
        name = function.__name__
        try:
            uses = names_in(inspect.cleandoc(inspect.getsource(function)))
        except (OSError, TypeError):
            uses = frozenset()
        found = UserRule(name, severity, function, action, uses)
        function.em_rule = found  # type: ignore[attr-defined]  # collect() looks for it
        return function

    return mark


def collect(namespace: Mapping[str, Any]) -> list[UserRule]:
    """Return the decorated functions of a module."""
    found = [getattr(value, "em_rule", None) for value in namespace.values()]
    return sorted((one for one in found if isinstance(one, UserRule)), key=lambda one: one.name)


def load_rules(file: str | Path) -> list[UserRule]:
    """Load the rules in a Python file of the user. The file runs in this process."""
    import importlib.util

    path = Path(file)
    spec = importlib.util.spec_from_file_location(f"em_rules_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError("expected a Python file", place=str(path), fix="name a .py file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"the file does not run: {type(error).__name__}: {error}", place=str(path)
        ) from error
    return collect(vars(module))


class Dependent(msgspec.Struct, frozen=True):
    """A stored question or a rule, with the names of the state that its code uses."""

    what: str
    uses: frozenset[str]


_PARSING = Lock()
"""Python 3.11 counts the depth of trees for all threads at once, and fails if two build trees."""


def names_in(code: str) -> frozenset[str]:
    """Return the names and attributes that code mentions; none if it is not valid Python."""
    try:
        with _PARSING:
            tree = module_of(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return frozenset(names | {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)})


def dependents(rules: Iterable[UserRule]) -> list[Dependent]:
    """Return the rules as dependents: the names of the state that each of them uses."""
    return [Dependent(f"rule {one.name}", one.uses) for one in rules]


def check(
    state: Any,
    rules: Iterable[UserRule],
    action: str | None,
    details: Mapping[str, Any],
    now: datetime,
) -> list[Alert]:
    """Return the rules that fire before an action, the worst first; without one, what is due.

    A rule that fails is an alert, too.
    """
    found: list[Alert] = []
    for compiled in state.module.RULES:
        if compiled.action == action and _is_active(compiled, now):
            has_deadline = compiled.deadline is not None or compiled.deadlines is not None
            find = _due if action is None and has_deadline else _fired
            try:
                found += [*find(compiled, state, {**details, "now": now})]
            except Exception as error:  # noqa: BLE001 - a rule that raises must not hide the others
                failed = _failed(compiled, compiled.id, error)
                found.append(msgspec.structs.replace(failed, proposed=compiled.proposed))
    for own in rules:
        if own.action == action:
            try:
                given = (state, now) if action is None else (state,)
                found += [*_own(own, own.function(*given, **details))]
            except Exception as error:  # noqa: BLE001 - as above
                found.append(_failed(own, own.name, error))
    return sorted(found, key=lambda one: (RANKS[one.severity], one.rule, one.message))


def _failed(rule_: Any, name: str, error: Exception) -> Alert:
    why = f"{type(error).__name__}: {error}"
    return Alert(severity=rule_.severity, message="the rule failed", rule=name, error=why)


def _is_active(compiled: Any, now: datetime) -> bool:
    begun = compiled.active_from is None or moment(compiled.active_from) <= now
    return begun and (compiled.active_until is None or now < moment(compiled.active_until))


def _fired(compiled: Any, state: Any, details: Mapping[str, Any]) -> Iterator[Alert]:
    """Yield an alert if the condition holds, or one for each record that the rule is about."""
    if not compiled.holds(state.view, details):
        return
    about = [None] if compiled.each is None else compiled.each(state.view, details)
    for who in about:
        yield _alert(compiled, who, {**_fields_of(who, state), **details})


def _alert(compiled: Any, who: Any, details: Mapping[str, Any], **more: Any) -> Alert:
    ids = (*compiled.event_ids, *getattr(who, "event_ids", ()))
    return Alert(
        severity=compiled.severity,
        message=filled(compiled.message, details),
        rule=compiled.id,
        event_ids=tuple(dict.fromkeys(ids)),
        proposed=compiled.proposed,
        **more,
    )


def filled(message: str, details: Mapping[str, Any]) -> str:
    """Put details into a message. A detail's own braces are never filled in again."""
    parts = message.replace("}", "{").split("{")
    return "".join(
        part if number % 2 == 0 else _written(part, details) for number, part in enumerate(parts)
    )


def _written(name: str, details: Mapping[str, Any]) -> str:
    value = details.get(name)
    if value is None:
        return f"({name}: not given)"
    is_money = hasattr(value, "currency")
    return f"{value.amount} {value.currency}" if is_money else str(value)


def _due(compiled: Any, state: Any, given: Mapping[str, Any]) -> Iterator[Alert]:
    now = given["now"]
    for who, when in _deadlines(compiled, state, given):
        alert_from, overdue_from = _alert_times(when, compiled.offset)
        if now < alert_from:
            continue
        due_ = moment(when)
        days = (due_.date() - now.date()).days
        details = _fields_of(who, state) | {"now": now}
        details |= {"deadline": due_.date().isoformat(), "days_remaining": days}
        if compiled.holds(state.view, details):
            overdue = now >= overdue_from
            yield _alert(compiled, who, details, due=due_, overdue=overdue, days_remaining=days)


def _deadlines(compiled: Any, state: Any, given: Mapping[str, Any]) -> Iterator[tuple[Any, date]]:
    """Yield each deadline of a rule with its record."""
    if compiled.deadlines is not None:
        found = compiled.deadlines(state.view, given)
        yield from ((who, when) for who, when in found if when is not None)
    elif len(compiled.deadline) == len("2025-06-01"):
        yield None, date.fromisoformat(compiled.deadline)
    else:
        yield None, moment(compiled.deadline)


def _alert_times(when: date, offset: str | None) -> tuple[datetime, datetime]:
    """Return (alert_from, overdue_from). A date is overdue the day after."""
    due = moment(when)
    lead = parse_duration(offset, "offset") if offset else timedelta(0)
    return due - lead, due + timedelta(days=1) if type(when) is date else due + _MOMENT


def _fields_of(who: Any, state: Any) -> dict[str, Any]:
    """Return the fields of a rule's record by both their names, for its message."""
    if who is None:
        return {}
    found = {field.name: getattr(who, field.name) for field in fields(who)}
    given = state.module.NAMES.get(type(who).__name__, {})
    return found | {given[name]: value for name, value in found.items() if name in given}


def _own(own: UserRule, returned: Any) -> Iterator[Alert]:
    """Turn what a user's function returned into alerts. True stands for its docstring."""
    if isinstance(returned, list | tuple):
        for one in returned:
            yield from _own(own, one)
        return
    if returned is None or returned is False or returned == "":
        return
    if returned is True:
        returned = (own.function.__doc__ or own.name).strip().partition("\n")[0]
    fired = returned if isinstance(returned, Fired) else Fired(str(returned))
    yield Alert(
        severity=fired.severity or own.severity,
        message=fired.message,
        rule=own.name,
        event_ids=_evidence(fired.evidence),
    )


def _evidence(given: Sequence[Any]) -> tuple[str, ...]:
    ids: list[str] = []
    for one in given:
        ids += [one] if isinstance(one, str) else getattr(one, "event_ids", ())
    return tuple(dict.fromkeys(ids))
