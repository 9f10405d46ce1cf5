"""Conversion of results to JSON values by fixed rules; other values are refused."""

import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any

MAX_DEPTH = 100
"""The deepest nesting of a value: the same as of an event."""

Unwrap = Callable[[Any], Any]
"""Converts a back end's proxy of an object to its fields; returns other values unchanged."""


class NotPlain(ValueError):
    """A value that JSON can't represent."""


def plain(value: Any, path: str = "", depth: int = 0, unwrap: Unwrap | None = None) -> Any:
    """Return a value as JSON represents it, or raise NotPlain."""
    if unwrap is not None:
        value = unwrap(value)
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(value, path)
    if depth >= MAX_DEPTH:
        raise NotPlain(f"the value is nested more than {MAX_DEPTH} levels deep")
    return _structure(value, path, depth, unwrap)


def _structure(value: Any, path: str, depth: int, unwrap: Unwrap | None) -> Any:
    if isinstance(value, Mapping):
        return {
            _key(key, path): plain(item, f"{path}.{key}", depth + 1, unwrap)
            for key, item in value.items()
        }
    if isinstance(value, set | frozenset):
        value = _sorted(value)
    if isinstance(value, list | tuple):
        return [plain(item, f"{path}[{n}]", depth + 1, unwrap) for n, item in enumerate(value)]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    fields = getattr(type(value), "__dataclass_fields__", None)
    if fields is not None:
        return {
            name: plain(getattr(value, name), f"{path}.{name}", depth + 1, unwrap)
            for name in fields
        }
    kind = type(value).__name__
    raise NotPlain(f"{_at(path)}can't return a {kind}; return numbers, texts, lists, mappings")


def _text(value: str, path: str) -> str:
    text = str.__str__(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotPlain(f"{_at(path)}text with half a surrogate pair is not Unicode") from None
    return text


def _number(value: float, path: str) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise NotPlain(f"{_at(path)}NaN and infinity are not JSON")
    return number


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise NotPlain(f"{_at(path)}a key that is not text: {key!r:.60}")
    return _text(key, path)


def _sorted(value: Any) -> list[Any]:
    try:
        return sorted(value)
    except TypeError:
        return list(value)


def _at(path: str) -> str:
    return f"at {path[:200]}: " if path else ""
