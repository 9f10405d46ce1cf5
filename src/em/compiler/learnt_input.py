"""Learnt input: the schema of what a learnt routine can be given, without personal data."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from em.compiler.homes import Example
from em.compiler.sources import quoted
from em.runner.sentences import SEVERAL
from em.runner.task_plan import EARLIER, TASKS, Plan, Slot
from em.values.canonical import Json
from em.values.example_shape import shapes
from em.values.json_schema import kind_of

SHOWN = 3
"""Examples of an input in the schema."""


def learnt_input(plan: Plan, examples: Sequence[Example], request: str) -> Json:
    """Return the schema of the inputs of a plan: the request, and every value by its name.

    A value that several traces had is shown, of others only the shape.
    """
    properties: Json = {request: {"type": "string"}}
    for effect in plan.effects.values():
        for name, slot in effect.slots.items():
            traces = [_values(example, effect.tool, name) for example in examples]
            properties[name] = _of_slot(slot, traces)
    if any(slot.earlier for one in plan.effects.values() for slot in one.slots.values()):
        properties[EARLIER] = {"type": "array", "items": {"type": "object"}}
    for name, known in plan.inputs.items():
        properties[name] = {"type": "string", "examples": shapes(known.examples)[:SHOWN]}
    if len(plan.effects) > 1 and plan.form is None:
        of: Json = {"effect": {"type": "string", "enum": sorted(plan.effects)}}
        task: Json = {"type": "object", "properties": of, "required": ["effect"]}
        properties[TASKS] = {"type": "array", "items": task}
    return {
        "type": "object",
        "properties": properties,
        "required": [],
        "additionalProperties": False,
    }


def _values(example: Example, tool: str, name: str) -> list[Any]:
    """Return the values that an argument of a trace's effects had."""
    return [call.args[name] for call in example.calls if call.name == tool and name in call.args]


def _of_slot(slot: Slot, traces: Sequence[Sequence[Any]]) -> Json:
    kinds = {_kind(value) for values in traces for value in values}
    (only,) = kinds if len(kinds) == 1 else ("",)
    kind: Json = {"type": only} if only else {}
    seen = Counter(key for values in traces for key in {*_keys(values)})
    shared = [value for value in slot.values if seen[quoted(value)] >= SEVERAL]
    shown = shared or shapes(list(slot.values or slot.examples))[:SHOWN]
    return {**kind, "examples": [shown] if slot.many else shown} if shown else kind


def _keys(values: Sequence[Any]) -> Iterator[str]:
    for value in values:
        yield from map(quoted, value if isinstance(value, list) else [value])


def _kind(value: Any) -> str:
    """Return the type of a value; the next number need not be a whole one."""
    kind = str(kind_of(value).get("type", ""))
    return "number" if kind == "integer" else kind
