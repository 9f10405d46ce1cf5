"""The same recording with other values: what a routine must do as its draft does it, too.

One recording can't tell `{{ order }}` from the order number written down, or from a condition that
holds for this order only. So every value that says something is replaced by another one, the same
by the same wherever it stands; the draft shows what is to be done then, and the model's routine
must do just that.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from em.compiler.draft import Draft
from em.compiler.leaves import is_by_id, is_informative, is_telling, said_in
from em.compiler.literals import steps_text
from em.compiler.verification import NotReproduced, effects_of, rehearsed, verify_improved
from em.errors import EmError
from em.redaction.redactor import MARKER
from em.runner.routine import AssertStep, Routine, Step, ToolStep, UdfStep
from em.runner.tools import Function
from em.values.canonical import identical

_DATE = re.compile(r"(\d{4})(-\d{2}-\d{2}.*)", re.DOTALL)
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,6})?")


class Way(NamedTuple):
    """How values are replaced: what goes around a text, how far a number and a date move."""

    before: str
    after: str
    more: int
    years: int


WAYS = (Way("", "-qx7", 1_013, 400), Way("zk4-", "", 20_011, 800))
"""One changes the end of texts, one the beginning; a draft may need either as it is."""


def verify_renamed(
    draft: Draft, improved: Draft, udfs: Mapping[str, Function], way: Way
) -> str | None:
    """Compare an improved routine with its draft on other values.

    None if they do the same; a text, if the draft itself fails on these values.
    """
    try:
        expected = rehearsed(_renamed(draft, way))
    except EmError as error:
        return str(error)
    other = msgspec.structs.replace(
        expected, routine=_only_what_acts(draft.routine, improved.routine)
    )
    known = answered(expected, udfs)

    def same(found: Any, wanted: Any) -> bool:
        return _same_but_computed(found, wanted, draft.output)

    try:
        verify_improved(other, {**udfs, **known}, effects_of(draft), same)
    except NotReproduced as error:
        raise NotReproduced(
            f"with other values in the recording it does not do what the draft does: {error}",
            fix="take every value from where the draft takes it, without conditions, and call"
            " the draft's functions as the draft does",
        ) from None
    return None


def answered(expected: Draft, udfs: Mapping[str, Function]) -> dict[str, Function]:
    """The functions of a recording, answered from it; other arguments are for `udfs`."""
    names = {item.name for item in expected.recording if item.is_udf}
    return {name: _answered(expected, name, udfs.get(name)) for name in names}


def _answered(expected: Draft, name: str, real: Function | None) -> Function:
    def call(*args: Any, **named: Any) -> Any:
        for item in expected.recording:
            if item.is_udf and item.name == name and not args and identical(item.args, named):
                return item.result
        if real is None:
            raise NotReproduced(f"{name} is called with other arguments than in the draft")
        return real(*args, **named)

    return call


def _same_but_computed(found: Any, expected: Any, recorded: Any) -> bool:
    """Equal, but for numbers that the draft can only repeat: those may be computed now."""
    if isinstance(expected, dict) and isinstance(found, dict) and isinstance(recorded, dict):
        return found.keys() == expected.keys() == recorded.keys() and all(
            _same_but_computed(found[key], expected[key], recorded[key]) for key in expected
        )
    if isinstance(expected, list) and isinstance(found, list) and isinstance(recorded, list):
        return len(found) == len(expected) == len(recorded) and all(
            _same_but_computed(*items) for items in zip(found, expected, recorded, strict=True)
        )
    if _is_number(found) and _is_number(expected) and identical(expected, recorded):
        return True
    return identical(found, expected)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _only_what_acts(old: Routine, new: Routine) -> Routine:
    """Without what can only stop a run: a check may well name a value of the recording."""
    steps: list[Step] = []
    checks = {step.check for step in old.steps if isinstance(step, AssertStep)}
    for step in new.steps:
        if isinstance(step, AssertStep) and step.check not in checks:
            continue
        if isinstance(step, ToolStep | UdfStep):
            step = msgspec.structs.replace(step, checks=None)  # noqa: PLW2901 - the same step
        steps.append(step)
    return msgspec.structs.replace(new, steps=steps)


def _renamed(draft: Draft, way: Way) -> Draft:
    said = steps_text(draft)

    def other(value: Any) -> Any:
        # What the draft says itself is no value of this one recording.
        return value if said_in(value, said) else _other(value, way)

    return msgspec.structs.replace(
        draft,
        input={name: _each(value, other) for name, value in draft.input.items()},
        answers={
            step: {name: _each(value, other) for name, value in answer.items()}
            for step, answer in draft.answers.items()
        },
        recording=[
            msgspec.structs.replace(item, result=_each(item.result, other))
            for item in draft.recording
        ],
    )


def _each(value: Any, other: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        keys = other if is_by_id(value) else _same
        return {keys(key): _each(item, other) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_each(item, other) for item in value]
    return other(value)


def _same(value: Any) -> Any:
    return value


def _other(value: Any, way: Way) -> Any:
    """Another value of the same kind: a date stays a date, a number in a text a number."""
    if not (is_informative(value) or is_telling(value)):
        return value
    if isinstance(value, int | float):
        return value + way.more
    if MARKER.search(value):
        return value
    date = _DATE.fullmatch(value)
    if date is not None:
        # The calendar repeats itself after 400 years.
        return f"{int(date[1]) + way.years:04}{date[2]}"
    if _NUMBER.fullmatch(value):
        whole, dot, rest = value.partition(".")
        return f"{int(whole) + way.more}{dot}{rest}"
    return f"{way.before}{value}{way.after}"
