"""Variations: recordings in which one thing is otherwise, to compare a routine with the draft.

Recordings show what a routine does with values that were there. With another value, answer or error
it must do what the draft does that em learnt from all recordings, or hand over. So a check that it
lacks shows. With quite other values everywhere, and both without their checks, a value shows that
the routine knows and no recording comes to.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain, groupby, islice
from typing import Any

from em.compiler.example import APPROVAL, Call
from em.compiler.replay_world import InTurn, Recording, World, as_recorded, program_of
from em.redaction.redactor import MARKER
from em.runner.routine import Program
from em.runner.tools import Function
from em.runner.tools.coding import FILE_CHANGES
from em.runner.validation import all_steps
from em.values.canonical import Json, identical, short
from em.values.leaves import is_by_id, is_informative, mentioned_in, scalars, texts
from em.values.mismatch import Where

MOST = 300
"""Variations of one recording that are tried."""
FAILED = "it failed"
_DATE = re.compile(r"(\d{4})(-\d{2}-\d{2}.*)", re.DOTALL)

_CHECKS = ("expect", "checks", "max")

Change = Callable[[Call], Call]
Programs = tuple[Program, Program]
"""The draft, and the routine beside it."""


def variations(recording: Recording, fixed: str = "") -> Iterator[tuple[str, Change]]:
    """Yield what could be otherwise in a recording: in words, and as a change of its calls.

    fixed: a text with the values that stay.
    """
    seen: set[tuple[str, Where]] = set()
    for call in recording.calls:
        if call.error is not None or call.is_udf:
            continue
        if call.tool == APPROVAL:
            no = {name: False if one is True else one for name, one in call.result.items()}
            yield "where a person says no", _replacing(call, result=no)
            continue
        yield f"where {call.tool} fails", _replacing(call, result=None, error=FAILED)
        for where, value in scalars(call.result):
            place = call.tool, tuple("[]" if isinstance(one, int) else one for one in where)
            other = _other(value)
            if place in seen or identical(other, value) or mentioned_in(value, fixed):
                continue
            seen.add(place)
            name = ".".join(str(one) for one in (call.tool, *where))
            changed = _set(call.result, where, other)
            words = f"where {name} is {short(other)} and not {short(value)}"
            yield words, _replacing(call, result=changed)


def _replacing(call: Call, **new: Any) -> Change:
    """Return the change that gives a call another result or error."""

    def changed(one: Call) -> Call:
        is_it = one.tool == call.tool and identical(one.args, call.args)
        return one._replace(**new) if is_it else one

    return changed


def renamed(recording: Recording, constants: str) -> tuple[Json, Change]:
    """Return inputs, and a change of calls, in which all values are others but these constants."""

    def other(value: Any) -> Any:
        is_free = isinstance(value, str) and is_informative(value) and not MARKER.search(value)
        if not is_free or mentioned_in(value, constants):
            return value
        return f"y{sha256(value.encode()).hexdigest()[:8]}"

    def changed(call: Call) -> Call:
        return call._replace(args=_each(call.args, other), result=_each(call.result, other))

    return {name: _each(one, other) for name, one in recording.inputs.items()}, changed


def _each(value: Any, other: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        by_id = is_by_id(dict(value))
        return {other(key) if by_id else key: _each(one, other) for key, one in value.items()}
    return [_each(one, other) for one in value] if isinstance(value, list) else other(value)


def _set(value: Any, where: Where, new: Any) -> Any:
    """Return a value with another one at a path."""
    if not where:
        return new
    first, *rest = where
    if isinstance(value, Mapping):
        return {**value, first: _set(value[first], tuple(rest), new)}
    made = [*value]
    made[int(first)] = _set(made[int(first)], tuple(rest), new)
    return made


def _other(value: Any) -> Any:
    """Return another value of the same kind: a date for a date, a number for a number."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1_013
    if not isinstance(value, str) or MARKER.search(value):
        return value
    date = _DATE.fullmatch(value)
    # The calendar repeats every 400 years.
    return f"{value}-qx7" if date is None else f"{int(date[1]) + 400:04}{date[2]}"


def loose(document: Json) -> Json:
    """Return a routine without its checks, but for those of a person's answers."""
    answers = [
        step["save_as"]
        for _, step in all_steps(document["steps"])
        if step["type"] == APPROVAL and step.get("save_as")
    ]

    def acting(steps: Sequence[Json]) -> list[Json]:
        found = []
        for step in steps:
            if step["type"] == "assert" and not any(
                re.search(rf"\b{name}\b", step["check"]) for name in answers
            ):
                continue
            kept = {name: one for name, one in step.items() if name not in _CHECKS}
            found.append({**kept, "steps": acting(step["steps"])} if "steps" in step else kept)
        return found

    known = (document.get("input_schema") or {}).get("properties", {})
    properties = {
        name: {key: one[key] for key in ("default", "title") if key in one}
        for name, one in known.items()
    }
    kept = {name: one for name, one in document.items() if name != "output_schema"}
    open_schema = {"type": "object", "properties": properties}
    return {**kept, "input_schema": open_schema, "steps": acting(document["steps"])}


class Beside:
    """A routine beside the draft that em learnt, on one recording after the other."""

    def __init__(self, draft: Json, routine: Json, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self._checked = program_of(draft), program_of(routine)
        self._loose = program_of(loose(draft)), program_of(loose(routine))
        # What the draft names is no data of a recording.
        self._constants = "\n".join(texts(draft, names=True))

    def differences(self, recording: Recording) -> Iterator[str]:
        """Yield how the routine differs from the draft on variations of a recording."""
        inputs, change = renamed(recording, self._constants)
        yield from self._compared(self._loose, recording, [("with other values", inputs, change)])
        computed = {call.tool for call in recording.calls if call.is_udf}
        # Nobody knows what a function that is not there would return for another value.
        if not computed <= {*self._functions}:
            return
        # A person may strike checks later: what it then does must be right too.
        for both, fixed in ((self._checked, ""), (self._loose, self._constants)):
            every = islice(variations(recording, fixed), MOST)
            one_by_one = ((words, recording.inputs, change) for words, change in every)
            yield from self._compared(both, recording, one_by_one)

    def _compared(
        self, both: Programs, recording: Recording, every: Iterable[tuple[str, Json, Change]]
    ) -> Iterator[str]:
        known, plain = as_recorded(recording, {}), as_recorded(recording, {})
        if known.run(both[0]).verdict != "right":
            return
        plain.run(both[1], self._functions)
        is_same = identical(plain.output, known.output)
        for words, inputs, change in every:
            made = [change(one) for one in known.made if one.tool not in self._functions]
            reads = [
                change(one)
                for one in recording.calls
                if one.effect == "read" and one.tool not in self._functions
            ]
            if why := self._difference(both, inputs, made, reads, is_same=is_same):
                yield f"{words}: {why}"

    def _difference(
        self,
        both: Programs,
        inputs: Json,
        log: Sequence[Call],
        reads: Sequence[Call],
        *,
        is_same: bool,
    ) -> str:
        draft = InTurn(inputs, log)
        stopped = draft.run(both[0], self._functions)
        mine = World(inputs, [*draft.made, *reads])
        found = mine.run(both[1], self._functions)
        theirs, own = _acts(draft.made), _acts(mine.made)
        for one, other in zip(theirs, own, strict=False):
            if not identical(one, other):
                return f"it does {short(other)}, and should do {short(one)}"
        if len(own) > len(theirs):
            why = f": {stopped.reason}" if stopped.reason else ""
            return f"it does {short(own[len(theirs)])}, and should hand over{why}"
        hands_over = found.verdict == "handed over" and not found.is_unrecorded
        if stopped.verdict != "right" or hands_over:
            return ""
        if found.verdict != "right":
            return found.reason
        if is_same and not identical(mine.output, draft.output):
            return f"it returns {short(mine.output)}, and should return {short(draft.output)}"
        return ""


def _acts(made: Sequence[Call]) -> list[Any]:
    """Return the writes and questions of a run; changes of files in a row have no order."""
    acts = [call for call in made if call.effect == "write"]
    groups = groupby(acts, key=lambda call: call.tool in FILE_CHANGES)
    ordered = (
        sorted(group, key=lambda call: short(call.args)) if is_files else [*group]
        for is_files, group in groups
    )
    return [[call.tool, call.args] for call in chain.from_iterable(ordered)]
