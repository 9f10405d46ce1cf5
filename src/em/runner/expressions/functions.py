"""The functions of expressions: one line each to say aloud. Whatever is not clear fails.

Filters of Jinja (`| round`, `| sum`, `| sort`) do the rest.
"""

from collections.abc import Callable, Mapping
from typing import Any

from em.runner.expressions.file_lines import (
    line_place,
    lists_only,
    next_number,
    stands_in,
    stands_once,
)
from em.runner.expressions.selection import (
    ABSENT,
    OMITTED,
    at_least,
    at_most,
    common,
    distinct,
    given,
    holding,
    largest,
    merge,
    only,
    only_key,
    smallest,
    where,
)
from em.runner.expressions.selection import items_of as items_of  # noqa: PLC0414 - for compilers
from em.runner.expressions.texts import (
    between,
    days,
    elapsed,
    later,
    lines,
    part_of,
    quoted,
    shown,
    structure,
)

KEYS = "@"
"""The part of a path that stands for the keys of a mapping."""
ANY = "*"
"""The part of a path that stands for every item of a list, or every value of a mapping."""
MAX_BITS = 4096
"""The largest size of a whole number, in bits."""


def check_size(bits: int) -> None:
    """Fail if a whole number is too large: computing with it could take for ever."""
    if bits > MAX_BITS:
        raise ValueError("the number is too large")


def bounded(number: int) -> int:
    """Return a whole number, if it is not too large."""
    check_size(number.bit_length())
    return number


def every(value: Any, path: str) -> list[Any]:
    """Return all values at a path such as `items.*.id`: `*` is any item, `@` are the keys.

    The path of a list begins in its items.
    """
    parts = path.split(".")
    if isinstance(value, list | tuple) and parts[0] not in (ANY, KEYS):
        parts.insert(0, ANY)
    return at_path(value, parts)


def at_path(value: Any, parts: list[str]) -> list[Any]:
    """Follow a path one level at a time, which is fast for long lists."""
    found = [value]
    for part in parts:
        held, found = found, []
        if part == ANY:
            for one in held:
                if isinstance(one, Mapping):
                    found += one.values()
                elif isinstance(one, list | tuple):
                    found += one
        elif part == KEYS:
            for one in held:
                found += one if isinstance(one, Mapping) else ()
        else:
            found = [one[part] for one in held if isinstance(one, Mapping) and part in one]
    return found


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        given, only, only_key, where, smallest, largest, common, every, distinct, merge,
        at_least, at_most, holding, structure, between, part_of, shown, quoted, days, elapsed,
        later, lines, line_place, next_number, stands_once, stands_in, lists_only, len,
    )
}  # fmt: skip
"""The functions that routines and workflows may call."""
SCOPE: dict[str, Any] = {**FUNCTIONS, OMITTED: ABSENT}
"""What their expressions have in scope beside values: the functions, and the word `omitted`."""
