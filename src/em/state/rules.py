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
        raise InputError("an id is lower-case letters, digits, _ and -", place=place)
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
    """A deadline as it is kept; a day stays a day, which is over when it ends."""
    if isinstance(given, str) and len(given.strip()) > len("2025-06-01"):
        return _time(given, place)
    if isinstance(given, str):
        return moment(given, place).date().isoformat()
    found: Json | None = given
    return found


def check_constraint(constraint: Constraint, schema: StateSchema) -> None:
    """Refuse a template that does more than name details, and names that are not there."""
    place = f"constraint {constraint.id!r}"
    for slot in slots(constraint.message):
        if not _NAME.fullmatch(slot):
            raise InputError(
                f"{{{slot[:60]}}} is no name of a detail",
                place=f"{place}, message",
                fix="a message may hold {name}, and nothing that reaches further",
            )
    if re.sub(_SLOT, "", constraint.message).count("{") or "}" in _SLOT.sub("", constraint.message):
        raise InputError("a brace without its partner", place=f"{place}, message")
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
            "it would never be asked",
            place=place,
            fix="give an action, a deadline or an active window",
        )


def slots(message: str) -> list[str]:
    """The names between braces."""
    return _SLOT.findall(message)


def deadlines_code(given: Json, schema: StateSchema, place: str) -> str:
    """Deadlines that follow a field, as Python: pairs of who has one and when it is."""
    rest = {name: value for name, value in given.items() if name not in ("field", "plus")}
    if rest.keys() == {"profile"} and "field" not in given:
        type_, who, loop = schema.types.get(PROFILE), "state.profile", ""
        name = _field(rest["profile"], type_, place)
    else:
        type_ = _collection(rest.get("in"), schema, place)
        who, loop = "item", f" {_loop(rest, schema, place, 0)}"
        name = _field(given.get("field"), type_, place)
    assert type_ is not None  # else it would have no field
    field = next(one for one in type_.fields.values() if one.name == name)
    if not resolve(field).target.startswith("date"):
        raise InputError(f"{name!r} holds no dates", place=place, fix="name a field with dates")
    when = f"{who}.{name}"
    if given.get("plus") is not None:
        plus = parse_duration(str(given["plus"]), "plus", place=place)
        seconds = plus.days * 86_400 + plus.seconds
        when = f"_plus({when}, {seconds})"
    return f"[({who}, {when}){loop}]"


def condition_code(
    condition: Any, schema: StateSchema, place: str, item: TypeSchema | None = None, depth: int = 0
) -> str:
    """A condition as a Python expression over `state`, `details` and `item`."""
    if depth > MAX_DEPTH:
        raise InputError("nested too deep", place=place)
    if not isinstance(condition, dict):
        raise InputError("a condition is an object", place=place)
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
        f"{str(sorted(condition))[:80]} is no condition",
        place=place,
        fix="use op with left and right, or all, any, not, some",
    )


def _comparison(
    given: Json, schema: StateSchema, place: str, item: TypeSchema | None, depth: int
) -> str:
    if given.keys() != {"op", "left", "right"} or given["op"] not in OPERATORS:
        raise InputError(
            f"{given.get('op')!r} is no comparison"[:80],
            place=place,
            fix=f"give op ({', '.join(OPERATORS)}), left and right",
        )
    left = _operand(given["left"], schema, place, item, depth)
    right = _operand(given["right"], schema, place, item, depth)
    return f"_holds({left}, {quoted(given['op'])}, {right})"


def _loop(given: Any, schema: StateSchema, place: str, depth: int) -> str:
    if not isinstance(given, dict) or "in" not in given or given.keys() - {"in", "where"}:
        raise InputError("say `in` which collection, and `where`", place=place)
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
        f"there is no collection {str(name)[:60]!r}", place=place, fix=f"there are: {known}"
    )


def _operand(
    given: Any, schema: StateSchema, place: str, item: TypeSchema | None, depth: int
) -> str:
    if not isinstance(given, dict) or len(given) != 1:
        raise InputError("an operand is an object with one name", place=place)
    ((kind, inner),) = given.items()
    make = _OPERANDS.get(kind)
    if make is None:
        raise InputError(
            f"{str(kind)[:40]!r} is no operand", place=place, fix=f"use {', '.join(_OPERANDS)}"
        )
    return make(inner, schema, place, item, depth)


def _detail(inner: Any, _schema: StateSchema, place: str, _item: Any, _depth: int) -> str:
    if not isinstance(inner, str) or not _NAME.fullmatch(inner):
        raise InputError(f"{str(inner)[:60]!r} is no name of a detail", place=place)
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
    raise InputError(f"there is no field {str(given)[:60]!r}", place=place)


def _value(inner: Any, _schema: StateSchema, _place: str, _item: Any, _depth: int) -> str:
    return literal(inner)


def _count(inner: Any, schema: StateSchema, place: str, _item: Any, depth: int) -> str:
    return f"sum(1 {_loop(inner, schema, place, depth)})"


def _sum(inner: Any, schema: StateSchema, place: str, _item: Any, depth: int) -> str:
    if not isinstance(inner, dict) or "field" not in inner:
        raise InputError("a sum names a field", place=place)
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
    """A JSON value as Python writes it."""
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
    """A rule that fired, or that failed: then `error` says how, and nothing is known of it."""

    severity: Severity
    message: str
    rule: str
    event_ids: tuple[str, ...] = ()
    due: datetime | None = None
    overdue: bool = False
    error: str = ""


class Fired(msgspec.Struct, frozen=True):
    """What a rule may return: its message, and the records or event ids that speak for it."""

    message: str
    evidence: Sequence[Any] = ()
    severity: Severity | None = None


class UserRule(msgspec.Struct, frozen=True):
    """A decorated function. `action` is None for one that finds what is due."""

    name: str
    severity: Severity
    function: Callable[..., Any]
    action: str | None
    uses: frozenset[str]


def rule(action: str, *, severity: Severity = "warning") -> Callable[[F], F]:
    """Mark a function that is asked before an action: `(state, **details)`."""
    return _marker(action, severity)


def alert(*, severity: Severity = "warning") -> Callable[[F], F]:
    """Mark a function that finds what is due: `(state, now)`."""
    return _marker(None, severity)


def _marker(action: str | None, severity: Severity) -> Callable[[F], F]:
    if severity not in RANKS:
        raise InputError(f"{severity!r} is no severity", place="rule", fix=", ".join(RANKS))

    def mark(function: F) -> F:
        name = function.__name__
        try:
            uses = names_in(inspect.cleandoc(inspect.getsource(function)))
        except (OSError, TypeError):
            uses = frozenset()
        found = UserRule(name, severity, function, action, uses)
        function.em_rule = found  # type: ignore[attr-defined]  # how it is found in its module
        return function

    return mark


def collect(namespace: Mapping[str, Any]) -> list[UserRule]:
    """The decorated functions of a module."""
    found = [getattr(value, "em_rule", None) for value in namespace.values()]
    return sorted((one for one in found if isinstance(one, UserRule)), key=lambda one: one.name)


def load_rules(file: str | Path) -> list[UserRule]:
    """The rules in a Python file of the user's own; it runs in the process, as their code does."""
    import importlib.util

    path = Path(file)
    spec = importlib.util.spec_from_file_location(f"em_rules_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InputError("this is no Python file", place=str(path), fix="name a .py file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"it does not run: {type(error).__name__}: {error}", place=str(path)
        ) from error
    return collect(vars(module))


def dependents(rules: Iterable[UserRule]) -> list[Dependent]:
    """The rules as what depends on a state's names."""
    return [Dependent(f"rule {one.name}", one.uses) for one in rules]


def check(
    state: Any, rules: Iterable[UserRule], action: str, details: Mapping[str, Any], now: datetime
) -> list[Alert]:
    """The rules that fire before an action, the worst first; one that raises is told as such."""
    found: list[Alert] = []
    for compiled in state.module.RULES:
        if compiled.action == action and _is_active(compiled, now):
            found += _try(compiled.id, compiled.severity, _compiled, compiled, state, details)
    for own in rules:
        if own.action == action:
            found += _try(own.name, own.severity, _asked, own, state, details)
    return _sorted(found)


def due(state: Any, rules: Iterable[UserRule], now: datetime) -> list[Alert]:
    """What is due now: deadlines, active windows, and what the user's own rules find."""
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
        said = f"{type(error).__name__}: {error}"
        return [Alert(severity=severity, message="the rule failed", rule=name, error=said)]


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
    """A message with its details; each is put in once, and never read as a template."""
    parts = message.replace("}", "{").split("{")
    return "".join(
        part if number % 2 == 0 else str(details.get(part, f"{{{part}}}"))
        for number, part in enumerate(parts)
    )


def _due(compiled: Any, state: Any, now: datetime) -> Iterator[Alert]:
    for who, when in _deadlines(compiled, state):
        details = _details(who)
        told, ends = (None, None) if when is None else _from_to(when, compiled.offset)
        if (told is not None and now < told) or not compiled.holds(state, details):
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
            overdue=ends is not None and now >= ends,
        )


def _deadlines(compiled: Any, state: Any) -> Iterator[tuple[Any, date | None]]:
    """Every deadline of a rule, with the record that has it; None for one without any."""
    if compiled.deadlines is not None:
        yield from ((who, when) for who, when in compiled.deadlines(state) if when is not None)
    elif compiled.deadline is None:
        yield None, None
    elif len(compiled.deadline) == len("2025-06-01"):
        yield None, date.fromisoformat(compiled.deadline)
    else:
        yield None, moment(compiled.deadline)


def _from_to(when: date, offset: str | None) -> tuple[datetime, datetime]:
    """From when on a deadline is told, and when it is over: a day with its end."""
    due = moment(when)
    lead = parse_duration(offset, "offset") if offset else timedelta(0)
    return due - lead, due + timedelta(days=1) if type(when) is date else due + _MOMENT


def _details(who: Any) -> dict[str, Any]:
    """What a message may say of the record that a deadline is of."""
    return {} if who is None else {field.name: getattr(who, field.name) for field in fields(who)}


def _asked(own: UserRule, state: Any, details: Mapping[str, Any]) -> Iterator[Alert]:
    return _own(own, own.function(state, **details))


def _found_due(own: UserRule, state: Any, now: datetime) -> Iterator[Alert]:
    return _own(own, own.function(state, now))


def _own(own: UserRule, said: Any) -> Iterator[Alert]:
    if isinstance(said, list | tuple):
        for one in said:
            yield from _own(own, one)
        return
    if said is None or said is False or said == "":
        return
    if said is True:
        said = (own.function.__doc__ or own.name).strip().partition("\n")[0]
    fired = said if isinstance(said, Fired) else Fired(str(said))
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
