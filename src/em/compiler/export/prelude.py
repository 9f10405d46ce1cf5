"""The code that an exported function calls beside its tools. It needs the standard library only.

`em routine export` copies what a function uses. Each definition does what the runner does at that
point, and raises `CheckFailed` for what is not as it must be.
"""

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any

from em.values.canonical import same
from em.values.json_schema import is_code, is_line, is_name

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""Stands for a value that is not there: an input that was not given, the result of a skipped step.
"""


class CheckFailed(Exception):
    """Something is not as it must be."""


class UnknownOutcome(Exception):
    """A call with an effect broke off: it may have been made."""


def check(holds: Any, message: str | Callable[[], Any] = "") -> None:
    """Raise CheckFailed unless something holds."""
    if not holds:
        said = message() if callable(message) else message
        raise CheckFailed(str(said or "the assertion failed"))


def given(value: Any, *path: Any) -> bool:
    """Return whether a value, or the part of it at a path, is there."""
    for part in path:
        if isinstance(part, int) and isinstance(value, list | tuple):
            if not -len(value) <= part < len(value):
                return False
        elif not isinstance(value, Mapping) or part not in value:
            return False
        value = value[part]
    return value is not MISSING


def have(value: Any, name: str) -> Any:
    """Return a value; raise CheckFailed if it is not there."""
    check(value is not MISSING, f"{name!r} is not defined")
    return value


def default_to(value: Any, other: Any) -> Any:
    """Return a value, or the other one if it is not there."""
    return other if value is MISSING else value


def row(**values: Any) -> dict[str, Any]:
    """Return the values that are there, by name."""
    return {name: value for name, value in values.items() if value is not MISSING}


def agreed(old: Any, new: Any) -> Any:
    """Return a value that is found in two ways; raise CheckFailed if they differ."""
    check(old is MISSING or same(old, new), f"two ways lead to {old!r} and {new!r}")
    return new


def side_by_side(*lists: Any, most: int | None = None) -> Iterator[tuple[Any, ...]]:
    """Return the rows of lists that stand side by side; raise CheckFailed if they don't pair up."""
    check(all(isinstance(one, list | tuple) for one in lists), "a loop needs lists")
    check(len({len(one) for one in lists}) == 1, "the lists have different lengths")
    check(most is None or len(lists[0]) <= most, f"there are more than {most} rows")
    return zip(*lists, strict=True)


def attempt(call: Callable[[], Any], otherwise: Any, schema: Any = None) -> Any:
    """Return what a call returns, or the other value if it fails.

    What a call that was made must return is not up to that: it is checked by its schema.
    """
    try:
        value = call()
    except UnknownOutcome:
        raise
    except Exception:  # noqa: BLE001 - the step goes on whatever fails
        return otherwise
    expect(value, schema or {}, "the result")
    return value


def again(
    call: Callable[[], Any], attempts: int, backoff: float, errors: Sequence[str] = ()
) -> Any:
    """Repeat a call that fails, with pauses; errors: only if the error has one of these words."""
    for count in range(1, attempts):
        try:
            return call()
        except Exception as error:
            said = f"{type(error).__name__} {error}"
            if errors and not any(word in said for word in errors):
                raise
            time.sleep(backoff * 2 ** (count - 1))
    return call()


# --- values in texts ------------------------------------------------------------------------------


def as_text(*parts: Any) -> str:
    """Join parts into one text; structures are written as JSON."""
    return "".join(
        json_text(part) if isinstance(part, dict | list) else str(part) for part in parts
    )


def json_text(value: Any) -> str:
    """Return a value as compact JSON."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_key(key)}:{json_text(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(json_text(item) for item in value) + "]"
    return json_number(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def json_number(value: float) -> str:
    """Return a float in its shortest form, as em writes it."""
    if not math.isfinite(value):
        return "null"
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        return digits
    if int(exponent) == -5:
        return ("-" if value < 0 else "") + "0.0000" + digits.lstrip("-").replace(".", "")
    return f"{digits}e{int(exponent)}"


def json_key(key: Any) -> str:
    """Return a key as JSON: always a text."""
    return json_text(key if isinstance(key, str) else json_text(key))


# --- schemas --------------------------------------------------------------------------------------


def expect(value: Any, schema: Any, name: str = "the value") -> None:
    """Raise CheckFailed unless a value fits a JSON Schema, of which em exports these words."""
    if isinstance(schema, bool):
        check(schema, f"{name} is not allowed")
        return
    for word, wanted in schema.items():
        if word in _KEEPS and not _KEEPS[word](value, wanted):
            raise CheckFailed(f"{name} must have {word} {wanted!r}, and is {value!r:.200}")
    if isinstance(value, Mapping):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        for missing in [one for one in schema.get("required", ()) if one not in value]:
            raise CheckFailed(f"{name}: {missing!r} is a required property")
        for key, one in value.items():
            expect(one, known.get(key, rest), f"{name}.{key}")
    if isinstance(value, list | tuple) and "items" in schema:
        for number, one in enumerate(value):
            expect(one, schema["items"], f"{name}[{number}]")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, _TYPES[kind])


_TYPES: dict[str, Any] = {
    "null": type(None), "boolean": bool, "number": (int, float), "string": str,
    "array": (list, tuple), "object": Mapping,
}  # fmt: skip


def _is_fit(value: Any, schema: Any) -> bool:
    try:
        expect(value, schema)
    except CheckFailed:
        return False
    return True


def _equals(one: Any, other: Any) -> bool:
    """Compare as JSON does: 1 equals 1.0, but not true."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equals, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equals(one[key], other[key]) for key in one)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_format(value: Any, form: str) -> bool:
    if not isinstance(value, str):
        return True
    try:
        return bool(FORMATS[form](value))
    except ValueError:
        return False


FORMATS: dict[str, Any] = {
    "email": lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text),
    "date": lambda text: len(text) == 10 and date.fromisoformat(text),
    "date-time": lambda text: datetime.fromisoformat(text).tzinfo,
    "line": is_line,
    "name": is_name,
    "code": is_code,
}
"""The formats of JSON Schema that `expect` knows, and em's own."""


def _are_distinct(values: Sequence[Any]) -> bool:
    pairs = ((one, other) for n, one in enumerate(values) for other in values[:n])
    return not any(_equals(one, other) for one, other in pairs)


_KEEPS: dict[str, Any] = {
    "type": lambda v, w: any(_is(v, kind) for kind in ([w] if isinstance(w, str) else w)),
    "const": _equals,
    "enum": lambda v, w: any(_equals(v, one) for one in w),
    "anyOf": lambda v, w: any(_is_fit(v, one) for one in w),
    "pattern": lambda v, w: not isinstance(v, str) or re.search(w, v) is not None,
    "format": _has_format,
    "minLength": lambda v, w: not isinstance(v, str) or len(v) >= w,
    "maxLength": lambda v, w: not isinstance(v, str) or len(v) <= w,
    "minItems": lambda v, w: not isinstance(v, list | tuple) or len(v) >= w,
    "maxItems": lambda v, w: not isinstance(v, list | tuple) or len(v) <= w,
    "uniqueItems": lambda v, w: not (w and isinstance(v, list | tuple)) or _are_distinct(v),
    "minProperties": lambda v, w: not isinstance(v, Mapping) or len(v) >= w,
    "maxProperties": lambda v, w: not isinstance(v, Mapping) or len(v) <= w,
    "minimum": lambda v, w: not _is_number(v) or v >= w,
    "maximum": lambda v, w: not _is_number(v) or v <= w,
    "exclusiveMinimum": lambda v, w: not _is_number(v) or v > w,
    "exclusiveMaximum": lambda v, w: not _is_number(v) or v < w,
}
WORDS = frozenset({*_KEEPS, "required", "properties", "additionalProperties", "items"})
"""The words of JSON Schema that `expect` knows."""
