"""Answers: read the fields of a prompt, and check answers by type and options."""

import re
from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from em.errors import RoutineError, UsageError
from em.runner.routine import Program
from em.runner.run import INPUTS, PendingPrompt
from em.values import json_schema
from em.values.canonical import Json
from em.values.mismatch import closest

_CALL = re.compile(r"(\[\d+(\.\d+)*\])?\?$")
"""The end of a question's name after the step id, as in `pay[2]?` for a call of step `pay`."""

_WORDS = {"yes": True, "y": True, "true": True, "no": False, "n": False, "false": False}


class AskedField(NamedTuple):
    """One field of a prompt, with its defaults filled in.

    candidates: values that it may be. suggested: what a terminal shows for a person to take.
    """

    name: str
    type: str
    label: str
    options: Sequence[Any]
    required: bool
    default: Any
    candidates: Sequence[Any] = ()
    suggested: Any = None

    @property
    def filled(self) -> Any:
        """What a form is filled with."""
        return self.suggested if self.default is None else self.default

    @property
    def option_texts(self) -> list[str]:
        """The options as a person sees them."""
        return [str(option) for option in self.options]


def fields_of(fields: Sequence[Json]) -> list[AskedField]:
    """Read the fields of a prompt, as a pending prompt holds them."""
    return [
        AskedField(
            name=str(field["name"]),
            type=str(field.get("type", "text")),
            label=str(field.get("label") or field["name"]),
            options=field.get("options", ()),
            required=bool(field.get("required", True)),
            default=field.get("default"),
            candidates=field.get("candidates", ()),
        )
        for field in fields
    ]


# A yes or no that is a value is not a `confirm`, which `--yes` answers.
_INPUT_TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}


def input_field(name: str, schema: Json) -> Json:
    """Return the field that asks for an input, by its JSON Schema."""
    label = str(schema.get("description") or schema.get("title") or name)
    options = schema.get("enum")
    if isinstance(options, list) and options:
        return {"name": name, "type": "select", "label": label, "options": options}
    kind = schema.get("type")
    known = _INPUT_TYPES.get(kind, "json") if isinstance(kind, str) else "json"
    return {"name": name, "type": known, "label": label}


def json_or_text(text: str) -> Any:
    """Read the answer to a `json` field: the value, or the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def read_number(given: str | int | float) -> int | float:
    """Read a number; a whole one stays whole. Raise ValueError if it is not one."""
    if not isinstance(given, str):
        return given
    try:
        return int(given)
    except ValueError:
        return float(given)


def check_steps(
    program: Program, answers: Mapping[str, Any], *, asking: Collection[str] = ()
) -> None:
    """Reject answers that match no prompt and no pending call.

    `asking`: names of other steps that ask something.
    """
    asks_inputs = program.routine.checks == "hand_over"
    prompts = [*((INPUTS,) if asks_inputs else ()), *asking]
    prompts += [step.id for step in program.steps if step.kind == "prompt"]
    calls = [step.id for step in program.steps if step.kind in ("tool", "udf")]
    for name, answer in answers.items():
        asked = name in prompts or (name.endswith("?") and _CALL.sub("", name) in calls)
        if not asked:
            close = closest(name, [*prompts, *(f"{call}?" for call in calls)])
            known = f"the prompts are: {', '.join(prompts)}" if prompts else "there are no prompts"
            raise UsageError(
                f"no step asks for {name!r}",
                place="answers",
                fix=close or known,
            )
        if not isinstance(answer, Mapping):
            raise UsageError(
                f"an answer must be fields with values, got {answer!r}"[:200],
                place=f"answers, step {name}",
                fix=f'write {{"{name}": {{"FIELD": …}}}}',
            )
        if name == INPUTS and asks_inputs:
            _check_inputs(program, answer)


def _check_inputs(program: Program, answer: Mapping[str, Any]) -> None:
    """Reject answers for things that are not an input."""
    known = json_schema.Declared(program.routine.input_schema or {}).names
    for name in answer:
        if name not in known:
            raise UsageError(
                f"the routine does not ask for {name!r}",
                place=f"answers, step {INPUTS}",
                fix=closest(name, sorted(known)) or f"it may ask for: {', '.join(sorted(known))}",
            )


def check_answers(prompt: PendingPrompt, answers: Json) -> Json:
    """Check the answers to a prompt and convert them to the types of its fields."""
    fields = fields_of(prompt.fields)
    known = {field.name for field in fields}
    place = f"step {prompt.step_id}"
    unknown = sorted(answers.keys() - known)
    if unknown:
        raise RoutineError(
            f"the prompt has no field {unknown[0]!r}",
            place=place,
            fix=f"its fields are: {', '.join(sorted(known))}",
        )
    return {
        field.name: _check(field, answers.get(field.name), f"{place}, field {field.name}")
        for field in fields
    }


def _check(field: AskedField, answer: Any, place: str) -> Any:
    if answer is None:
        answer = field.default
    if answer is None:
        if field.required:
            raise RoutineError("an answer is required", place=place)
        return None
    if field.type == "multiselect":
        if answer == [] and field.required:
            raise RoutineError("at least one option is required", place=place)
        if not isinstance(answer, list):
            raise RoutineError(f"{answer!r} is not a list", place=place)
    try:
        return _read(field, answer)
    except ValueError as wrong:
        # The message must not show a secret.
        shown = "the answer" if field.type == "secret" else repr(wrong.args[1])
        raise RoutineError(f"{shown} is not {wrong.args[0]}", place=place) from None


def _read(field: AskedField, answer: Any) -> Any:
    """Return an answer as a value of its field; a ValueError has what was expected, and found."""
    kind = field.type
    if kind in ("number", "integer"):
        return _number(answer, is_whole=kind == "integer")
    if kind in ("boolean", "confirm"):
        known = answer if isinstance(answer, bool) else _WORDS.get(str(answer).strip().lower())
        if known is None:
            raise ValueError("yes or no", answer)
        return known
    if kind == "multiselect":
        return [_option(field, one) for one in answer]
    if kind == "select":
        return _option(field, answer)
    if kind != "json" and not isinstance(answer, str):
        raise ValueError("a text", answer)
    return answer


def _number(answer: Any, *, is_whole: bool) -> int | float:
    expected = "a whole number" if is_whole else "a number"
    try:
        number = read_number(answer)
    except ValueError:
        raise ValueError("a number", answer) from None
    if type(number) is int:
        return number
    if type(number) is not float or not isfinite(number) or (is_whole and number % 1):
        raise ValueError(expected, answer)
    return int(number) if is_whole else number


def _option(field: AskedField, answer: Any) -> Any:
    for option in field.options:
        if answer == option or str(answer) == str(option):
            return option
    raise ValueError(f"one of: {', '.join(field.option_texts)}", answer)
