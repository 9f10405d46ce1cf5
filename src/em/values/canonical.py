"""Canonical JSON: one text for each value, so that equal content has equal hashes.

Keys are sorted, there is no white space, and numbers have their shortest exact form. Values that
JSON can't express (NaN, keys that are not text) are refused with their path, never converted.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import isfinite
from typing import Any

import msgspec

from em.errors import BadBody

MAX_DEPTH = 100
"""Levels of nesting. Fixed, so that every stored value can be read from any stack depth."""

MAX_BYTES = 64 * 1024 * 1024
"""Largest size of one encoded value."""


Json = dict[str, Any]

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode


def canonical(value: Any, place: str = "body", *, is_decoded: bool = False) -> tuple[bytes, Any]:
    """Encode a value; return the text, and the plain value that decoding the text gives.

    is_decoded: the value consists of what was decoded from JSON, so it is that plain value.
    """
    try:
        text = _encode(value)
        plain = value if is_decoded else _decode(text)
    except RecursionError:
        raise too_deep(place) from None
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise _explain(value, error, place) from None
    if len(text) > MAX_BYTES:
        raise BadBody(
            f"an event holds at most {MAX_BYTES:,} bytes of JSON, got {len(text):,}",
            place=place,
            fix="split it over several events, or store the file elsewhere and its address here",
        )
    if text.count(b"{") + text.count(b"[") > MAX_DEPTH and depth_of(plain) > MAX_DEPTH:
        raise too_deep(place)
    if plain is not value and plain != value:
        _refuse_converted(value, place)
    return text, plain


def _refuse_converted(value: Any, place: str) -> None:
    """Refuse values that msgspec converts silently: bytes, NaN and infinity."""
    if (path := _find(value, _is_bytes)) is not None:
        raise BadBody("bytes are not JSON", place=place + path, fix="decode them to text")
    if (path := _find(msgspec.to_builtins(value), _not_finite)) is not None:
        raise BadBody("NaN and infinity are not JSON", place=place + path, fix="use null or text")


def identical(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON. Python finds 1, 1.0 and True equal; a tool may not."""
    return bool(_encode(one) == _encode(other))


def too_deep(place: str) -> BadBody:
    """Return the error for a value nested deeper than `MAX_DEPTH`."""
    return BadBody(f"nested more than {MAX_DEPTH} levels deep", place=place, fix="flatten it")


def _explain(value: Any, error: Exception, place: str) -> BadBody:
    """Return the error that says where in a value the encoder failed."""
    if (path := _find(value, _not_text_keys)) is not None:
        return BadBody("keys must be text", place=place + path, fix="write keys as strings")
    if (path := _find(value, _not_unicode)) is not None:
        return BadBody("half a surrogate pair is not valid Unicode", place=place + path)
    return BadBody(f"can't be written as JSON: {error}", place=place)


def _find(value: Any, bad: Callable[[Any], bool]) -> str | None:
    """Return the path (`.key`, `[0]`) of the first bad part, parents first, without recursion."""
    todo: list[tuple[_Step | None, Any]] = [(None, value)]
    while todo:
        step, part = todo.pop()
        if bad(part):
            return _path(step)
        if isinstance(part, dict):
            todo.extend(((step, f".{key}"), child) for key, child in reversed(part.items()))
        elif isinstance(part, list | tuple):
            last = len(part) - 1
            todo.extend(((step, f"[{last - n}]"), child) for n, child in enumerate(reversed(part)))
    return None


_Step = tuple[Any, str]
"""The step before, and the name of this one. `_path` joins them when an error needs it."""


def _path(step: _Step | None) -> str:
    names = []
    while step is not None:
        step, name = step
        names.append(name[:80])
    return "".join(reversed(names))


def _is_bytes(part: Any) -> bool:
    return isinstance(part, bytes | bytearray | memoryview)


def _not_finite(part: Any) -> bool:
    return isinstance(part, float) and not isfinite(part)


def _not_text_keys(part: Any) -> bool:
    return isinstance(part, dict) and not all(isinstance(key, str) for key in part)


def _not_unicode(part: Any) -> bool:
    texts = part if isinstance(part, dict) else (part,)
    return any(
        isinstance(text, str) and any("\ud800" <= char <= "\udfff" for char in text)
        for text in texts
    )


def depth_of(value: Any) -> int:
    """Return how deep lists and objects are nested, without recursion."""
    deepest = 0
    todo = [(1, value)]
    while todo:
        depth, part = todo.pop()
        children = part.values() if isinstance(part, dict) else part
        if isinstance(part, dict | list):
            deepest = max(deepest, depth)
            todo.extend((depth + 1, child) for child in children)
    return deepest


def same(one: Any, other: Any) -> bool:
    """Compare two values as a clerk would.

    Texts match in any case and with any white space, 1 is 1.0, True is not 1, null is only null.
    """
    if isinstance(one, str) and isinstance(other, str):
        if one == other:
            return True
        return " ".join(one.split()).casefold() == " ".join(other.split()).casefold()
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection while building many long-lived objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


LONGEST = 300


def short(value: Any) -> str:
    """Return a value as JSON, cut to the length that fits in a message."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # half a surrogate pair, which an expression may contain
        text = ascii(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def prepare_structs() -> None:
    """Prepare every Struct that is loaded for decoding.

    msgspec prepares one when it is first decoded, and crashes the process when two threads do so at
    the same time (seen with 0.22): call this once before threads decode.
    """
    waiting: list[type[msgspec.Struct]] = [msgspec.Struct]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            with suppress(TypeError, NameError):  # one that is never decoded
                msgspec.json.Decoder(kind)
