"""Tool schemas: a routine as a function that a model may call, in the forms that providers take."""

from typing import Any

from em.compiler.export.prelude import WORDS
from em.errors import ExportError
from em.runner.card import described_input, description_of
from em.runner.routine import Routine
from em.runner.tools import one_line, tool_name
from em.values.canonical import Json
from em.values.json_schema import FORMATS

_NOTES = frozenset({"title", "default", "examples", "$schema", "$comment"})
_NOT_STRICT = frozenset({"minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties"})
"""Words that scripts check, and that providers refuse in a strict function."""


class _Loose(Exception):
    """The schema can't be made strict."""


def strict_schema(schema: Json) -> Json | None:
    """Return the strict form of a schema: closed objects, all properties required; or None.

    An optional property becomes nullable.
    """
    try:
        return _strict(schema) if schema.get("type") == "object" else None
    except _Loose:
        return None


def _strict(schema: Any) -> Json:
    if not isinstance(schema, dict):
        raise _Loose
    kept = {name: value for name, value in schema.items() if name not in _NOTES}
    if kept.get("format") in FORMATS:
        del kept["format"]  # providers know none of em's own, which a run checks
    known = WORDS - _NOT_STRICT | {"description"}
    if kept.keys() - known or not kept.keys() & {"type", "enum", "const", "anyOf"}:
        raise _Loose
    kinds = kept.get("type", [])
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        if kind == "object":
            kept |= _object(kept)
        elif kind == "array":
            kept["items"] = _strict(kept.get("items"))
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


def without_nulls(schema: Any, value: Any) -> Any:
    """Drop null for optional properties: a strict function must name every property."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [without_nulls(schema.get("items"), item) for item in value]
    if not isinstance(value, dict):
        return value
    known, required = schema.get("properties", {}), schema.get("required", ())
    return {
        name: without_nulls(known.get(name), item)
        for name, item in value.items()
        if item is not None or name in required or name not in known or takes_null(known[name])
    }


def takes_null(schema: Any) -> bool:
    """Return whether a schema allows null."""
    if not isinstance(schema, dict) or not schema.keys() & {"type", "enum", "const", "anyOf"}:
        return True
    kinds = schema.get("type", [])
    named = "null" in ([kinds] if isinstance(kinds, str) else kinds)
    listed = None in schema.get("enum", ()) or ("const" in schema and schema["const"] is None)
    return named or listed or any(takes_null(part) for part in schema.get("anyOf", ()))


def parameters_of(routine: Routine) -> Json:
    """Return the schema of the inputs, without personal data of the recordings."""
    schema = described_input(routine)
    return {**schema, "properties": schema.get("properties", {}), "type": "object"}


def function_of(routine: Routine, name: str = "") -> Json:
    """Return a routine as a function: its name, what it does, and its parameters."""
    said = one_line(description_of(routine))
    return {
        "name": name or tool_name(routine.name),
        "description": said or f"Run {one_line(routine.name, 100)}.",
        "parameters": parameters_of(routine),
    }


def strict_function(function: Json) -> Json:
    """Return a function with `strict`, and its parameters in the strict form if they have one."""
    strict = strict_schema(function["parameters"])
    parameters = strict or function["parameters"]
    return {**function, "parameters": parameters, "strict": strict is not None}


_RESERVED = frozenset({"config", "run_manager", "callbacks"})


def refuse_reserved(function: Json) -> None:
    """Raise ExportError if LangChain takes an argument of a function for itself."""
    for name in sorted(_RESERVED & set(function["parameters"]["properties"])):
        raise ExportError(
            f"LangChain reserves the argument {name!r}",
            place=f"{function['name']}, input_schema",
            fix="give the input another name",
        )
