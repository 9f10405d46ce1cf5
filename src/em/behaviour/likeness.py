"""Likeness: whether a call returned what it returned when the behaviour was recorded.

An agent reads in order to decide. What a call was given can be traced to its source; what was only
looked at can't. A replay therefore compares what its calls return with the recordings, value by
value. What an argument or the answer takes may be another value of its kind, and so may a number or
a text that differed between two recordings. Of a fact (yes or no, nothing, a word) only recorded
values are fine.

A read with other arguments is about something else, and a write returns something new: there the
fields, the facts and the kinds of values must be recorded ones, and the words of what a write says.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any

from em.behaviour.behaviour import Beside
from em.redaction.redactor import MARKER
from em.values.canonical import Json, identical
from em.values.leaves import is_by_id, leaves

MOST_PATHS = 200
"""A result with more different paths is compared as a whole."""
FARTHEST = 1_000
"""How many times as large as a recorded number another one may be."""
_FACT = re.compile(r"[a-z][a-z _-]{0,30}|[A-Z][A-Z_-]{0,30}")
_MAIL = re.compile(r"[^@\s,;]{1,100}@[^@\s,;]{1,100}")
_ABSENT = object()
_FREE = "\0"


class Returned:
    """What a call returned, with its arguments and the inputs of its run."""

    def __init__(self, args: Json, result: Any, inputs: Json) -> None:
        self.args, self.result, self.inputs = args, result, inputs

    @functools.cached_property
    def parts(self) -> dict[str, Any]:
        """Every value of the result by its path."""
        return _parts(self.result)


def difference(now: Returned, recorded: Sequence[Returned], by: Beside, *, writes: bool) -> str:
    """Return the path of a value that differs from all recordings; "" if none matters."""
    if any(identical(now.result, one.result) for one in recorded):
        return ""
    if "" in by.fixed:
        return "result"
    is_again = by.asks and any(identical(now.args, one.args) for one in recorded)
    own, were = now.parts, [one.parts for one in recorded]
    for path in dict.fromkeys([*(path for one in were for path in one), *own]):
        value, before = own.get(path, _ABSENT), [one.get(path, _ABSENT) for one in were]
        if any(_is_recorded(value, one) for one in before):
            continue
        if path in by.fixed:
            is_fine = False
        elif path in by.free:
            is_fine = any(_is_alike(value, one) for one in before)
            is_fine = is_fine and (writes or _says_the_same(value, now, before, recorded))
        elif is_again:
            is_fine = _varied(value, before)
        elif path.endswith(("#", "@")):
            is_fine = _ABSENT not in (value, *before)
        else:
            is_fine = not is_fact(value) and any(_is_alike(value, one) for one in before)
            words = [_wording(*row) for row in zip(before, recorded, strict=True) if writes]
            is_fine = is_fine and (not words or _wording(value, now) in words)
        if not is_fine:
            return path.lstrip(".").rstrip("#@*") or "result"
    return ""


def _is_recorded(value: Any, one: Any) -> bool:
    """Return whether a value is a recorded one; what stood around a secret must be the same."""
    if value is _ABSENT or one is _ABSENT:
        return value is one
    around = MARKER.split(one) if isinstance(one, str) else []
    if isinstance(value, str) and len(around) > 1:
        return value.startswith(around[0]) and value.endswith(around[-1])
    return identical(value, one)


def is_fact(value: Any) -> bool:
    """Return whether a value is a fact such as true, none, an empty text, `pending` or `EUR`."""
    if value is None or isinstance(value, bool) or value == "":
        return True
    return isinstance(value, str) and _FACT.fullmatch(value) is not None


def _varied(value: Any, before: Sequence[Any]) -> bool:
    """Return whether a value of this kind that is no fact differed between recordings."""
    alike = [one for one in before if not is_fact(one) and _is_alike(value, one)]
    return not is_fact(value) and any(not identical(one, alike[0]) for one in alike[1:])


def _is_alike(value: Any, other: Any) -> bool:
    """Return whether a value is of the type, the sign, the look and about the size of another."""
    if type(value) is not type(other) or value is _ABSENT:
        return False
    if isinstance(value, str):
        is_address = _MAIL.fullmatch(value) is not None or _MAIL.fullmatch(other) is None
        is_line = len(value.splitlines()) <= 1 or len(other.splitlines()) > 1
        return bool(value) == bool(other) and is_address and is_line
    if isinstance(value, list):
        return bool(value) == bool(other)
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_near = abs(value) <= FARTHEST * max(1, abs(other))
        return bool(is_near and (value > 0, value < 0) == (other > 0, other < 0))
    return True


def _parts(result: Any) -> dict[str, Any]:
    """Return every value of a result by its path: of a list all, with their number."""
    found: dict[str, list[Any]] = {}
    todo: list[tuple[str, Any]] = [("", result)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, list) or (isinstance(value, dict) and is_by_id(value)):
            items = value if isinstance(value, list) else [value[key] for key in sorted(value)]
            found.setdefault(f"{path}#", []).append(len(items))
            if isinstance(value, dict):
                found.setdefault(f"{path}@", []).append(sorted(value))
            todo += [(f"{path}*", item) for item in reversed(items)]
        elif isinstance(value, dict):
            todo += [(f"{path}.{key}", item) for key, item in reversed(value.items())]
        else:
            found.setdefault(path, []).append(value)
    if len(found) > MOST_PATHS:
        return {"": [result]}
    return {path: rows[0] if len(rows) == 1 else rows for path, rows in found.items()}


def _says_the_same(
    value: Any, now: Returned, before: Sequence[Any], recorded: Sequence[Returned]
) -> bool:
    """Return whether a text about a given value has the words that it had in all recordings.

    Such a text may stand in another one because both say the same: that is no source.
    """
    if not isinstance(value, str) or len(value.split()) < 2:
        return True
    rows = [*zip(before, recorded, strict=True)]
    if not all(isinstance(text, str) and any(g in text for g in _given(by)) for text, by in rows):
        return True
    words = [_wording(*row) for row in rows]
    is_varied = any(one != words[0] for one in words) or {*words[0]} == {_FREE}
    return is_varied or _wording(value, now) == words[0]


def _wording(text: Any, said: Returned) -> Sequence[str]:
    """Return the words of a text: one with a digit, or that was given, is the same as others."""
    if not isinstance(text, str):
        return ()
    for one in sorted(_given(said), key=len, reverse=True):
        text = text.replace(one, _FREE)
    return [_FREE if _FREE in w or any(map(str.isdigit, w)) else w for w in text.split()]


def _given(said: Returned) -> set[str]:
    """Return the texts that a call or its run was given, but for the shortest."""
    given = (one for _, one in leaves([said.args, said.inputs]) if isinstance(one, str))
    return {one for one in given if len(one) > 2}
