"""The shape of input and output in an exported script."""

from collections.abc import Iterator
from typing import Any

from em.compiler.export.script.ends import Failed
from em.compiler.export.script.values import RoutineProblem


def check_shape(schema: dict[str, Any], value: Any, what: str) -> None:
    """The input and the output must fit their schemas."""
    found = list(misfits(schema, value, what))
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise Failed("", RoutineProblem(f"the {what} does not fit its schema: {found[0]}{more}"))


def misfits(schema: Any, value: Any, place: str) -> Iterator[str]:
    """Where a value is not what its JSON Schema says."""
    if not isinstance(schema, dict):
        if schema is False:
            yield f"{place}: nothing is allowed here"
        return
    types = schema.get("type", [])
    names = [types] if isinstance(types, str) else types
    if names and not any(is_of(value, name) for name in names):
        yield f"{place}: {value!r} is not of type {' or '.join(names)}"
    options = [schema["const"]] if "const" in schema else schema.get("enum", [value])
    if not any(alike(value, option) for option in options):
        yield f"{place}: {value!r} is not one of {options!r}"
    yield from misfits_inside(schema, value, place)


def misfits_inside(schema: dict[str, Any], value: Any, place: str) -> Iterator[str]:
    """The same of the parts of a value."""
    if isinstance(value, dict):
        known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{place}: {name!r} is a required property"
        for name, part in value.items():
            yield from misfits(known.get(name, rest), part, f"{place}.{name}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from misfits(schema.get("items", True), item, f"{place}[{number}]")


def is_of(value: Any, name: str) -> bool:
    """Whether a value is of a type of JSON Schema."""
    if isinstance(value, bool) or value is None:
        return name == ("null" if value is None else "boolean")
    if isinstance(value, float) and name == "integer":
        return value.is_integer()
    kinds: dict[str, Any] = {
        "string": str, "integer": int, "number": (int, float), "array": (list, tuple),
        "object": dict,
    }  # fmt: skip
    return isinstance(value, kinds.get(name, ()))


def alike(one: Any, other: Any) -> bool:
    """Equal as JSON is: 1 is 1.0, but true is not 1."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
