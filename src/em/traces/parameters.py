"""Parameters: what a tool declares that its arguments may be, as far as JSON Schema says it.

It comes from the type hints and the docstring of a function, or from the definition that models
get. A trace has it for the tools that were called, so that a routine need not guess limits from few
recordings.
"""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from em.values.canonical import Json

LARGEST = 20_000
"""Bytes of a declaration that is stored; a longer one is left out."""
LONGEST = 300
"""Characters of a description that a docstring has of a parameter."""
_DEEPEST = 4
_SAID = (
    *("type", "format", "pattern", "description", "minimum", "maximum", "exclusiveMinimum"),
    *("exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems"),
    *("required", "additionalProperties"),
)


def declared_parameters(function: Callable[..., Any], schema: Json | None = None) -> Json:
    """Return what a tool declares of each parameter that it says something about.

    schema: the JSON Schema of its arguments, where it has one.
    """
    found = _hinted(function) if schema is None else _said(schema, schema, 0).get("properties", {})
    told = {name: one for name, one in found.items() if one not in ({}, {"type": "string"})}
    return told if len(msgspec.json.encode(told)) <= LARGEST else {}


def _hinted(function: Callable[..., Any]) -> Json:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
        found: Json = {name: {} for name in inspect.signature(function).parameters}
    except Exception:  # noqa: BLE001 - names that are not defined, and a foreign class's own code
        return {}
    for name, hint in hints.items():
        with suppress(TypeError, ValueError):  # a type that JSON has no form for
            (schema,), parts = msgspec.json.schema_components([hint])
            found[name] = _said(schema, {"$defs": parts}, 0)
    found.pop("return", None)
    doc = inspect.getdoc(function) or ""
    for name, one in found.items():
        told = re.search(
            rf"(?m)^[ \t]*(?::param )?{re.escape(name)}\b[^\n:]{{0,60}}:[ \t]*(\S.*)", doc
        )
        if told and "description" not in one:
            one["description"] = told[1][:LONGEST].strip()
    return found


def _said(schema: Any, whole: Json, level: int) -> Json:
    """Return what a schema says in plain words of JSON Schema, without references and null."""
    if not isinstance(schema, Mapping) or level > _DEEPEST:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _said(_part(whole, reference), whole, level + 1)
    others = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if len(others) == 1:
        return {**_said(others[0], whole, level + 1), **_words(schema)}
    made = _words(schema)
    if isinstance(schema.get("enum"), list):
        made["enum"] = [one for one in schema["enum"] if one is not None]
    if isinstance(schema.get("properties"), Mapping):
        inner = schema["properties"].items()
        made["properties"] = {name: _said(one, whole, level + 1) for name, one in inner}
    if "items" in schema:
        made["items"] = _said(schema["items"], whole, level + 1)
    return made


def _words(schema: Mapping[str, Any]) -> Json:
    return {name: schema[name] for name in _SAID if name in schema}


def _part(whole: Any, reference: str) -> Any:
    """Return the part of a schema that a reference in it names; None for any other."""
    for name in reference.removeprefix("#/").split("/"):
        whole = whole.get(name) if isinstance(whole, Mapping) else None
    return whole
