"""From the profile of a field to its Python type, and from a given value to what that type reads.

A value whose typed form does not come back as it was given is kept beside it (`as_given`).
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from em.state.profile import (
    TEXTS,
    to_date,
    to_datetime,
    to_decimal,
    to_money,
    to_time,
    written_datetime,
)
from em.state.schema import FieldSchema, TypeSchema
from em.values.canonical import Json

RARE = 20
"""One odd value in so many does not make a column of dates a column of texts."""
LITERAL_FROM = 20
LITERAL_VALUES = 8
MAP_KEYS = 24
"""An object with more keys than this is a mapping, not a class."""

_DATES = frozenset({"date", "date_dmy", "date_mdy", "date_slashed"})
_FAMILIES: Mapping[str, frozenset[str]] = {
    "date": _DATES,
    "time": frozenset({"time"}),
    "datetime": frozenset({"datetime"}),
    "money": frozenset({"money"}),
    "bool": frozenset({"bool", "bool_text"}),
    "number": frozenset({"int", "float", "int_text", "decimal_text"}),
}
_IDENTIFIER = re.compile(
    r"(^|_)(id|ids|zip|zipcode|postcode|code|phone|tel|isbn|iban|account|number|no|ref|serial|"
    r"sku|ssn|ean|upc|pin)$"
)
"""Names of fields whose digits are no numbers."""


class Typed(NamedTuple):
    """A field's type as the module writes it.

    target: how its values are converted; equal targets read the same rows.
    """

    annotation: str
    target: str
    nullable: bool = False
    note: str = ""


def resolve(field: FieldSchema, nested_name: str = "") -> Typed:
    """The type that a profile leads to."""
    kinds = {kind: number for kind, number in field.kinds.items() if number}
    total = sum(kinds.values())
    if not total:
        return Typed("None", "plain")
    for family, members in _FAMILIES.items():
        held = sum(number for kind, number in kinds.items() if kind in members)
        rest = total - held
        if held and (not rest or (rest == kinds.get("text", 0) and rest * RARE <= total)):
            found = _of_family(family, field, kinds)
            if found is not None:
                note = f"{rest} no {family}, kept as given" if rest else found.note
                return _nullable_if(found, rest, note)
    return _plain(field, kinds, nested_name)


def _nullable_if(found: Typed, rest: int, note: str) -> Typed:
    if not rest:
        return found._replace(note=note)
    target = "number" if found.target == "plain" else found.target
    return found._replace(target=target, nullable=True, note=note)


def _of_family(family: str, field: FieldSchema, kinds: Mapping[str, int]) -> Typed | None:
    if family == "date":
        return _dates(kinds)
    if family == "number":
        return _numbers(field, kinds)
    if family == "bool":
        return Typed("bool", "bool" if "bool_text" in kinds else "plain")
    return {
        "time": Typed("datetime.time", "time"),
        "datetime": Typed("datetime.datetime", "datetime"),
        "money": Typed("Money", "money"),
    }[family]


def _dates(kinds: Mapping[str, int]) -> Typed | None:
    """Dates with slashes are read only in an order that the column itself shows."""
    orders = {kind[5:] for kind in ("date_dmy", "date_mdy") if kind in kinds}
    if len(orders) > 1 or ("date_slashed" in kinds and not orders):
        return None
    return Typed("datetime.date", f"date{orders.pop() if orders else ''}")


def _numbers(field: FieldSchema, kinds: Mapping[str, int]) -> Typed | None:
    texts = {"int_text", "decimal_text"} & kinds.keys()
    if not texts:
        is_float = "float" in kinds
        return Typed(("int | float" if "int" in kinds else "float") if is_float else "int", "plain")
    if _IDENTIFIER.search(field.name):
        return None
    whole = kinds.keys() <= {"int", "int_text", "text"}
    return Typed("int", "int") if whole else Typed("Decimal", "decimal")


def _plain(field: FieldSchema, kinds: Mapping[str, int], nested_name: str) -> Typed:
    """The types of JSON; a class for objects, where all are objects."""
    is_text = bool(TEXTS & kinds.keys())
    scalars = [kind for kind in ("bool", "int", "float") if kind in kinds]
    if kinds.keys() == {"object"}:
        return _object(field, nested_name)
    if "object" in kinds:
        return Typed("Any", "plain", note="values of several kinds")
    if kinds.keys() == {"list"}:
        return _list(field, nested_name)
    if "list" in kinds:
        return Typed("Any", "plain", note="values of several kinds")
    if is_text and not scalars:
        return Typed(_literal(field) or "str", "plain")
    note = "values of several kinds" if is_text or len(scalars) > 1 else ""
    return Typed(" | ".join([*scalars, *(["str"] if is_text else [])]), "plain", note=note)


def _literal(field: FieldSchema) -> str:
    values = field.values
    if not values or field.count < LITERAL_FROM or len(values) > LITERAL_VALUES:
        return ""
    if field.count < 4 * len(values):
        return ""
    return f"Literal[{', '.join(map(quoted, sorted(values)))}]"


def _object(field: FieldSchema, nested_name: str) -> Typed:
    nested = field.nested
    if nested is None or not nested.fields or len(nested.fields) > MAP_KEYS or not nested_name:
        return Typed("dict[str, Any]", "plain")
    return Typed(nested_name, f"nested({layout(nested)})")


def _list(field: FieldSchema, nested_name: str) -> Typed:
    if field.items is None or not field.items.kinds:
        return Typed("list[Any]", "plain")
    if field.items.nulls:
        return Typed("list[Any]", "plain", note="some of its values are null")
    item = resolve(field.items, nested_name)
    if item.nullable or (item.target != "plain" and item.annotation == "Any"):
        return Typed("list[Any]", "plain")
    return Typed(
        f"list[{item.annotation}]", "plain" if item.target == "plain" else f"list({item.target})"
    )


def layout(type_: TypeSchema) -> str:
    """How rows of this type are written; rows of the same layout can stand side by side."""
    parts = []
    for field in type_.fields.values():
        target = resolve(field, "X").target
        if target not in ("plain",):
            parts.append(f"{field.given}={target}")
    return ";".join(parts)


def fits(old: TypeSchema, new: TypeSchema) -> bool:
    """Whether rows written for the old profile are read right by the new one's class."""
    for given, field in old.fields.items():
        if resolve(field, "X").target != resolve(new.fields[given], "X").target:
            return False
    return old.key == new.key


def quoted(text: str) -> str:
    """A text as Python writes it, in double quotes, with nothing but ASCII."""
    escaped = "".join(
        char if char.isascii() and char.isprintable() and char not in '\\"' else _escape(char)
        for char in text
    )
    return f'"{escaped}"'


def _escape(char: str) -> str:
    if char in '\\"':
        return "\\" + char
    code = ord(char)
    return (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )


Converted = tuple[Any, bool]
"""The value as its type reads it, and whether it comes back as it was given."""
Convert = Callable[[Any], Converted]


def converter(field: FieldSchema) -> Convert | None:
    """The conversion of a field's values; None where they are taken as they are."""
    typed = resolve(field, "X")
    if typed.target.startswith("nested("):
        return _nested_converter(field.nested)
    if typed.target.startswith("list("):
        assert field.items is not None
        return _list_converter(converter(field.items))
    return _CONVERTERS.get(typed.target)


def _nested_converter(nested: TypeSchema | None) -> Convert:
    assert nested is not None
    known = nested.fields
    made = {given: (field.name, converter(field)) for given, field in known.items()}

    def convert(value: Any) -> Converted:
        if type(value) is not dict:
            return None, False
        row: Json = {}
        exact = True
        for given, item in value.items():
            if given not in made or item is None:
                exact = False
                continue
            name, inner = made[given]
            row[name], same = (item, True) if inner is None else inner(item)
            exact = exact and same
        return row, exact

    return convert


def _list_converter(inner: Convert | None) -> Convert:
    assert inner is not None

    def convert(value: Any) -> Converted:
        if type(value) is not list:
            return None, False
        converted = [inner(item) for item in value]
        return [item for item, _ in converted], all(same for _, same in converted)

    return convert


def _dated(order: str) -> Convert:
    def convert(value: Any) -> Converted:
        found = to_date(value, order) if isinstance(value, str) else None
        written = None if found is None else found.isoformat()
        return written, written == value

    return convert


def _timed(value: Any) -> Converted:
    found = to_time(value) if isinstance(value, str) else None
    written = None if found is None else found.isoformat()
    return written, written == value


def _momentary(value: Any) -> Converted:
    found = to_datetime(value) if isinstance(value, str) else None
    written = None if found is None else written_datetime(found)
    return written, written == value


def _whole(value: Any) -> Converted:
    if type(value) is int:
        return value, True
    found = to_decimal(value)
    return None if found is None else int(found), False


def _exactly(value: Any) -> Converted:
    found = to_decimal(value)
    written = None if found is None else str(found)
    return written, type(value) is str and written == value


def _truth(value: Any) -> Converted:
    if type(value) is bool:
        return value, True
    return {"true": True, "false": False}.get(str(value).lower()), False


def _amount(value: Any) -> Converted:
    found = to_money(value) if isinstance(value, str) else None
    if found is None:
        return None, False
    amount, currency = found
    return {"amount": str(amount), "currency": currency}, False


def _number(value: Any) -> Converted:
    is_number = type(value) in (int, float)
    return (value, True) if is_number else (None, False)


_CONVERTERS: Mapping[str, Convert] = {
    "date": _dated(""),
    "datedmy": _dated("dmy"),
    "datemdy": _dated("mdy"),
    "time": _timed,
    "datetime": _momentary,
    "int": _whole,
    "decimal": _exactly,
    "bool": _truth,
    "money": _amount,
    "number": _number,
}


def as_json(value: Any) -> Any:
    """A typed value as JSON says it."""
    if isinstance(value, Decimal):
        return str(value)
    return value
