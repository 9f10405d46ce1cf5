"""Likeness: whether a call returned what it returned when the behaviour was recorded.

An agent reads in order to decide. What a call was given can be traced to its source; what was only
looked at can't. A replay therefore compares the results of its reads, field by field, before it
writes and before it answers. A field may differ if an argument takes its value, or if another
recording of the same behaviour had another value there. Only hashes are stored.

A read with other arguments than recorded (another order) is about something else: it must look as
recorded, and what `requirements` found must hold of it. So must what a write returned. The routine
says both.
"""

import re
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from em.behaviour.behaviour import Captures, result_hash
from em.values.canonical import Json
from em.values.json_schema import misfit
from em.values.leaves import is_by_id

MOST_PATHS = 200
"""A result with more different paths is compared as a whole."""
FEW, MANY, ABSENT = "=", "~", "-"
"""How a hash begins: of a value that is one of a few, of any other, of a path that was missing.

Two recordings that differ in a value of the second kind show that it does not matter. Of the first
kind, only the recorded values are known to be fine.
"""
_SIGNS = "pnz"
"""Marks of positive and negative numbers and of 0; hashes don't begin with them."""
_FEW = re.compile(r"[a-z][a-z _-]{0,30}")


def is_one_of_few(value: Any) -> bool:
    """Return whether a value is a fact such as true, none, an empty text or `pending`."""
    if value is None or isinstance(value, bool) or value == "":
        return True
    return isinstance(value, str) and _FEW.fullmatch(value) is not None


def traits_of(result: Any) -> dict[str, str]:
    """Return the hash of every path of a result. The order of a mapping's keys does not count."""
    found: dict[str, list[Any]] = {}
    sizes: dict[str, list[int]] = {}
    todo: list[tuple[str, Any]] = [("", result)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, list) or (isinstance(value, dict) and is_by_id(value)):
            items = value if isinstance(value, list) else [value[key] for key in sorted(value)]
            sizes.setdefault(f"{path}#", []).append(len(items))
            if isinstance(value, dict):
                found.setdefault(f"{path}@", []).append(sorted(value))
            todo += [(f"{path}*", item) for item in reversed(items)]
        elif isinstance(value, dict):
            todo += [(f"{path}.{key}", item) for key, item in reversed(value.items())]
        else:
            found.setdefault(path, []).append(value)
    if len(found) > MOST_PATHS:
        return {"": MANY + result_hash(result)}
    traits = {path: _trait(values) for path, values in found.items()}
    return traits | {path: FEW + _hash(size) for path, size in sizes.items()}


def _trait(values: list[Any]) -> str:
    """Return the hash of the values at a path; one number is marked with its sign."""
    if len(values) > 1:
        return MANY + _hash(values)
    value = values[0]
    if is_one_of_few(value):
        return FEW + _hash(value)
    if isinstance(value, str):
        return MANY + _hash(value)
    return MANY + ("p" if value > 0 else "n" if value < 0 else "z") + _hash(value)


def _hash(value: Any) -> str:
    """Return a short hash; it only has to tell two values of one path apart."""
    return f"{zlib.crc32(msgspec.json.encode(value)):08x}"


class Seen(msgspec.Struct):
    """What a call of this run returned; hashes are made when they are needed, and once."""

    _args: Json
    _result: Any
    _gave: str = ""
    _asked: str = ""
    _traits: dict[str, str] | None = None

    def is_asked_again(self, recorded: Captures) -> bool:
        """Return whether a call asked what a recorded one asked."""
        self._asked = self._asked or result_hash(self._args)
        return self._asked in recorded.asked

    def difference(self, recorded: Captures, but: Sequence[str] = ()) -> str:
        """Return a path in which the result differs from the recorded ones; "" if none matters.

        but: paths that may differ.
        """
        if not recorded.seen:
            return ""
        self._gave = self._gave or result_hash(self._result)
        if self._gave == recorded.gave:
            return ""
        if not self.is_asked_again(recorded):
            found = misfit(recorded.other, self._result) if recorded.other is not None else None
            return "result" if recorded.chosen else "" if found is None else found.where
        if self._traits is None:
            self._traits = traits_of(self._result)
        now = self._traits
        for path in {**recorded.seen, **now}:
            were = recorded.seen.get(path, (ABSENT,))
            if were and path not in but and not _fits(now.get(path, ABSENT), were, recorded):
                return path.lstrip(".").rstrip("#@*") or "result"
        return ""


def _fits(now: str, recorded: Sequence[str], by: Captures) -> bool:
    if now in recorded:
        return True
    if by.chosen or not now.startswith(MANY):
        return False
    differing = [one for one in recorded if one.startswith(MANY)]
    return len(differing) > 1 and any(one[1] == now[1] or one[1] not in _SIGNS for one in differing)


def hashes_of(results: Sequence[Any]) -> dict[str, list[str]]:
    """Return the hashes of what recordings of a call returned, by the path."""
    rows = [traits_of(result) for result in results]
    paths = dict.fromkeys(path for row in rows for path in row)
    return {path: [*dict.fromkeys(row.get(path, ABSENT) for row in rows)] for path in paths}
