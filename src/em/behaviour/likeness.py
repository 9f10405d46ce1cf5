"""Likeness: whether a call returned what it returned when the behaviour was recorded.

An agent reads in order to decide. The same read again must return the same, value by value: but for
what the routine takes from it, and for numbers, texts and lengths that differed between recordings.
Of a fact (yes or no, nothing, a word) only recorded values are fine. A read with other arguments is
about something else: the checks of the routine judge it, and here only the words of a text that the
routine takes. A write returns something new: its fields, facts and kinds of values must be recorded
ones, and the words of what it says.
"""

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from em.compiler.facts import is_few
from em.redaction.redactor import MARKER
from em.values.canonical import Json, identical
from em.values.leaves import is_by_id, leaves

MOST_PATHS = 200
"""A result with more different paths is compared as a whole."""
SENTENCE = 4
"""Words of a text from which on its wording counts."""
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


def difference(
    now: Returned,
    recorded: Sequence[Returned],
    taken: Mapping[str, bool],
    *,
    is_asked: bool,
    writes: bool,
) -> str:
    """Return the path of a value that differs from all recordings; "" if none matters.

    taken: the paths that the routine takes, and whether they surely are the source. is_asked: the
    call may have been made to know something.
    """
    if any(identical(now.result, one.result) for one in recorded):
        return ""
    is_again = is_asked and any(identical(now.args, one.args) for one in recorded)
    own, were = now.parts, [one.parts for one in recorded]
    for path in dict.fromkeys([*(path for one in were for path in one), *own]):
        value, before = own.get(path, _ABSENT), [one.get(path, _ABSENT) for one in were]
        if any(_is_recorded(value, one) for one in before):
            continue
        there = [one for one in before if one is not _ABSENT]
        is_alike = any(_is_alike(value, one) for one in there)
        if path in taken:
            is_fine = taken[path] and is_alike
            is_fine = is_fine and (writes or _says_the_same(value, now, before, recorded))
        elif is_again:
            is_varied = any(not identical(one, there[0]) for one in there[1:])
            is_fine = is_alike and is_varied and _is_known(value, there)
        elif not writes:
            is_fine = _is_closed(value, now, before, recorded)
        elif path.endswith(("#", "@")):
            is_fine = _ABSENT not in (value, *before)
        else:
            words = [_wording(*row) for row in zip(before, recorded, strict=True)]
            is_fine = not is_fact(value) and is_alike and _wording(value, now) in words
        if not is_fine:
            return path.lstrip(".").rstrip("#@*") or "result"
    return ""


def _is_known(value: Any, before: Sequence[Any]) -> bool:
    """Return whether the facts among some values are recorded ones, or too many to be facts."""
    values = value if isinstance(value, list) else [value]
    pool = [one for row in before for one in (row if isinstance(row, list) else [row])]
    known = [one for one in pool if is_fact(one)]
    is_new = any(is_fact(one) and not any(identical(one, each) for each in known) for one in values)
    return not is_new or (len(known) == len(pool) and not is_few(pool))


def _is_closed(
    value: Any, now: Returned, before: Sequence[Any], recorded: Sequence[Returned]
) -> bool:
    """Return whether the facts and sentences of another record are recorded ones.

    A recording that had one that no other had shows that there are more.
    """
    rows = [_said(*row) for row in zip(before, recorded, strict=True)]
    known = {one for row in rows for one in row}
    is_open = len(rows) > 1 and any(
        not row <= {one for other in rows if other is not row for one in other} for row in rows
    )
    return is_open or not known or _said(value, now) <= known


def _said(value: Any, by: Returned) -> set[Any]:
    """Return the facts among values, and the words of sentences that are not given or a number."""
    values = value if isinstance(value, list) else [value]
    found: set[Any] = set()
    for one in values:
        if one is not _ABSENT and is_fact(one):
            found.add((type(one), one))
        elif isinstance(one, str) and len(one.split()) >= SENTENCE:
            found.add(tuple(_wording(one, by)))
    return found


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
