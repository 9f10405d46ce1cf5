"""States: what values looked like in all recordings, as JSON Schema that lets nothing new pass.

A word, a flag, nothing, and a number that took few values are states: a value that no recording
had is a case that nobody has dealt with. A text that differs in its digits only is a pattern.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from em.compiler.conditions import Path, number_of
from em.compiler.facts import pattern_of, type_of
from em.compiler.places import is_word, key_of
from em.values.canonical import Json
from em.values.leaves import is_by_id

MOST_STATES = 8
"""Values from which on a field holds contents rather than states."""


class States:
    """The schema of a value, from all that it was.

    free: places whose values are compared with others, so that any value will do.
    """

    def __init__(self, free: Collection[Path] = ()) -> None:
        self._free = free

    def schema(self, values: Sequence[Any], path: Path, *, is_text: bool = False) -> Json:
        """Return what the next such value must look like.

        is_text: the records were read out of texts, so that a new field is a new state.
        """
        if all(isinstance(value, dict) for value in values):
            return self._record(values, path, is_text=is_text)
        if all(isinstance(value, list) for value in values):
            return self._list(values, path)
        return self._scalar(values, path)

    def _record(self, values: Sequence[Json], path: Path, *, is_text: bool) -> Json:
        if any(map(is_by_id, values)):
            return {"type": "object"}
        names = dict.fromkeys(name for value in values for name in value)
        made: Json = {"type": "object"}
        required = [name for name in names if all(name in value for value in values)]
        if required:
            made["required"] = required
        fields = {
            name: self.schema([value[name] for value in values if name in value], (*path, name))
            for name in names
        }
        made["properties"] = fields
        if is_text:
            made["additionalProperties"] = False
        return made

    def _list(self, values: Sequence[list[Any]], path: Path) -> Json:
        inner = [one for value in values for one in value]
        made: Json = {"type": "array"}
        if not all(values):
            made |= {} if any(values) else {"maxItems": 0}
        else:
            made["minItems"] = 1
        if inner and all(isinstance(one, dict) for one in inner):
            names = dict.fromkeys(name for one in inner for name in one)
            words = {name: [one[name] for one in inner if name in one] for name in names}
            fields = {
                name: {"enum": [*found]}
                for name, column in words.items()
                if all(map(is_word, column)) and (found := _few(column))
            }
            if fields:
                made["items"] = {"properties": fields}
        return made

    def _scalar(self, values: Sequence[Any], path: Path) -> Json:
        if path in self._free:
            return {"type": type_of(values)}
        if all(isinstance(value, bool) or value is None for value in values):
            return _one_of(_distinct(values))
        if all(isinstance(value, str) and number_of(value) is None for value in values):
            return _texts(values)
        found = _few(values)
        return _one_of(found) if found else _signed(values)


def _signed(values: Sequence[Any]) -> Json:
    made: Json = {"type": type_of(values)}
    is_numeric = made["type"] in ("integer", "number")
    if is_numeric and all(value > 0 for value in values):
        made["exclusiveMinimum"] = 0
    return made


def _texts(values: Sequence[str]) -> Json:
    """Return texts that are states; those that differ in digits only are one pattern."""
    alike: dict[str, list[str]] = {}
    for value in values:
        alike.setdefault(re.sub(r"[0-9]+", "0", value), []).append(value)
    if len(alike) > MOST_STATES or len(alike) > max(2, len(values) / 3):
        return {"type": "string"}
    exact = [group[0] for group in alike.values() if len({*group}) == 1]
    patterns = [*_patterns(alike.values())]
    ways: list[Json] = [{"pattern": pattern} for pattern in patterns]
    if exact:
        ways.insert(0, _one_of(sorted(exact)))
    return ways[0] if len(ways) == 1 else {"anyOf": ways}


def _patterns(groups: Collection[list[str]]) -> Iterator[str]:
    for group in groups:
        if len({*group}) > 1 and (pattern := pattern_of(group)):
            yield pattern


def is_few(values: Sequence[Any]) -> bool:
    """Return whether values repeat as states do."""
    return len({*map(repr, values)}) <= min(MOST_STATES, max(2, len(values) / 3))


def _few(values: Sequence[Any]) -> list[Any]:
    found = _distinct(values)
    return found if is_few(values) else []


def _distinct(values: Sequence[Any]) -> list[Any]:
    found = {key_of(value): value for value in reversed(values)}
    return sorted(found.values(), key=repr)


def _one_of(values: Sequence[Any]) -> Json:
    return {"const": values[0]} if len(values) == 1 else {"enum": [*values]}
