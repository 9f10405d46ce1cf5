"""Variations: recordings in which something is otherwise, to compare a routine with what em learnt.

Recordings show what a routine does with values that were there. What it would do with others is
compared with the draft that em learnt from all recordings: where the draft writes something, the
other routine must write the same or hand over; where the draft hands over, it must write nothing.
So a value that is written into it shows, and so does a check that it lacks.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain, groupby, islice
from typing import Any, NamedTuple

from em.compiler.example import APPROVAL, Call
from em.compiler.renaming import Renaming
from em.compiler.replay_world import InTurn, Recording, World, as_recorded, program_of
from em.redaction.redactor import MARKER
from em.runner.expressions.language import all_steps
from em.runner.tools import Function
from em.runner.tools.coding import FILE_CHANGES
from em.values.canonical import Json, identical, short
from em.values.leaves import is_by_id, is_informative, is_traceable, mentioned_in, scalars, texts
from em.values.mismatch import Where

MOST = 300
"""Variations of one recording that are tried."""
FAILED = "it failed"
_CHECKS = ("expect", "checks", "max")
_DATE = re.compile(r"(\d{4})(-\d{2}-\d{2}.*)", re.DOTALL)

Change = Callable[[Call], Call]


class Variation(NamedTuple):
    """What is otherwise: in words, in the inputs, and in each call."""

    words: str
    inputs: Json
    change: Change


def variations(
    recording: Recording, constants: str, functions: Collection[str], *, are_fixed: bool = False
) -> Iterator[Variation]:
    """Yield what could be otherwise in a recording.

    constants: a text with the values that a routine knows; where all values are replaced, these
    stay, and with `are_fixed` everywhere. functions: those that are there and compute. Where one is
    not, nobody knows what it would return for one other value.
    """
    yield from _all_replaced(recording, constants)
    computed = {call.tool for call in recording.calls if call.is_udf}
    if not computed <= {*functions}:
        return
    seen: set[tuple[str, Where]] = set()
    for call in recording.calls:
        if call.error is not None or call.is_udf:
            continue
        if call.tool == APPROVAL:
            no = {name: False if one is True else one for name, one in call.result.items()}
            words = "where a person says no"
            yield Variation(words, recording.inputs, _with_result(call, no))
            continue
        yield Variation(f"where {call.tool} fails", recording.inputs, _failing(call))
        for where, value in scalars(call.result):
            place = call.tool, tuple("[]" if isinstance(one, int) else one for one in where)
            other = _other(value)
            is_known = are_fixed and mentioned_in(value, constants)
            if place in seen or is_known or identical(other, value):
                continue
            seen.add(place)
            name = ".".join(str(one) for one in (call.tool, *where))
            words = f"where {name} is {short(other)} and not {short(value)}"
            changed = _set(call.result, where, other)
            yield Variation(words, recording.inputs, _with_result(call, changed))


def _all_replaced(recording: Recording, constants: str) -> Iterator[Variation]:
    """Yield other values in place of all: of the same form, longer ones, and quite others."""
    every = [recording.inputs, [[call.args, call.result] for call in recording.calls]]
    found = [value for _, value in scalars(every) if not mentioned_in(value, constants)]
    new = Renaming([value for value in found if is_informative(value)], every)
    ways: Sequence[Callable[[Any], Any]] = (
        new.of,
        lambda value: _longer(value, "", "-qx7"),
        lambda value: _longer(value, "zk4-", ""),
        lambda value: _unlike(_longer(value, "", "-qx7"), value),
    )
    for way in ways:

        def of(value: Any, way: Callable[[Any], Any] = way) -> Any:
            return value if mentioned_in(value, constants) else way(value)

        def change(call: Call, of: Callable[[Any], Any] = of) -> Call:
            return call._replace(args=_each(call.args, of), result=_each(call.result, of))

        inputs = {name: _each(value, of) for name, value in recording.inputs.items()}
        yield Variation("with other values", inputs, change)


def _is(one: Call, other: Call) -> bool:
    return one.tool == other.tool and identical(one.args, other.args)


def _failing(call: Call) -> Change:
    return lambda one: one._replace(result=None, error=FAILED) if _is(one, call) else one


def _with_result(call: Call, result: Any) -> Change:
    return lambda one: one._replace(result=result) if _is(one, call) else one


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


def _each(value: Any, other: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        by_id = is_by_id(dict(value))
        return {other(key) if by_id else key: _each(one, other) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_each(item, other) for item in value]
    return other(value)


def _longer(value: Any, before: str, after: str) -> Any:
    """Return another value of the same kind: a date for a date, a number for a number."""
    if not (is_informative(value) or is_traceable(value)) or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value + (1_013 if after else 20_011)
    if MARKER.search(value):
        return value
    date = _DATE.fullmatch(value)
    if date is not None:
        # The calendar repeats every 400 years.
        return f"{int(date[1]) + (400 if after else 800):04}{date[2]}"
    return f"{before}{value}{after}"


def _unlike(longer: Any, value: Any) -> Any:
    """Return a text that has nothing of the old one, where it would be a longer one."""
    is_text = isinstance(value, str) and longer == f"{value}-qx7"
    return f"y{sha256(value.encode()).hexdigest()[:8]}" if is_text else longer


def _other(value: Any) -> Any:
    """Return another value in one place."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1_013
    if not isinstance(value, str) or MARKER.search(value):
        return value
    return _longer(value, "", "-qx7") if is_informative(value) else f"{value}-qx7"


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

    schema = document.get("input_schema") or {}
    properties = {
        name: {key: one[key] for key in ("default", "title") if key in one}
        for name, one in schema.get("properties", {}).items()
    }
    kept = {name: one for name, one in document.items() if name != "output_schema"}
    open_schema = {"type": "object", "properties": properties}
    return {**kept, "input_schema": open_schema, "steps": acting(document["steps"])}


class Beside:
    """A routine beside the draft that em learnt, on one recording after the other.

    is_loose: both without their checks. Then what the draft knows stays as it is.
    """

    def __init__(
        self,
        draft: Json,
        routine: Json,
        functions: Mapping[str, Function],
        *,
        is_loose: bool = False,
    ) -> None:
        plain = (loose(draft), loose(routine)) if is_loose else (draft, routine)
        self._draft, self._routine = map(program_of, plain)
        self._functions, self._is_loose = functions, is_loose
        # What the draft names is no data of a recording.
        self._constants = "\n".join(texts(draft, names=True))

    def differences(self, recording: Recording) -> Iterator[str]:
        """Yield how the routine differs from the draft on variations of a recording."""
        known = as_recorded(recording, {})
        if known.run(self._draft).verdict != "right":
            return
        plain = as_recorded(recording, {})
        plain.run(self._routine, self._functions)
        is_same = identical(plain.output, known.output)
        every = variations(recording, self._constants, self._functions, are_fixed=self._is_loose)
        for one in islice(every, MOST):
            why = self._difference(one, recording, known, is_same=is_same)
            if why:
                yield f"{one.words}: {why}"

    def _difference(
        self, variation: Variation, recording: Recording, known: World, *, is_same: bool
    ) -> str:
        real = self._functions
        log = [variation.change(call) for call in known.made if call.tool not in real]
        draft = InTurn(variation.inputs, log)
        stopped = draft.run(self._draft, real)
        reads = [
            variation.change(call)
            for call in recording.calls
            if call.effect == "read" and call.tool not in real
        ]
        mine = World(variation.inputs, [*draft.made, *reads])
        found = mine.run(self._routine, self._functions)
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
