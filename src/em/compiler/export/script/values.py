"""Expressions in an exported script: parts of values, functions, filters and tests."""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Number
from typing import Any

MISSING: Any = object()
"""Stands for a name or a part that is not there."""

FAIL: Any = object()
"""What is not there is an error; a step that fails ends the run."""


class RoutineProblem(Exception):
    """The routine itself is at fault, not a tool: trying again would not help."""


class ExpressionError(RoutineProblem):
    """A name or a part in an expression is not there, or its value can't be computed."""


def at(value: Any, *path: Any, otherwise: Any = FAIL) -> Any:
    """A part of a value by its path: keys, places in lists, attributes of objects."""
    for number, part in enumerate(path, 1):
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            found = MISSING
            if isinstance(part, str) and not isinstance(value, Mapping) and part[:1] != "_":
                found = getattr(value, part, MISSING)
            if found is MISSING or callable(found):
                if number == len(path) and otherwise is not FAIL:
                    return otherwise
                raise ExpressionError(f"a {type(value).__name__} has no {part!r}") from None
            value = found
    return value


def have(value: Any, name: str) -> Any:
    """A value that may not be there: an input nobody gave, the result of a step left out."""
    if value is MISSING:
        raise ExpressionError(f"{name!r} is not defined")
    return value


def default_to(value: Any, other: Any, boolean: Any = False) -> Any:
    """The other value where there is none; with `boolean`, also where it counts as false."""
    return other if value is MISSING or (boolean and not value) else value


def undefined(why: str) -> Any:
    """There is no value here."""
    raise ExpressionError(why)


def method_of(value: Any, name: str) -> Callable[..., Any]:
    """A method of a text, a list or a mapping; a key of that name is no method."""
    if isinstance(value, Mapping) and (
        name in value or name not in ("get", "items", "keys", "values")
    ):
        raise ExpressionError(f"{name!r} is no method here")
    found: Callable[..., Any] = getattr(value, name)
    return found


def remainder(left: Any, right: Any) -> Any:
    """`left % right` of numbers."""
    if isinstance(left, str):
        raise ExpressionError("text is not formatted with %")
    return left % right


def settled(value: Any) -> Any:
    """What comes item by item, as a list; a function is no value."""
    if isinstance(value, Iterator):
        return list(value)
    if callable(value) and not isinstance(value, type):
        raise ExpressionError("the expression gives a function")
    return value


def as_text(value: Any) -> str:
    """How a value stands in a text: a structure as JSON."""
    return json_text(value) if isinstance(value, dict | list) else str(value)


def json_text(value: Any) -> str:
    """Compact JSON."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_key(key)}:{json_text(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(json_text(item) for item in value) + "]"
    return json_number(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def json_number(value: float) -> str:
    """A number with a point, in its shortest form."""
    if not math.isfinite(value):
        return "null"
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        return digits
    if int(exponent) == -5:
        return ("-" if value < 0 else "") + "0.0000" + digits.lstrip("-").replace(".", "")
    return f"{digits}e{int(exponent)}"


def json_key(key: Any) -> str:
    """A key as JSON has it: always a text."""
    return json_text(key if isinstance(key, str) else json_text(key))


def only(items: Any) -> Any:
    """The one item of a list, or the one value of a mapping; an error if there are more or none."""
    found = items_of(items)
    if len(found) != 1:
        raise ExpressionError(f"only() needs exactly one item, there are {len(found)}")
    return found[0]


def pick(items: Any, **fields: Any) -> Any:
    """The one item whose fields have these values; texts match in any case."""
    found = [
        item
        for item in items_of(items)
        if isinstance(item, Mapping)
        and all(name in item and same(item[name], value) for name, value in fields.items())
    ]
    if len(found) != 1:
        asked = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        raise ExpressionError(f"pick({asked}) needs exactly one item, there are {len(found)}")
    return found[0]


def nth(items: Any, number: int) -> Any:
    """An item of a list, or a value of a mapping, by where it stands; counted from 0."""
    found = items_of(items)
    if number >= len(found):
        raise ExpressionError(f"there is no item {number}, there are {len(found)}")
    return found[number]


def items_of(items: Any) -> list[Any]:
    """The items of a list, the values of a mapping."""
    if isinstance(items, Mapping):
        return list(items.values())
    if isinstance(items, Iterable) and not isinstance(items, str):
        return list(items)
    raise ExpressionError(f"a {type(items).__name__} has no items")


def same(one: Any, other: Any) -> bool:
    """Equal, or the same text but for case and the spaces around it."""
    if isinstance(one, str) and isinstance(other, str):
        return one.strip().lower() == other.strip().lower()
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def first_of(items: Iterable[Any], otherwise: Any = FAIL) -> Any:
    """The first item."""
    for item in items:
        return item
    return undefined("there is no first item") if otherwise is FAIL else otherwise


def last_of(items: Any, otherwise: Any = FAIL) -> Any:
    """The last item."""
    return first_of(reversed(items), otherwise)


def as_int(value: Any, default: Any = 0, base: int = 10) -> Any:
    """A whole number, else the default."""
    try:
        return int(value, base) if isinstance(value, str) else int(value)
    except (TypeError, ValueError):
        try:
            return int(float(value))
        except (TypeError, ValueError, OverflowError):
            return default


def as_float(value: Any, default: Any = 0.0) -> Any:
    """A number, else the default."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return default


def rounded(value: Any, precision: int = 0, method: str = "common") -> Any:
    """A number rounded, up (`ceil`) or down (`floor`) if so asked."""
    if method == "common":
        return round(value, precision)
    if method not in ("ceil", "floor"):
        raise ExpressionError("method must be common, ceil or floor")
    turn = math.ceil if method == "ceil" else math.floor
    return turn(value * (10**precision)) / (10**precision)


def joined(items: Iterable[Any], between: Any = "") -> str:
    """The items as one text."""
    return str(between).join(map(str, items))


def replaced(value: Any, old: str, new: str, count: int | None = None) -> str:
    """A text with something replaced."""
    return str(value).replace(old, new, -1 if count is None else count)


def titled(value: Any) -> str:
    """A text with every word capitalised."""
    words = re.split(r"([-\s({\[<]+)", str(value))
    return "".join(word[0].upper() + word[1:].lower() for word in words if word)


def backwards(items: Any) -> Any:
    """The items from the last to the first; a text turned round."""
    if isinstance(items, str):
        return items[::-1]
    try:
        return iter(reversed(items))
    except TypeError:
        return iter(list(items)[::-1])


def any_case(value: Any) -> Any:
    """A text as it compares when case does not count."""
    return value.lower() if isinstance(value, str) else value


def ordered(
    items: Iterable[Any],
    by: Callable[[Any], Any],
    reverse: Any = False,
    case_sensitive: Any = False,
) -> list[Any]:
    """The items sorted."""
    key = by if case_sensitive else lambda item: [any_case(part) for part in by(item)]
    return sorted(items, key=key, reverse=reverse)


def distinct(
    items: Iterable[Any], by: Callable[[Any], Any], case_sensitive: Any = False
) -> Iterator[Any]:
    """The items without those that came before."""
    seen = set()
    for item in items:
        key = by(item) if case_sensitive else any_case(by(item))
        if key not in seen:
            seen.add(key)
            yield item


def extreme(
    choose: Any,
    items: Iterable[Any],
    by: Callable[[Any], Any],
    case_sensitive: Any = False,
    otherwise: Any = FAIL,
) -> Any:
    """The smallest or largest item."""
    key = by if case_sensitive else lambda item: any_case(by(item))
    listed = list(items)
    if not listed:
        return undefined("no smallest or largest of nothing") if otherwise is FAIL else otherwise
    return choose(listed, key=key)


def pairs(value: Any) -> Iterator[tuple[Any, Any]]:
    """The keys of a mapping with their values."""
    if not isinstance(value, Mapping):
        raise ExpressionError("only a mapping has pairs")
    yield from value.items()


def is_number(value: Any) -> bool:
    """Whether it is a number; yes and no count as such."""
    return isinstance(value, Number)


def is_integer(value: Any) -> bool:
    """Whether it is a whole number; yes and no do not count as such."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_sequence(value: Any) -> bool:
    """Whether it has a length and items by number or key."""
    try:
        len(value)
        value.__getitem__  # noqa: B018 - whether it is there is the question
    except Exception:  # noqa: BLE001 - as the original asks
        return False
    return True


def is_iterable(value: Any) -> bool:
    """Whether it can be gone through."""
    try:
        iter(value)
    except TypeError:
        return False
    return True
