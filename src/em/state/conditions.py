"""Conditions of rules: JSON that is checked against the types and written as Python, never code.

A condition is a comparison ({"op": "<", "left": …, "right": …}), `all`, `any` or `not` of
conditions, or `some` record of a collection: {"some": {"in": "visits", "where": …}}. Operands are
{"detail": name}, {"value": …}, {"profile": field}, {"item": field} of the record that `some` looks
at, {"outer": field} of the record around it, {"count": {"in": …}}, {"sum": {"in": …, "field": …}}
and {"now": true}. A date may be moved: {"item": "returns", "plus": "180d"}, or "minus".

The functions from `plus` to `holds` compare values by their types, and the generated module
contains them. Moments are compared across time zones; one without a zone is UTC. A day and a moment
compare by the day in UTC. A text is read as what it is compared with: a date, a time, a number, an
amount. Texts ignore case. Values without an order, such as a word and a date, raise TypeError.
"""

import datetime
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from em.errors import InputError
from em.state.schema import PROFILE, FieldSchema, StateSchema, TypeSchema
from em.state.types import quoted, resolve
from em.values.canonical import Json
from em.values.times import parse_duration


def plus(value: Any, seconds: float) -> Any:
    """Add seconds to a date or datetime, also in ISO 8601; None stays None."""
    found = as_day(value) if isinstance(value, str) else value
    if value is not None and found is None:
        raise TypeError(f"can't add a duration to {value!r:.40}")
    return None if found is None else found + datetime.timedelta(seconds=seconds)


def as_day(text: str) -> datetime.date | None:
    """Read a date or a datetime in ISO 8601; None for any other text."""
    if not re.match(r"\d{4}-\d{2}-\d{2}($|[T ]\d)", text):
        return None
    try:
        if len(text) == len("2025-06-01"):
            return datetime.date.fromisoformat(text)
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


def as_amount(text: str) -> tuple[str, Decimal] | None:
    """Read an amount with its currency, such as 12.50 EUR or $5; None for any other text."""
    found = re.fullmatch(r"([$€£¥]?)(-?\d[\d,]*(?:\.\d+)?) ?([A-Z]{3})?", text.strip())
    if found is None or bool(found[1]) == bool(found[3]):
        return None
    signs = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY"}
    return (found[3] or signs[found[1]], Decimal(found[2].replace(",", "")))


def as_number(text: str) -> Decimal | None:
    """Read a plain number; None for any other text."""
    return Decimal(text) if re.fullmatch(r"-?\d{1,30}(\.\d{1,30})?", text.strip()) else None


def as_time(text: str) -> datetime.time | None:
    """Read a time of day, such as 7:30; None for any other text."""
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", text.strip())
    return found and datetime.time(int(found[1]), int(found[2]), int(found[3] or 0))


def read_as(text: str, like: Any) -> Any:
    """Read a text as the type of another value; None if it is not of that type."""
    if isinstance(like, bool):
        return {"true": True, "false": False}.get(text.strip().lower())
    if isinstance(like, (int, float, Decimal)):
        return as_number(text)
    if isinstance(like, datetime.date):
        return as_day(text.strip())
    if isinstance(like, datetime.time):
        return as_time(text)
    return as_amount(text) if hasattr(like, "currency") else None


def in_utc(value: datetime.datetime) -> datetime.datetime:
    """Return a datetime in UTC. Without a zone it is UTC."""
    is_bare = value.tzinfo is None
    return value.replace(tzinfo=datetime.UTC) if is_bare else value.astimezone(datetime.UTC)


def plain_value(value: Any) -> Any:
    """Return a value in the form that is compared."""
    if isinstance(value, datetime.datetime):
        return in_utc(value)
    if isinstance(value, float):
        return Decimal(repr(value))
    if hasattr(value, "currency"):
        return (value.currency, value.amount)
    if isinstance(value, str):
        return value.casefold()
    return [plain_value(item) for item in value] if isinstance(value, list) else value


def aligned(one: Any, other: Any) -> tuple[Any, Any]:
    """Return two values in forms that can be compared, as far as their types allow it."""
    if isinstance(one, str) and isinstance(other, str):
        for read in (as_day, as_time, as_amount):
            both = (read(one.strip()), read(other.strip()))
            if None not in both:
                one, other = both
                break
    elif isinstance(one, str):
        found = read_as(one, other)
        one = one if found is None else found
    elif isinstance(other, str):
        found = read_as(other, one)
        other = other if found is None else found
    one, other = plain_value(one), plain_value(other)
    if isinstance(one, datetime.datetime) != isinstance(other, datetime.datetime):
        one = one.date() if isinstance(one, datetime.datetime) else one
        other = other.date() if isinstance(other, datetime.datetime) else other
    return one, other


def same(left: Any, right: Any) -> bool:
    """Tell whether two values are equal; values of different types are not."""
    one, other = aligned(left, right)
    return bool(one == other)


def among(value: Any, group: Any) -> bool:
    """Tell whether a value is in a list, or a text in a text."""
    if isinstance(group, str):
        return isinstance(value, str) and value.casefold() in group.casefold()
    return isinstance(group, (list, tuple)) and any(same(value, item) for item in group)


def mentions(left: Any, right: Any) -> bool:
    """Tell whether a text, or one of a list, has one of these texts as whole words."""
    texts = [left] if isinstance(left, str) else left or []
    sought = [right] if isinstance(right, str) else right or []

    def words(text: Any) -> str:
        found = re.findall(r"\w+", str(text).casefold())
        return f" {' '.join(word.removesuffix('s') for word in found)} "

    return any(words(one).strip() and words(one) in words(text) for text in texts for one in sought)


def before(left: Any, right: Any, *, or_same: bool) -> bool:
    """Tell whether a value comes before another; TypeError if they have no order."""
    one, other = aligned(left, right)
    if isinstance(one, str) and isinstance(other, str):
        numbers = (as_number(one), as_number(other))
        if None not in numbers:
            one, other = numbers
    if isinstance(one, tuple) and isinstance(other, tuple) and one[0] != other[0]:
        raise TypeError(f"{one[0]} and {other[0]} can't be compared")
    return bool(one <= other if or_same else one < other)


def holds(left: Any, op: str, right: Any) -> bool:
    """Compare two values by their types. An order with None is never true."""
    if op in ("==", "!="):
        return same(left, right) == (op == "==")
    if op in ("in", "not in"):
        return among(left, right) == (op == "in")
    if op == "mentions":
        return mentions(left, right)
    if left is None or right is None:
        return False
    if op == "contains":
        return among(right, left)
    one, other = (left, right) if op in ("<", "<=") else (right, left)
    return before(one, other, or_same=op in ("<=", ">="))


def comparison_source() -> str:
    """Return the source of the functions above, for the generated module."""
    whole = inspect.getsource(sys.modules[__name__])
    return whole[whole.index("def plus(") : whole.index("def comparison_source(")].rstrip() + "\n"


OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "contains", "mentions")
ORDERS = frozenset({"<", "<=", ">", ">="})
MAX_DEPTH = 12
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,59}")


class Operand(NamedTuple):
    """An operand as Python. kind: what its values are, as far as it is known; "" if not.

    literal: the value itself, if the operand is one.
    """

    code: str
    kind: str = ""
    literal: Any = None


class Conditions:
    """Writes the conditions and deadlines of one rule."""

    def __init__(self, schema: StateSchema, place: str) -> None:
        self._schema, self._place = schema, place

    def condition(self, given: Any, items: tuple[TypeSchema, ...] = (), depth: int = 0) -> str:
        """Write a condition as an expression over `state`, `details` and the items."""
        if depth > MAX_DEPTH:
            raise self._error(f"conditions may be nested {MAX_DEPTH} levels deep")
        if not isinstance(given, dict):
            raise self._error(f"a condition must be an object, got {str(given)[:60]!r}")
        if "op" in given:
            return self._comparison(given, items, depth)
        if len(given) == 1:
            ((word, inner),) = given.items()
            if word in ("all", "any") and isinstance(inner, list) and inner:
                join = " and " if word == "all" else " or "
                parts = (self.condition(part, items, depth + 1) for part in inner)
                return f"({join.join(parts)})"
            if word == "not":
                return f"(not {self.condition(inner, items, depth + 1)})"
            if word == "some":
                return f"any(True {self.loop(inner, items, depth)})"
        raise self._error(
            f"expected a condition, got an object with {str(sorted(given))[:80]}",
            "use op with left and right, or all, any, not, some",
        )

    def _comparison(self, given: Json, items: tuple[TypeSchema, ...], depth: int) -> str:
        if given.keys() != {"op", "left", "right"} or given["op"] not in OPERATORS:
            raise self._error(
                f"a comparison needs op, left and right; op is {given.get('op')!r}"[:120],
                f"the operators are {' '.join(OPERATORS)}",
            )
        left = self._operand(given["left"], items, depth)
        right = self._operand(given["right"], items, depth)
        self._check_types(left, given["op"], right)
        return f"holds({left.code}, {quoted(given['op'])}, {right.code})"

    def _check_types(self, left: Operand, op: str, right: Operand) -> None:
        """Refuse a literal that a field of this type can never be compared with."""
        for field, value in ((left, right.literal), (right, left.literal)):
            if value is None or not field.kind or op in ("contains", "mentions"):
                continue
            for one in value if isinstance(value, list) else [value]:
                if not _fits(one, field.kind, op):
                    raise self._error(
                        f"{field.code} is {_KINDS[field.kind][0]}, and {str(one)[:40]!r} is not",
                        f"write it as {_KINDS[field.kind][1]}",
                    )

    def loop(self, given: Any, items: tuple[TypeSchema, ...], depth: int) -> str:
        """Write `for item in state.trips if …`. A record is never compared with itself."""
        if not isinstance(given, dict) or "in" not in given or given.keys() - {"in", "where"}:
            raise self._error(
                "expected an object with `in` (a collection) and perhaps `where` (a condition)"
            )
        type_ = self.collection(given["in"])
        inner = (*items, type_)
        tests = [
            f"{_item(inner)} is not {_item(inner[: number + 1])}"
            for number, around in enumerate(items)
            if around is type_
        ]
        if given.get("where") is not None:
            tests.append(self.condition(given["where"], inner, depth + 1))
        test = f" if {' and '.join(tests)}" if tests else ""
        return f"for {_item(inner)} in state.{type_.collection}{test}"

    def collection(self, name: Any) -> TypeSchema:
        """Find the type of a collection by any of its names."""
        for type_ in self._schema.types.values():
            if name in (type_.collection, type_.name, type_.given) and type_.given != PROFILE:
                return type_
        known = ", ".join(sorted(type_.collection for type_ in self._schema.types.values()))
        raise self._error(f"no collection {str(name)[:60]!r}", f"the collections are {known}")

    def field(self, given: Any, type_: TypeSchema | None) -> FieldSchema:
        """Find a field of a type by any of its names."""
        for field in () if type_ is None else type_.fields.values():
            if given in (field.given, field.name):
                return field
        raise self._error(f"no field {str(given)[:60]!r}")

    def deadlines(self, given: Json) -> str:
        """Write the deadlines in a field: a list of pairs of a record and its deadline."""
        rest = {name: value for name, value in given.items() if name not in ("field", "plus")}
        if rest.keys() == {"profile"} and "field" not in given:
            who, loop = "state.profile", ""
            field = self.field(rest["profile"], self._schema.types.get(PROFILE))
        else:
            type_ = self.collection(rest.get("in"))
            who, loop = "item", f" {self.loop(rest, (), 0)}"
            field = self.field(given.get("field"), type_)
        if not resolve(field).target.startswith("date"):
            raise self._error(f"the field {field.name!r} has no dates", "name a field with dates")
        when = f"{who}.{field.name}"
        if given.get("plus") is not None:
            when = self._moved(when, given, "plus")
        return f"[({who}, {when}){loop}]"

    def each(self, given: Json) -> str:
        """Write the list of records that a rule is about."""
        return f"[item {self.loop(given, (), 0)}]"

    def _operand(self, given: Any, items: tuple[TypeSchema, ...], depth: int) -> Operand:
        if not isinstance(given, dict) or len(rest := _without_move(given)) != 1:
            raise self._error("an operand must be an object with one key")
        ((kind, inner),) = rest.items()
        make = _OPERANDS.get(kind)
        if make is None:
            raise self._error(f"unknown operand {str(kind)[:40]!r}", f"use {', '.join(_OPERANDS)}")
        found = make(self, inner, items, depth)
        for way in ("plus", "minus"):
            if given.get(way) is not None:
                if found.kind not in ("", "date", "datetime"):
                    raise self._error(f"`{way}` needs a date, got {found.code}")
                found = Operand(self._moved(found.code, given, way), found.kind)
        return found

    def _moved(self, code: str, given: Json, way: str) -> str:
        length = parse_duration(str(given[way]), way, place=self._place)
        seconds = length.days * 86_400 + length.seconds
        return f"plus({code}, {seconds if way == 'plus' else -seconds})"

    def _detail(self, inner: Any, _items: Any, _depth: int) -> Operand:
        if not isinstance(inner, str) or not NAME.fullmatch(inner):
            raise self._error(f"expected the name of a detail, got {str(inner)[:60]!r}")
        return Operand(f"details.get({quoted(inner)})")

    def _profile(self, inner: Any, _items: Any, _depth: int) -> Operand:
        field = self.field(inner, self._schema.types.get(PROFILE))
        return Operand(f"state.profile.{field.name}", kind_of_field(field))

    def _item_field(self, inner: Any, items: tuple[TypeSchema, ...], _depth: int) -> Operand:
        field = self.field(inner, items[-1] if items else None)
        return Operand(f"{_item(items)}.{field.name}", kind_of_field(field))

    def _outer_field(self, inner: Any, items: tuple[TypeSchema, ...], _depth: int) -> Operand:
        return self._item_field(inner, items[:-1], _depth)

    def _value(self, inner: Any, _items: Any, _depth: int) -> Operand:
        return Operand(literal(inner), literal=inner)

    def _now(self, inner: Any, _items: Any, _depth: int) -> Operand:
        if inner is not True:
            raise self._error('expected {"now": true}')
        return Operand('details["now"]', "datetime")

    def _count(self, inner: Any, items: tuple[TypeSchema, ...], depth: int) -> Operand:
        return Operand(f"sum(1 {self.loop(inner, items, depth)})", "number")

    def _sum(self, inner: Any, items: tuple[TypeSchema, ...], depth: int) -> Operand:
        if not isinstance(inner, dict) or "field" not in inner:
            raise self._error("a sum needs a `field`")
        rest = {name: value for name, value in inner.items() if name != "field"}
        type_ = self.collection(rest.get("in"))
        field = self.field(inner["field"], type_)
        kind = kind_of_field(field)
        if kind not in ("number", "money"):
            raise self._error(f"the field {field.name!r} has no numbers", "name one with numbers")
        each = f"{_item((*items, type_))}.{field.name} or 0"
        return Operand(f"sum({each} {self.loop(rest, items, depth)})", kind)

    def _error(self, message: str, fix: str = "") -> InputError:
        return InputError(message, place=self._place, fix=fix)


_OPERANDS: Mapping[str, Callable[[Conditions, Any, tuple[TypeSchema, ...], int], Operand]] = {
    "detail": Conditions._detail,
    "profile": Conditions._profile,
    "item": Conditions._item_field,
    "outer": Conditions._outer_field,
    "value": Conditions._value,
    "count": Conditions._count,
    "sum": Conditions._sum,
    "now": Conditions._now,
}

_KINDS: Mapping[str, tuple[str, str]] = {
    "date": ("a date", "2025-06-01"),
    "datetime": ("a moment", "2025-06-01T10:00:00Z"),
    "time": ("a time of day", "07:30"),
    "number": ("a number", "12.5"),
    "money": ("an amount with its currency", "12.50 EUR"),
    "bool": ("true or false", "true"),
}


def kind_of_field(field: FieldSchema) -> str:
    """Name what the values of a field are: date, datetime, time, number, money or bool; else ""."""
    typed = resolve(field)
    if typed.target.startswith("date") and typed.target != "datetime":
        return "date"
    if typed.target in ("datetime", "time", "money"):
        return typed.target
    if typed.target in ("int", "decimal", "number"):
        return "number"
    plain = {"int": "number", "float": "number", "int | float": "number", "bool": "bool"}
    return "bool" if typed.target == "bool" else plain.get(typed.annotation, "")


def _fits(value: Any, kind: str, op: str) -> bool:
    if value is None:
        return op not in ORDERS
    if kind in ("date", "datetime"):
        return isinstance(value, str) and as_day(value.strip()) is not None
    if kind == "money":
        return isinstance(value, str) and as_amount(value) is not None
    if kind == "time":
        return isinstance(value, str) and read_as(value, datetime.time()) is not None
    if kind == "bool":
        return isinstance(value, bool) or read_as(str(value), like=True) is not None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number or (isinstance(value, str) and read_as(value, 1) is not None)


def _without_move(given: Json) -> Json:
    return {name: value for name, value in given.items() if name not in ("plus", "minus")}


def _item(items: tuple[TypeSchema, ...]) -> str:
    return "item" if len(items) <= 1 else f"item_{len(items)}"


def literal(value: Any) -> str:
    """Write a JSON value as a Python literal."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(k)}: {literal(v)}" for k, v in value.items()) + "}"
    return repr(value)


def details_in(condition: Any) -> Iterator[str]:
    """Return the names of the details that a condition uses."""
    if isinstance(condition, dict):
        for name, inner in condition.items():
            if name == "detail" and isinstance(inner, str):
                yield inner
            elif name != "value":
                yield from details_in(inner)
    elif isinstance(condition, list):
        for part in condition:
            yield from details_in(part)
