"""Guard functions: what the recorded guards of behaviours say, and routines no longer do.

The evaluators know them beside the functions of routines, so that a recorded behaviour is replayed
as it was recorded. They go with the next issue, which rebuilds behaviours on plain routines.
"""

from collections.abc import Callable, Mapping
from typing import Any

from em.runner.expressions.functions import at_path, bounded, every
from em.runner.expressions.selection import items_of
from em.runner.expressions.texts import kind_of
from em.values.canonical import identical, same, short

MAX_COMPARISONS = 10_000_000
"""How often one function may compare two values."""


def _check_comparisons(some: int, others: int) -> None:
    if some * others > MAX_COMPARISONS:
        raise ValueError(f"comparing {some:,} values with {others:,} is too much")


def pick(items: Any, **fields: Any) -> Any:
    """Return the one item whose fields have these values; texts match in any case."""
    found = [item for item in items_of(items) if matches(item, fields)]
    if len(found) != 1:
        asked = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        raise ValueError(f"pick({asked}) needs exactly one item, there are {len(found)}")
    return found[0]


def matches(item: Any, fields: Mapping[str, Any]) -> bool:
    """Return whether an item has these fields with these values."""
    return isinstance(item, Mapping) and all(
        name in item and same(item[name], value) for name, value in fields.items()
    )


def pick_at(items: Any, path: str, wanted: Any) -> Any:
    """Return the one item that has a value at a path such as `options.size`, texts in any case."""
    found = [
        item for item in items_of(items) if any(same(one, wanted) for one in every(item, path))
    ]
    if len(found) != 1:
        raise ValueError(f"pick_at({path}, {wanted!r}) needs one item, there are {len(found)}")
    return found[0]


def among(values: Any, wanted: Any) -> Any:
    """Return what is wanted, a value or a list of them, if all of it is among the values."""
    known = values if type(values) is list else items_of(values)
    # Most values are texts, and looking one up directly is much faster.
    if type(wanted) is str and wanted in known:
        return wanted
    if isinstance(wanted, list | tuple):
        _check_comparisons(len(wanted), len(known))
    for value in wanted if isinstance(wanted, list | tuple) else (wanted,):
        found = isinstance(value, str) and value in known
        if not found and not any(equal(value, one) for one in known):
            raise ValueError(f"{value!r} is not among the {len(known)} values there")
    return wanted


def fact_of(records: Any, key: str, wanted: Any, field: str) -> Any:
    """Return the value that a field has in every record whose key is wanted; fail if they differ.

    `key` and `field` are paths within a record.
    """
    facts = _facts(records, key, wanted, field)
    if any(not identical(fact, facts[0]) for fact in facts):
        raise ValueError(f"{field} differs between the records")
    return facts[0]


def least_of(records: Any, key: str, wanted: Any, field: str) -> Any:
    """Return the smallest number that a field has in the records whose key is wanted."""
    return min(_facts(records, key, wanted, field))


def _facts(records: Any, key: str, wanted: Any, field: str) -> list[Any]:
    values = wanted if isinstance(wanted, list | tuple) else [wanted]
    held = [(record, at_path(record, key.split("."))) for record in items_of(records)]
    _check_comparisons(len(values), len(held))
    facts: list[Any] = []
    for value in values:
        found = [record for record, keys in held if any(equal(one, value) for one in keys)]
        if not found:
            raise ValueError(f"no record has {short(value)} as its {key}")
        facts += [fact for record in found for fact in at_path(record, field.split("."))]
    if not facts:
        raise ValueError(f"no record says its {field}")
    return facts


def least(items: Any, path: str) -> Any:
    """Return the one item whose value at a path is the smallest, or earliest."""
    return _extreme(items, path, min)


def most(items: Any, path: str) -> Any:
    """Return the one item whose value at a path is the largest, or latest."""
    return _extreme(items, path, max)


def _extreme(items: Any, path: str, choose: Callable[[Any], Any]) -> Any:
    found = [(value, item) for item in items_of(items) for value in every(item, path)]
    if not found:
        raise ValueError(f"no item has {path!r}")
    try:
        bound = choose([value for value, _ in found])
    except TypeError:
        raise ValueError(f"the values of {path!r} can't be compared") from None
    best = [item for value, item in found if value == bound]
    if len(best) != 1:
        raise ValueError(f"{len(best)} items share the same {path!r}")
    return best[0]


def value_at(items: Any, key: Any) -> Any:
    """Return the value of a mapping under a key that is itself a value; texts in any case."""
    if not isinstance(items, Mapping):
        raise TypeError(f"a {type(items).__name__} has no keys")
    if isinstance(key, str) and key in items:
        return items[key]
    found = [value for name, value in items.items() if same(name, key)]
    if len(found) != 1:
        raise ValueError(f"there is no {key!r}")
    return found[0]


def equal(one: Any, other: Any) -> bool:
    """Compare two values; a number equals the same number as a text."""
    if type(one) is str and type(other) is str:
        return one == other
    if isinstance(one, str) != isinstance(other, str) and not isinstance(one, bool):
        numbers = int | float | str
        if isinstance(one, numbers) and isinstance(other, numbers) and not isinstance(other, bool):
            return str(one).strip() == str(other).strip()
    return identical(one, other)


def _as_str(value: Any) -> str:
    return str(value)


def _as_int(value: Any) -> int:
    return bounded(int(value))


GUARD_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{
        function.__name__: function
        for function in (
            pick, pick_at, among, fact_of, least_of, least, most, value_at, kind_of,
        )
    },
    "sum": sum,
    "str": _as_str,
    "int": _as_int,
}  # fmt: skip
"""These functions by name."""
