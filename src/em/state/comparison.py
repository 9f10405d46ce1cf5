"""Compare the values of rules by their types. The generated module contains these functions.

Moments are compared across time zones, and one without a zone is UTC. A day and a moment compare by
the day in UTC. A text is read as what it is compared with: a date, a time, a number, an amount.
Texts ignore case. Values that have no order, such as a word and a date, raise TypeError.
"""

import datetime
import inspect
import re
import sys
from decimal import Decimal
from typing import Any


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


def source() -> str:
    """Return the source of the functions above, for the generated module."""
    whole = inspect.getsource(sys.modules[__name__])
    return whole[whole.index("def plus(") : whole.index("def source(")].rstrip() + "\n"
