"""Tools of other libraries: their names, how to call and record them, and what they declare.

One file for each library. Its tools are recognised only if it is imported already, so asking
imports nothing. A definition as models get it is a tool too, with its function:
`(definition, function)`. OpenAI's (chat completions and responses), Anthropic's and MCP's are
known, and pydantic models.

A trace has what a tool declares of its parameters, as far as JSON Schema says it: from the type
hints and the docstring of a function, or from its definition. So a routine need not guess limits
from few recordings.
"""

import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import msgspec

from em.errors import UsageError
from em.values.call import Effect
from em.values.canonical import Json

Function = Callable[..., Any]
Wrap = Callable[[Function], Function]

_PLAIN = (FunctionType, MethodType, BuiltinFunctionType)
_KINDS = {
    "langchain_core.tools": "em.traces.adapters.langchain_tool",
    "anthropic": "em.traces.adapters.anthropic_tool",
    "pydantic": "em.traces.adapters.pydantic_model",
    "mcp": "em.traces.adapters.mcp_client",
}
_SCHEMAS = ("parameters", "input_schema", "inputSchema")
LARGEST_DECLARATION = 20_000
"""Bytes of a declaration that is stored; a longer one is left out."""
LONGEST_DESCRIPTION = 300
"""Characters of a description that a docstring has of a parameter."""
_DEEPEST = 4
_SAID = (
    *("type", "format", "pattern", "description", "minimum", "maximum", "exclusiveMinimum"),
    *("exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems"),
    *("required", "additionalProperties"),
)


class Adapted(msgspec.Struct, frozen=True):
    """A tool of any kind, as em sees it.

    function: takes its arguments by name, and raises if the tool fails. None for an object that
        has many tools and finds them only when it is asked, such as an MCP client.
    around: returns a tool of the same kind whose calls go through a wrapped function.
    schema: the JSON Schema of the arguments.
    """

    name: str
    function: Function | None
    around: Callable[[Wrap], Any]
    description: str = ""
    schema: Json | None = None
    effect: Effect | None = None


def adapted(thing: Any) -> Adapted | None:
    """Return a tool of another library as em sees it; None for a function."""
    if isinstance(thing, _PLAIN):
        return None
    if isinstance(thing, tuple) and len(thing) == 2:
        return _adapted_definition(*thing)
    for library, module in _KINDS.items():
        if library in sys.modules:
            found: Adapted | None = import_module(module).adapted_tool(thing)
            if found is not None:
                return found
    return None


def _adapted_definition(definition: Any, function: Any) -> Adapted:
    """Return a definition with its function as em sees it."""
    if not callable(function):
        raise UsageError(
            f"expected a definition with its function, got a {type(function).__name__}",
            place="tool",
            fix="write (definition, function)",
        )
    if "pydantic" in sys.modules:
        from em.traces.adapters.pydantic_model import adapted_pair, is_model

        if is_model(definition):
            return adapted_pair(definition, function)
    name, description, schema = read_definition(definition)

    def around(wrap: Wrap) -> tuple[Any, Function]:
        return definition, wrap(function)

    doc = description or inspect.getdoc(function) or ""
    return Adapted(name, function, around, doc.partition("\n")[0], schema)


def read_definition(definition: Any) -> tuple[str, str, Json | None]:
    """Return the name, the description and the schema of a definition."""
    inner = definition.get("function", definition) if isinstance(definition, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
        raise UsageError(
            f"expected the definition of a tool, got {type(definition).__name__}",
            place="tool",
            fix='a definition is a mapping such as {"name": …, "input_schema": {…}}',
        )
    schema = next((inner[one] for one in _SCHEMAS if isinstance(inner.get(one), Mapping)), None)
    return inner["name"], str(inner.get("description") or ""), schema and dict(schema)


def of_named(
    function: Function,
    given: Callable[[Json], Any],
    returned: Callable[[Any], Any] = lambda answer: answer,
) -> Function:
    """Return a function of named arguments that calls another one, async if that is.

    given: what the other one takes, made of the arguments. returned: what comes of its answer.
    """

    async def acall(**args: Any) -> Any:
        return returned(await function(given(args)))

    def call(**args: Any) -> Any:
        return returned(function(given(args)))

    return acall if inspect.iscoroutinefunction(function) else call


def with_signature(
    function: Function, name: str, description: str, schema: Mapping[str, Any]
) -> Function:
    """Declare the parameters of a function that takes any: those of a JSON Schema, by name."""
    required = schema.get("required") or ()
    parameters = [
        inspect.Parameter(
            one,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if one in required else None,
        )
        for one in schema.get("properties") or {}
        if one.isidentifier()
    ]
    declared: Any = function
    declared.__name__ = declared.__qualname__ = name
    declared.__doc__ = description
    declared.__signature__ = inspect.Signature(parameters)
    return function


def declared_parameters(function: Function, schema: Json | None = None) -> Json:
    """Return what a tool declares of each parameter that it says something about.

    schema: the JSON Schema of its arguments, where it has one.
    """
    found = _hinted(function) if schema is None else _said(schema, schema, 0).get("properties", {})
    told = {name: one for name, one in found.items() if one not in ({}, {"type": "string"})}
    return told if len(msgspec.json.encode(told)) <= LARGEST_DECLARATION else {}


def _hinted(function: Function) -> Json:
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
            one["description"] = told[1][:LONGEST_DESCRIPTION].strip()
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
