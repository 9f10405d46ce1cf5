"""The shape of recorded values, as JSON Schema."""

from typing import Any

from em.values.canonical import Json

_TYPES = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)


def kind_of(value: Any) -> Json:
    """The type of a value, and no more: what is in it was this time's data."""
    for kind, name in _TYPES:
        if isinstance(value, kind):
            return {"type": name}
    return {}


def of_input(inputs: Json) -> Json:
    """Every input is needed, and of the type it had."""
    return {
        "type": "object",
        "properties": {name: kind_of(value) for name, value in inputs.items()},
        "required": list(inputs),
    }


def of_output(wired: Any, recorded: Any) -> Json:
    """What the routine itself puts together is always there; what it fills in has only a type."""
    if not isinstance(wired, dict) or not isinstance(recorded, dict):
        return kind_of(recorded)
    return {
        "type": "object",
        "properties": {key: of_output(part, recorded[key]) for key, part in wired.items()},
        "required": list(wired),
    }
