"""A JSON Schema as OpenAI's strict functions take it, where it can be said so."""

from typing import Any

from em.values.canonical import Json

_NOTES = frozenset({"title", "default", "examples", "$schema", "$comment"})
_KNOWN = frozenset(
    "type properties required items enum const anyOf description additionalProperties pattern"
    " format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minItems maxItems".split()
)
_SCALARS = frozenset({"string", "number", "integer", "boolean", "null"})


class _Loose(Exception):
    """It can't be said strictly."""


def strict_schema(schema: Json) -> Json | None:
    """Every object closed, every property required, what may be left out nullable; or None."""
    try:
        return _strict(schema) if schema.get("type") == "object" else None
    except _Loose:
        return None


def _strict(schema: Any) -> Json:
    if not isinstance(schema, dict):
        raise _Loose
    kept = {name: value for name, value in schema.items() if name not in _NOTES}
    if kept.keys() - _KNOWN or not kept.keys() & {"type", "enum", "const", "anyOf"}:
        raise _Loose
    kinds = kept.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind == "object":
            kept |= _object(kept)
        elif kind == "array":
            kept["items"] = _strict(kept.get("items"))
        elif kind not in _SCALARS:
            raise _Loose
    if "anyOf" in kept:
        kept["anyOf"] = [_strict(part) for part in kept["anyOf"]]
    return kept


def _object(schema: Json) -> Json:
    if schema.get("additionalProperties", False) is not False or "properties" not in schema:
        raise _Loose
    required = schema.get("required", ())
    properties = {
        name: _strict(part) if name in required else _nullable(_strict(part))
        for name, part in schema["properties"].items()
    }
    return {"properties": properties, "required": [*properties], "additionalProperties": False}


def _nullable(schema: Json) -> Json:
    if schema.keys() & {"enum", "const", "anyOf"} or not isinstance(schema["type"], str):
        return {"anyOf": [schema, {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}
