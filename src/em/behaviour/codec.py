"""Codec: values as JSON and back, by their annotated type or a short list of plain types.

Nothing is pickled, and no class is imported because a database names it. A value that JSON can't
express and no annotation describes is refused.
"""

import base64
import contextlib
import datetime as dt
import decimal
import io
import math
import re
import typing
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any, Literal

import msgspec

from em.values.canonical import MAX_DEPTH

Form = Literal["", "typed", "tagged"]
"""How a value is encoded: as it is, by its annotation, or tagged with names of plain types."""

TAG = "$em"
_INT64 = 2**63
_SURROGATE = re.compile("[\ud800-\udfff]")


class NotEncodable(Exception):
    """A value can't be encoded. `path` leads to the part of it that can't, `why` is the reason."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}" if path else why)
        self.path = path
        self.why = why


_TEXTS: Mapping[type, Callable[[str], Any]] = {
    dt.datetime: dt.datetime.fromisoformat,
    dt.date: dt.date.fromisoformat,
    dt.time: dt.time.fromisoformat,
    dt.timedelta: lambda text: dt.timedelta(microseconds=int(text)),
    decimal.Decimal: decimal.Decimal,
    uuid.UUID: uuid.UUID,
    bytes: bytes.fromhex,
    int: int,
    float: float,
    complex: complex,
}
_BY_NAME = {known.__name__: read for known, read in _TEXTS.items()}
_BY_NAME["base64"] = base64.b64decode
_LISTS: Mapping[type, Callable[[list[Any]], Any]] = {
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    dict: dict,
}
_LISTS_BY_NAME = {known.__name__: read for known, read in _LISTS.items()}


def encode(value: Any, hint: Any = None) -> tuple[Any, Form]:
    """Return a value as JSON that shares nothing with the original, and its form."""
    if is_plain(value):
        return copy(value), ""
    if hint is not None:
        encoded = _by_hint(value, hint)
        if encoded is not None:
            return encoded, "typed"
    return _tagged(value, "", 0), "tagged"


def decode(value: Any, form: Form, hint: Any = None) -> Any:
    """Return the value that was encoded."""
    if form == "typed":
        return msgspec.convert(value, hint, dec_hook=_read_foreign, str_keys=True)
    return _untagged(value) if form == "tagged" else value


def is_plain(value: Any, depth: int = 0) -> bool:
    """Return whether JSON expresses this value exactly, with all its types."""
    kind = type(value)
    if kind is list:
        return depth < MAX_DEPTH and all(is_plain(item, depth + 1) for item in value)
    if kind is dict:
        return (
            depth < MAX_DEPTH
            and TAG not in value
            and all(type(key) is str and is_plain(key) for key in value)
            and all(is_plain(item, depth + 1) for item in value.values())
        )
    return _is_plain_scalar(value, kind)


def _is_plain_scalar(value: Any, kind: type) -> bool:
    if kind is str:
        return bool(value.isascii()) or not _SURROGATE.search(value)
    if kind is int:
        return bool(-_INT64 <= value < _INT64)
    if kind is float:
        return math.isfinite(value)
    return kind is bool or value is None


def copy(value: Any) -> Any:
    """Return a deep copy of a plain value."""
    kind = type(value)
    if kind is list:
        return [item if type(item) in _SCALARS else copy(item) for item in value]
    if kind is dict:
        return {key: item if type(item) in _SCALARS else copy(item) for key, item in value.items()}
    return value


_SCALARS = frozenset((str, int, float, bool, type(None)))


def snapshot(value: Any) -> tuple[Any, bool]:
    """Return a value as JSON as far as possible, and whether all of it could be expressed."""
    kind = type(value)
    if kind in _SCALARS:
        return (value if _is_plain_scalar(value, kind) else _in_unicode(str(value))), True
    hidden: list[Any] = []

    def write(part: Any) -> Any:
        try:
            return _write_foreign(part)
        except Exception:  # noqa: BLE001 - a foreign class's own code; its object is opaque
            hidden.append(part)
            return _outside_of(part)

    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=write)
        return msgspec.json.decode(msgspec.json.encode(plain)), not hidden
    except Exception:  # noqa: BLE001 - a foreign class's own code; its object is opaque
        return {"opaque": f"<{type(value).__qualname__}>"}, False


def _in_unicode(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _outside_of(value: Any) -> Any:
    """Describe an object that JSON can't express: its class, and its plain attributes."""
    try:
        inside = vars(value)
    except TypeError:
        inside = {}
    shown = {
        name: part
        for name, part in inside.items()
        if isinstance(name, str) and not name.startswith("_") and _is_plain_scalar(part, type(part))
    }
    return {"opaque": f"<{type(value).__qualname__}>", **shown}


def is_lazy(value: Any) -> bool:
    """Return whether a result is work that is not done yet: a coroutine, an iterator, a context."""
    if type(value) in _EAGER or isinstance(value, io.IOBase):
        return False
    lazy = (Awaitable, Iterator, AsyncIterator, contextlib.ContextDecorator)
    return isinstance(value, (*lazy, contextlib.AsyncContextDecorator))


_EAGER = frozenset((str, int, float, bool, type(None), dict, list, tuple, set))


def hints_of(function: Any) -> dict[str, Any]:
    """Return a function's annotations, except Any and object; {} where they can't be read."""
    if not hasattr(function, "__annotations__"):
        function = type(function).__call__
    try:
        found = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {}
    return {name: hint for name, hint in found.items() if hint not in (Any, object)}


def _by_hint(value: Any, hint: Any) -> Any:
    """Return the value as JSON if its annotation restores it unchanged; else None."""
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=_write_foreign)
        back = msgspec.convert(plain, hint, dec_hook=_read_foreign, str_keys=True)
        if not is_plain(plain) or type(back) is not type(value):
            return None
        same = bool(back == value) or _same_parts(back, value, plain)
    except Exception:  # noqa: BLE001 - a foreign class's own code; encode it in another way
        return None
    return copy(plain) if same else None


def _same_parts(back: Any, value: Any, plain: Any) -> bool:
    """Compare by content where a class defines no equality of its own."""
    if any("__eq__" in vars(cls) for cls in type(value).__mro__[:-1]):
        return False
    return bool(msgspec.to_builtins(back, str_keys=True, enc_hook=_write_foreign) == plain)


def _write_foreign(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__qualname__} can't be written as JSON")


def _read_foreign(hint: Any, value: Any) -> Any:
    if hasattr(hint, "model_validate"):
        return hint.model_validate(value)
    raise TypeError(f"a {hint!r} can't be read from JSON")


def _tagged(value: Any, path: str, depth: int) -> Any:
    if depth >= MAX_DEPTH:
        raise NotEncodable(path, f"nested more than {MAX_DEPTH} levels deep")
    kind = type(value)
    if kind is not dict and kind is not list and is_plain(value):
        return value
    if kind is list:
        return [_tagged(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(value)]
    if kind is dict and TAG not in value and all(type(key) is str for key in value):
        return {key: _tagged(item, f"{path}.{key}", depth + 1) for key, item in value.items()}
    if kind in _LISTS:
        items = value.items() if kind is dict else value
        inside = [_tagged(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(items)]
        if kind in (set, frozenset):
            inside.sort(key=msgspec.json.encode)
        return {TAG: kind.__name__, "items": inside}
    if kind in _TEXTS:
        return {TAG: "base64" if kind is bytes else kind.__name__, "text": _text(value)}
    if isinstance(value, PurePath):
        return {TAG: "path", "text": str(value)}
    why = "text with half a surrogate pair is not Unicode" if kind is str else ""
    raise NotEncodable(path, why or f"a {kind.__qualname__} can't be stored as JSON")


def _text(value: Any) -> str:
    if isinstance(value, bytes | dt.datetime):
        # As in a result, so that equal values are found there.
        return str(msgspec.to_builtins(value))
    if isinstance(value, dt.timedelta):
        return str(value // dt.timedelta(microseconds=1))
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return str(value)


def _untagged(value: Any) -> Any:
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    name = value.get(TAG)
    if name is None:
        return {key: _untagged(item) for key, item in value.items()}
    if name in _LISTS_BY_NAME:
        return _LISTS_BY_NAME[name](_untagged(value["items"]))
    if name == "path":
        from pathlib import Path

        return Path(value["text"])
    return _BY_NAME[name](value["text"])
