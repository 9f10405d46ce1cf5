"""The shape of recorded values, as JSON Schema."""

from typing import Any

from em.models.canonical import Json

MAX_PROPERTIES = 40


_SCALARS = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"))


def infer(value: Any) -> Json:
    """What a value looks like: its type, and those of its parts; nothing can be said of null."""
    for kind, name in _SCALARS:
        if isinstance(value, kind):
            return {"type": name}
    if isinstance(value, list):
        kinds = {str(infer(item).get("type")) for item in value}
        known = len(kinds) == 1 and "None" not in kinds
        return {"type": "array", "items": {"type": kinds.pop()}} if known else {"type": "array"}
    if not isinstance(value, dict):
        return {}
    if len(value) > MAX_PROPERTIES:
        return {"type": "object"}
    return {
        "type": "object",
        "properties": {key: infer(item) for key, item in value.items()},
        "required": list(value),
    }
