"""The code that an exported function calls beside its tools. It needs the standard library only.

`em export` copies what a function uses. Each definition does what the runner does at that point:
whatever is not as it was recorded raises `HandOver`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

MISSING: Any = type("Missing", (), {"__repr__": lambda _: "MISSING"})()
"""Stands for an input that was not given."""


class HandOver(Exception):
    """Something is not as it was recorded. Before the first write nothing was done."""


def check(holds: Any, message: str = "a check failed") -> None:
    """Raise HandOver unless something holds."""
    if not holds:
        raise HandOver(message)


def given(value: Any, *path: str) -> bool:
    """Return whether an input, or the part of it at a path, was given."""
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return value is not MISSING


def row(**values: Any) -> dict[str, Any]:
    """Return the values that are there, by name."""
    return {name: value for name, value in values.items() if value is not MISSING}


def agreed(old: Any, new: Any) -> Any:
    """Return a value that is found in two ways; raise HandOver if they differ."""
    check(old is MISSING or old == new, f"two ways lead to {old!r} and {new!r}")
    return new


def side_by_side(*lists: Any, most: int | None = None) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of lists that stand side by side; raise HandOver if they don't pair up."""
    check(all(isinstance(one, list) for one in lists), "a loop needs lists")
    check(len({len(one) for one in lists}) == 1, "the lists have different lengths")
    check(most is None or len(lists[0]) <= most, f"there are more than {most} rows")
    return zip(*lists, strict=True)


def expect(value: Any, schema: Mapping[str, Any], name: str = "the value") -> None:
    """Raise HandOver unless a value fits a JSON Schema, of which em writes these words."""
    for word, wanted in schema.items():
        if not _KEEPS[word](value, wanted):
            raise HandOver(f"{name} must have {word} {wanted!r}, and is {value!r:.200}")
    if isinstance(value, Mapping):
        for key, one in schema.get("properties", {}).items():
            if key in value:
                expect(value[key], one, f"{name}.{key}")
    if isinstance(value, list) and "items" in schema:
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
    "array": list, "object": Mapping,
}  # fmt: skip


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    try:
        expect(value, schema)
    except HandOver:
        return False
    return True


def _equals(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_format(value: Any, form: str) -> bool:
    if not isinstance(value, str):
        return True
    if form == "email":
        return re.fullmatch(r"[^@\s]+@[^@\s]+", value) is not None
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


def _are_distinct(values: Sequence[Any]) -> bool:
    return all(one not in values[:number] for number, one in enumerate(values))


_KEEPS: dict[str, Any] = {
    "type": lambda v, w: any(_is(v, kind) for kind in ([w] if isinstance(w, str) else w)),
    "const": _equals,
    "enum": lambda v, w: any(_equals(v, one) for one in w),
    "required": lambda v, w: not isinstance(v, Mapping) or all(name in v for name in w),
    "properties": lambda _v, _w: True,
    "items": lambda _v, _w: True,
    "additionalProperties": lambda _v, _w: True,
    "anyOf": lambda v, w: any(_fits(v, one) for one in w),
    "pattern": lambda v, w: not isinstance(v, str) or re.search(w, v) is not None,
    "format": _has_format,
    "minLength": lambda v, w: not isinstance(v, str) or len(v) >= w,
    "minItems": lambda v, w: not isinstance(v, list) or len(v) >= w,
    "maxItems": lambda v, w: not isinstance(v, list) or len(v) <= w,
    "uniqueItems": lambda v, w: not (w and isinstance(v, list)) or _are_distinct(v),
    "maxLength": lambda v, w: not isinstance(v, str) or len(v) <= w,
    "maxProperties": lambda v, w: not isinstance(v, Mapping) or len(v) <= w,
    "exclusiveMaximum": lambda v, w: not _is_number(v) or v < w,
    "minProperties": lambda v, w: not isinstance(v, Mapping) or len(v) >= w,
    "minimum": lambda v, w: not _is_number(v) or v >= w,
    "maximum": lambda v, w: not _is_number(v) or v <= w,
    "exclusiveMinimum": lambda v, w: not _is_number(v) or v > w,
}
WORDS = frozenset(_KEEPS)
"""The words of JSON Schema that `expect` knows."""
