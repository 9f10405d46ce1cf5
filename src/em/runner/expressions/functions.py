"""The functions that every expression may call."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from em.values.canonical import same


def only(items: Any) -> Any:
    """The one item of a list, or the one value of a mapping; an error if there are more or none."""
    found = _items(items)
    if len(found) != 1:
        raise ValueError(f"only() needs exactly one item, there are {len(found)}")
    return found[0]


def pick(items: Any, **fields: Any) -> Any:
    """The one item whose fields have these values; texts match in any case."""
    found = [item for item in _items(items) if _matches(item, fields)]
    if len(found) != 1:
        asked = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        raise ValueError(f"pick({asked}) needs exactly one item, there are {len(found)}")
    return found[0]


def nth(items: Any, number: int) -> Any:
    """An item of a list, or a value of a mapping, by where it stands; counted from 0."""
    found = _items(items)
    if number >= len(found):
        raise ValueError(f"there is no item {number}, there are {len(found)}")
    return found[number]


def _items(items: Any) -> list[Any]:
    if isinstance(items, Mapping):
        return list(items.values())
    if isinstance(items, Iterable) and not isinstance(items, str):
        return list(items)
    raise ValueError(f"a {type(items).__name__} has no items")


def _matches(item: Any, fields: Mapping[str, Any]) -> bool:
    return isinstance(item, Mapping) and all(
        name in item and same(item[name], value) for name, value in fields.items()
    )


def as_text(value: Any) -> str:
    """How a value stands in a text: a structure as JSON."""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)


def _as_str(value: Any) -> str:
    return str(value)


def _as_int(value: Any) -> int:
    return int(value)


def _as_float(value: Any) -> float:
    return float(value)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        len, sum, min, max, sorted, round, any, all, abs, zip, enumerate, only, pick, nth
    )
}  # fmt: skip
# Functions, not the types: a type has methods (`str.format`) that no sandbox looks at.
FUNCTIONS |= {"str": _as_str, "int": _as_int, "float": _as_float}
