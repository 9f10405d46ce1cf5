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
"180d"} is one deadline for each record, {"profile": "passport_expires"} the current value. A
condition is a comparison, `all`, `any` or `not` of conditions, or `some` record of a collection.
A message names details, by `{name}` alone: it can't reach attributes or use format specs.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from em.errors import InputError
from em.state.evolution import Dependent, names_in
from em.state.schema import (
    PROFILE,
    ActiveWindow,
    Constraint,
    ConstraintDraft,
    Severity,
    StateSchema,
    TypeSchema,
)
from em.state.types import quoted, resolve
from em.values.canonical import Json
from em.values.mismatch import mismatch
from em.values.times import moment, parse_duration

RANKS: Mapping[str, int] = {"critical": 0, "high": 1, "warning": 2, "info": 3}
"""Severities, the worst first."""
OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "contains")
MAX_DEPTH = 12

_ID = re.compile(r"[a-z][a-z0-9_-]{0,59}")
_SLOT = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")


def read_constraint(given: Json, schema: StateSchema, events: list[str]) -> Constraint:
    """Read a constraint that can be compiled; InputError says why it can't."""
    place = f"constraint {str(given.get('id', ''))[:60]!r}"
    try:
        draft = msgspec.convert(given, ConstraintDraft)
    except msgspec.ValidationError as error:
        raise InputError(mismatch(error).message, place=mismatch(error).place(place)) from None
    return checked_constraint(draft, schema, events)


def checked_constraint(
    draft: ConstraintDraft, schema: StateSchema, events: list[str]
) -> Constraint:
    """Check a constraint and fix its times; InputError says what can't be compiled."""
    place = f"constraint {draft.id[:60]!r}"
    if not _ID.fullmatch(draft.id):
        raise InputError(
            "the id must be lower-case letters, digits, _ and -, starting with a letter",
            place=place,
        )
    active = draft.active or ActiveWindow()
    constraint = Constraint(
        id=draft.id,
        severity=draft.severity,
        message=draft.message,
        action=draft.action,
        when=draft.when,
        active_from=_time(active.from_, place),
        active_until=_time(active.until, place),
        deadline=_deadline(draft.deadline, place),
        offset=draft.offset,
        events=events,
    )
    check_constraint(constraint, schema)
    return constraint


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
    """Refuse a constraint whose message, condition or deadline can't be compiled."""
    place = f"constraint {constraint.id!r}"
    for slot in slots(constraint.message):
        if not _NAME.fullmatch(slot):
            raise InputError(
                f"expected the name of a detail in braces, got {{{slot[:60]}}}",
                place=f"{place}, message",
                fix="write {name}: attributes, indexes and format specs are not allowed",
            )
    if re.sub(_SLOT, "", constraint.message).count("{") or "}" in _SLOT.sub("", constraint.message):
        raise InputError("a brace has no partner", place=f"{place}, message")
    if constraint.offset is not None:
        parse_duration(constraint.offset, "offset", place=place)
    if constraint.when is not None:
        condition_code(constraint.when, schema, f"{place}, when")
    if isinstance(constraint.deadline, dict):
        deadlines_code(constraint.deadline, schema, f"{place}, deadline")
    if constraint.action is None and not (
        constraint.deadline or constraint.active_from or constraint.active_until
    ):
        raise InputError(
            "the rule would never be evaluated",
            place=place,
            fix="give an action, a deadline or an active window",
        )


def slots(message: str) -> list[str]:
    """Return the names between braces."""
    return _SLOT.findall(message)


def deadlines_code(given: Json, schema: StateSchema, place: str) -> str:
    """Write the Python for deadlines in a field: pairs of a record and its deadline."""
    rest = {name: value for name, value in given.items() if name not in ("field", "plus")}
    if rest.keys() == {"profile"} and "field" not in given:
        type_, who, loop = schema.types.get(PROFILE), "state.profile", ""
        name = _field(rest["profile"], type_, place)
    else:
        type_ = _collection(rest.get("in"), schema, place)
        who, loop = "item", f" {_loop(rest, schema, place, 0)}"
        name = _field(given.get("field"), type_, place)
    assert type_ is not None  # _field raised otherwise
    field = next(one for one in type_.fields.values() if one.name == name)
    if not resolve(field).target.startswith("date"):
        raise InputError(
            f"the field {name!r} has no dates", place=place, fix="name a field with dates"
        )
    when = f"{who}.{name}"
    if given.get("plus") is not None:
        plus = parse_duration(str(given["plus"]), "plus", place=place)
        seconds = plus.days * 86_400 + plus.seconds
        when = f"_plus({when}, {seconds})"
    return f"[({who}, {when}){loop}]"


def condition_code(
    condition: Any, schema: StateSchema, place: str, item: TypeSchema | None = None, depth: int = 0
) -> str:
    """Write a condition as a Python expression over `state`, `details` and `item`."""
    if depth > MAX_DEPTH:
        raise InputError(f"conditions may be nested {MAX_DEPTH} levels deep", place=place)
    if not isinstance(condition, dict):
        raise InputError(f"a condition must be an object, got {str(condition)[:60]!r}", place=place)
    if "op" in condition:
        return _comparison(condition, schema, place, item, depth)
    if len(condition) == 1:
        ((word, inner),) = condition.items()
        if word in ("all", "any") and isinstance(inner, list) and inner:
            join = " and " if word == "all" else " or "
            parts = (condition_code(part, schema, place, item, depth + 1) for part in inner)
            return f"({join.join(parts)})"
        if word == "not":
            return f"(not {condition_code(inner, schema, place, item, depth + 1)})"
        if word == "some":
            return f"any(True {_loop(inner, schema, place, depth)})"
    raise InputError(
        f"expected a condition, got an object with {str(sorted(condition))[:80]}",
        place=place,
        fix="use op with left and right, or all, any, not, some",
    )


def _comparison(
    given: Json, schema: StateSchema, place: str, item: TypeSchema | None, depth: int
) -> str:
    if given.keys() != {"op", "left", "right"} or given["op"] not in OPERATORS:
        raise InputError(
            f"a comparison needs op, left and right; op is {given.get('op')!r}"[:120],
            place=place,
            fix=f"the operators are {' '.join(OPERATORS)}",
        )
    left = _operand(given["left"], schema, place, item, depth)
    right = _operand(given["right"], schema, place, item, depth)
    return f"_holds({left}, {quoted(given['op'])}, {right})"


def _loop(given: Any, schema: StateSchema, place: str, depth: int) -> str:
    if not isinstance(given, dict) or "in" not in given or given.keys() - {"in", "where"}:
        raise InputError(
            "expected an object with `in` (a collection) and perhaps `where` (a condition)",
            place=place,
        )
    type_ = _collection(given["in"], schema, place)
    where = given.get("where")
    test = ""
    if where is not None:
        test = f" if {condition_code(where, schema, place, type_, depth + 1)}"
    return f"for item in state.{type_.collection}{test}"


def _collection(name: Any, schema: StateSchema, place: str) -> TypeSchema:
    for type_ in schema.types.values():
        if name in (type_.collection, type_.name, type_.given) and type_.given != PROFILE:
            return type_
    known = ", ".join(sorted(type_.collection for type_ in schema.types.values()))
    raise InputError(
        f"no collection {str(name)[:60]!r}", place=place, fix=f"the collections are {known}"
    )


def _operand(
    given: Any, schema: StateSchema, place: str, item: TypeSchema | None, depth: int
) -> str:
    if not isinstance(given, dict) or len(given) != 1:
        raise InputError("an operand must be an object with one key", place=place)
    ((kind, inner),) = given.items()
    make = _OPERANDS.get(kind)
    if make is None:
        raise InputError(
            f"unknown operand {str(kind)[:40]!r}", place=place, fix=f"use {', '.join(_OPERANDS)}"
        )
    return make(inner, schema, place, item, depth)


def _detail(inner: Any, _schema: StateSchema, place: str, _item: Any, _depth: int) -> str:
    if not isinstance(inner, str) or not _NAME.fullmatch(inner):
        raise InputError(f"expected the name of a detail, got {str(inner)[:60]!r}", place=place)
    return f"details.get({quoted(inner)})"


def _profile(inner: Any, schema: StateSchema, place: str, _item: Any, _depth: int) -> str:
    profile = schema.types.get(PROFILE)
    return f"state.profile.{_field(inner, profile, place)}"


def _item_field(
    inner: Any, _schema: StateSchema, place: str, item: TypeSchema | None, _depth: int
) -> str:
    return f"item.{_field(inner, item, place)}"


def _field(given: Any, type_: TypeSchema | None, place: str) -> str:
    for field in () if type_ is None else type_.fields.values():
        if given in (field.given, field.name):
            return field.name
    raise InputError(f"no field {str(given)[:60]!r}", place=place)


def _value(inner: Any, _schema: StateSchema, _place: str, _item: Any, _depth: int) -> str:
    return literal(inner)


def _count(inner: Any, schema: StateSchema, place: str, _item: Any, depth: int) -> str:
    return f"sum(1 {_loop(inner, schema, place, depth)})"


def _sum(inner: Any, schema: StateSchema, place: str, _item: Any, depth: int) -> str:
    if not isinstance(inner, dict) or "field" not in inner:
        raise InputError("a sum needs a `field`", place=place)
    rest = {name: value for name, value in inner.items() if name != "field"}
    type_ = _collection(rest.get("in"), schema, place)
    name = _field(inner["field"], type_, place)
    return f"sum(item.{name} or 0 {_loop(rest, schema, place, depth)})"


_OPERANDS: Mapping[str, Callable[[Any, StateSchema, str, Any, int], str]] = {
    "detail": _detail,
    "profile": _profile,
    "item": _item_field,
    "value": _value,
    "count": _count,
    "sum": _sum,
}


def literal(value: Any) -> str:
    """Write a JSON value as a Python literal."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(k)}: {literal(v)}" for k, v in value.items()) + "}"
    return repr(value)


_MOMENT = timedelta(microseconds=1)
F = TypeVar("F", bound=Callable[..., Any])


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that fired. If `error` is set, the rule itself failed and its result is unknown."""

    severity: Severity
    message: str
    rule: str
    event_ids: tuple[str, ...] = ()
    due: datetime | None = None
    overdue: bool = False
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


def dependents(rules: Iterable[UserRule]) -> list[Dependent]:
    """Return the rules as dependents: the names of the state that each of them uses."""
    return [Dependent(f"rule {one.name}", one.uses) for one in rules]


def check(
    state: Any, rules: Iterable[UserRule], action: str, details: Mapping[str, Any], now: datetime
) -> list[Alert]:
    """Return the rules that fire before an action, the worst first. A failing rule is an alert."""
    found: list[Alert] = []
    for compiled in state.module.RULES:
        if compiled.action == action and _is_active(compiled, now):
            found += _try(compiled.id, compiled.severity, _compiled, compiled, state, details)
    for own in rules:
        if own.action == action:
            found += _try(own.name, own.severity, _asked, own, state, details)
    return _sorted(found)


def due(state: Any, rules: Iterable[UserRule], now: datetime) -> list[Alert]:
    """Return what is due now: deadlines, active windows, and what the user's alerts find."""
    found: list[Alert] = []
    for compiled in state.module.RULES:
        if compiled.action is None and _is_active(compiled, now):
            found += _try(compiled.id, compiled.severity, _due, compiled, state, now)
    for own in rules:
        if own.action is None:
            found += _try(own.name, own.severity, _found_due, own, state, now)
    return _sorted(found)


def _sorted(found: list[Alert]) -> list[Alert]:
    return sorted(found, key=lambda one: (RANKS[one.severity], one.rule, one.message))


def _try(
    name: str, severity: Severity, run: Callable[..., Iterator[Alert]], *given: Any
) -> list[Alert]:
    try:
        return list(run(*given))
    except Exception as error:  # noqa: BLE001 - a rule that raises must not hide the others
        why = f"{type(error).__name__}: {error}"
        return [Alert(severity=severity, message="the rule failed", rule=name, error=why)]


def _is_active(compiled: Any, now: datetime) -> bool:
    begun = compiled.active_from is None or moment(compiled.active_from) <= now
    return begun and (compiled.active_until is None or now < moment(compiled.active_until))


def _compiled(compiled: Any, state: Any, details: Mapping[str, Any]) -> Iterator[Alert]:
    if compiled.holds(state, details):
        yield Alert(
            severity=compiled.severity,
            message=filled(compiled.message, details),
            rule=compiled.id,
            event_ids=tuple(compiled.event_ids),
        )


def filled(message: str, details: Mapping[str, Any]) -> str:
    """Put details into a message. A detail's own braces are never filled in again."""
    parts = message.replace("}", "{").split("{")
    return "".join(
        part if number % 2 == 0 else str(details.get(part, f"{{{part}}}"))
        for number, part in enumerate(parts)
    )


def _due(compiled: Any, state: Any, now: datetime) -> Iterator[Alert]:
    for who, when in _deadlines(compiled, state):
        details = _details(who)
        alert_from, overdue_from = (
            (None, None) if when is None else _alert_times(when, compiled.offset)
        )
        if (alert_from is not None and now < alert_from) or not compiled.holds(state, details):
            continue
        if when is not None:
            details["deadline"] = moment(when).date().isoformat()
        ids = (*compiled.event_ids, *getattr(who, "event_ids", ()))
        yield Alert(
            severity=compiled.severity,
            message=filled(compiled.message, details),
            rule=compiled.id,
            event_ids=tuple(dict.fromkeys(ids)),
            due=None if when is None else moment(when),
            overdue=overdue_from is not None and now >= overdue_from,
        )


def _deadlines(compiled: Any, state: Any) -> Iterator[tuple[Any, date | None]]:
    """Yield each deadline of a rule with its record. A rule without deadlines yields one None."""
    if compiled.deadlines is not None:
        yield from ((who, when) for who, when in compiled.deadlines(state) if when is not None)
    elif compiled.deadline is None:
        yield None, None
    elif len(compiled.deadline) == len("2025-06-01"):
        yield None, date.fromisoformat(compiled.deadline)
    else:
        yield None, moment(compiled.deadline)


def _alert_times(when: date, offset: str | None) -> tuple[datetime, datetime]:
    """Return (alert_from, overdue_from). A date is overdue the day after."""
    due = moment(when)
    lead = parse_duration(offset, "offset") if offset else timedelta(0)
    return due - lead, due + timedelta(days=1) if type(when) is date else due + _MOMENT


def _details(who: Any) -> dict[str, Any]:
    """Return the fields of a deadline's record, which its message may name."""
    return {} if who is None else {field.name: getattr(who, field.name) for field in fields(who)}


def _asked(own: UserRule, state: Any, details: Mapping[str, Any]) -> Iterator[Alert]:
    return _own(own, own.function(state, **details))


def _found_due(own: UserRule, state: Any, now: datetime) -> Iterator[Alert]:
    return _own(own, own.function(state, now))


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
