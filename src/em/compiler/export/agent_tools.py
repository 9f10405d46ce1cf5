"""A routine as a tool of an agent that knows nothing of em: for LangChain, and for OpenAI."""

from typing import Any

from em.compiler.export.python import Section, export_python
from em.errors import ExportError
from em.runner.package import Package
from em.runner.routine import Routine
from em.runner.tools import one_line, tool_name
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


_TAKEN_BY_LANGCHAIN = frozenset({"config", "run_manager", "callbacks"})

_LANGCHAIN = '''\
def langchain_tool(tools: Any = None, answers: Any = None) -> Any:
    """The routine as a LangChain tool; `tools` are those that it calls itself."""
    return as_langchain(run, TOOL, tools, answers)
'''
_OPENAI = '''\
def handle(arguments: Any, tools: Any = None, answers: Any = None) -> str:
    """What to send back for a call of FUNCTION; `tools` are those that the routine calls."""
    return openai_answer(run, {schema}, arguments, tools, answers)
'''


def export_langchain(package: Package, *, trust: bool = False) -> str:
    """A module whose `langchain_tool()` is a StructuredTool. It needs langchain-core, and no em."""
    schema = _schema(package.routine)
    for name in sorted(_TAKEN_BY_LANGCHAIN & set(schema.get("properties", ()))):
        raise ExportError(
            f"LangChain takes an argument {name!r} for itself",
            place="input_schema",
            fix="give the input another name",
        )
    about = {**_about(package.routine), "parameters": schema}
    section = Section(
        {"TOOL": about}, _LANGCHAIN, "langchain_tool", "    tool = langchain_tool(my_tools)"
    )
    return export_python(package, trust=trust, section=section)


def export_openai(package: Package, *, trust: bool = False) -> str:
    """A module with FUNCTION, to be given to a model, and `handle`, which answers its calls."""
    routine = package.routine
    schema = _schema(routine)
    strict = strict_schema(schema)
    function = {
        **_about(routine),
        "parameters": strict or schema,
        "strict": strict is not None,
    }
    handler = _OPENAI.format(schema="INPUT_SCHEMA" if routine.input_schema is not None else "{}")
    section = Section(
        {"FUNCTION": {"type": "function", "function": function}},
        handler,
        "handle",
        "    client.chat.completions.create(..., tools=[FUNCTION])\n"
        "    handle(call.function.arguments, my_tools)",
    )
    return export_python(package, trust=trust, section=section)


def _about(routine: Routine) -> Json:
    about = one_line(routine.description) or f"Run {one_line(routine.name, 100)}."
    return {"name": tool_name(routine.name), "description": about}


def _schema(routine: Routine) -> Json:
    schema = routine.input_schema or {}
    if "properties" in schema and schema.get("type") == "object":
        return schema
    return {"properties": {}, **schema, "type": "object"}
