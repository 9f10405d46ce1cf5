"""Rules in a checked JSON format, compiled to readable Python. A model never writes code here.

    {"id": "nsaid", "severity": "high", "action": "take", "message": "{drug} is an NSAID",
     "when": {"op": "in", "left": {"detail": "drug"}, "right": {"value": ["ibuprofen"]}},
     "active": {"from": "2025-04-01", "until": null}, "deadline": "2025-06-01", "offset": "14d"}

A deadline may also be where it is known: {"in": "visits", "field": "date", "plus": "180d"} is one
for each record, {"profile": "passport_expires"} the current value.

A condition is a comparison, `all`, `any` or `not` of conditions, or `some` record of a collection.
A message names details, by `{name}` alone: nothing in it reaches for attributes or formats.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from em.errors import InputError
from em.state.schema import PROFILE, Constraint, StateSchema, TypeSchema
from em.state.types import quoted, resolve
from em.values import json_schema as schemas
from em.values.canonical import Json
from em.values.times import moment, parse_duration

SEVERITIES = ("info", "warning", "high", "critical")
OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "contains")
MAX_DEPTH = 12

_ID = re.compile(r"[a-z][a-z0-9_-]{0,59}")
_SLOT = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")

CONSTRAINT_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "severity": {"enum": list(SEVERITIES)},
        "message": {"type": "string", "minLength": 1},
        "action": {"type": ["string", "null"]},
        "when": {"type": ["object", "null"]},
        "active": {
            "type": ["object", "null"],
            "properties": {
                "from": {"type": ["string", "null"]},
                "until": {"type": ["string", "null"]},
            },
            "additionalProperties": False,
        },
        "deadline": {"type": ["string", "object", "null"]},
        "offset": {"type": ["string", "null"]},
        "events": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["id", "severity", "message"],
    "additionalProperties": False,
}


def read_constraint(given: Json, schema: StateSchema, events: list[str]) -> Constraint:
    """A constraint that can be compiled; else why not."""
    place = f"constraint {str(given.get('id', ''))[:60]!r}"
    for path, problem in schemas.problems(CONSTRAINT_SCHEMA, given):
        raise InputError(problem, place=f"{place}, {path or 'itself'}")
    if not _ID.fullmatch(given["id"]):
        raise InputError("an id is lower-case letters, digits, _ and -", place=place)
    active = given.get("active") or {}
    constraint = Constraint(
        id=given["id"],
        severity=given["severity"],
        message=given["message"],
        action=given.get("action"),
        when=given.get("when"),
        active_from=_time(active.get("from"), place),
        active_until=_time(active.get("until"), place),
        deadline=_deadline(given.get("deadline"), place),
        offset=given.get("offset"),
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
