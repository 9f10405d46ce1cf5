"""Toolset: the routines in use as tools of an agent, in the forms that agents' libraries take.

```python
from em import Memory
from em.runner.package import keep_routine

GREET = '''
name: greet
description: Greet somebody.
input_schema: {type: object, properties: {who: {type: string}}, required: [who]}
steps: [{id: out, type: return, value: "Hello {{ who }}"}]
'''
with Memory("em.db") as memory:
    keep_routine(memory.store, {"routine.yaml": GREET})
    toolset = memory.tools("openai")
    assert [one["function"]["name"] for one in toolset.schemas] == ["greet"]
    assert '"output":"Hello Ana"' in toolset.call("greet", '{"who": "Ana"}')["content"]
```
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal

import msgspec

from em.compiler.export.prelude import WORDS
from em.errors import EmError, ExportError, InputError, NotFound, UsageError
from em.runner.agent_reply import bounded, reply
from em.runner.card import described_input, description_of
from em.runner.package import KeptRoutine
from em.runner.routine import Routine
from em.runner.run import RunResult
from em.runner.tools import one_line, tool_name, tool_names
from em.values.canonical import Json
from em.values.json_schema import FORMATS
from em.values.mismatch import closest

Format = Literal["openai", "anthropic", "langchain", "pydantic-ai"]


Run = Callable[[KeptRoutine, Json], RunResult]
"""Runs a routine, which hands over where it lacks inputs: the model is told what to complete."""


class Callables:
    """Routines that are called by a tool's name."""

    def __init__(self, routines: Sequence[KeptRoutine], run: Run) -> None:
        by_name = {one.name: one for one in routines}
        self.by_tool: Mapping[str, KeptRoutine] = {
            tool: by_name[name] for tool, name in tool_names(by_name).items()
        }
        self._run = run

    def functions(self) -> list[Json]:
        """Return all as functions for a model."""
        return [function_of(routine, name) for name, routine in self.by_tool.items()]

    def answer(self, name: str, arguments: Any) -> tuple[Json, bool]:
        """Run a routine. Return what the model is told, and whether that is an error."""
        try:
            routine = self.by_tool.get(name)
            if routine is None:
                fix = closest(name, self.by_tool) or f"there are: {', '.join(self.by_tool)}"
                raise NotFound(f"there is no tool {name!r}", place="name", fix=fix)
            given = without_nulls(routine.input_schema, _read(arguments))
            result = self._run(routine, given)
            told = reply(result, routine, given)
        except EmError as error:
            return {"error": error.as_dict()}, True
        return told, result.status == "failed"


def _read(arguments: Any) -> Json:
    """Return the arguments of a call, which some providers send as a text of JSON."""
    try:
        read = msgspec.json.decode(arguments) if isinstance(arguments, str | bytes) else arguments
    except msgspec.DecodeError as error:
        raise InputError(f"not valid JSON: {error}", place="arguments") from None
    if not isinstance(read, Mapping):
        raise InputError("expected an object with the inputs by name", place="arguments")
    return dict(read)


class Toolset:
    """Routines as tools for a provider's API.

    schemas: for the request's `tools`. Each call of the model is answered by `call`.
    """

    def __init__(self, known: Callables, schemas: Sequence[Json], *, marks_errors: bool) -> None:
        self.schemas = list(schemas)
        self._known, self._marks_errors = known, marks_errors

    def call(self, name: str, arguments: Any) -> Json:
        """Run a routine; return the fields of the tool result, beside the id of the call.

        arguments: an object, or its JSON. The result has `content`; for Anthropic `is_error` too.
        """
        told, is_error = self._known.answer(name, arguments)
        _, content = bounded(told)
        return {"content": content, **({"is_error": is_error} if self._marks_errors else {})}


class AsyncToolset:
    """Routines as tools for a provider's API, under asyncio."""

    def __init__(self, toolset: Toolset) -> None:
        self.schemas = toolset.schemas
        self._toolset = toolset

    async def call(self, name: str, arguments: Any) -> Json:
        """Run a routine in a thread: see `Toolset.call`."""
        import asyncio

        return await asyncio.to_thread(self._toolset.call, name, arguments)


def tools_of(known: Callables, form: Format) -> Any:
    """Return routines as tools in one of the forms."""
    functions = known.functions()
    if form == "openai":
        schemas = [{"type": "function", "function": strict_function(one)} for one in functions]
        return Toolset(known, schemas, marks_errors=False)
    if form == "anthropic":
        schemas = [
            {
                "name": one["name"],
                "description": one["description"],
                "input_schema": one["parameters"],
            }
            for one in functions
        ]
        return Toolset(known, schemas, marks_errors=True)
    if form == "langchain":
        return [_langchain(one, _called(known, one["name"])) for one in functions]
    if form == "pydantic-ai":
        return [_pydantic_ai(one, _called(known, one["name"])) for one in functions]
    raise UsageError(
        f"unknown format {form!r}",
        place="format",
        fix="use openai, anthropic, langchain or pydantic-ai, or none for plain functions",
    )


def _called(known: Callables, name: str) -> Callable[..., Json]:
    def call(**inputs: Any) -> Json:
        told, _ = bounded(known.answer(name, inputs)[0])
        plain: Json = msgspec.to_builtins(told, enc_hook=repr)
        return plain

    call.__name__ = name
    return call


def _langchain(function: Json, call: Callable[..., Json]) -> Any:
    refuse_reserved(function)
    return _library("langchain_core.tools", "langchain-core").StructuredTool.from_function(
        func=call,
        name=function["name"],
        description=function["description"],
        args_schema=function["parameters"],
    )


def _pydantic_ai(function: Json, call: Callable[..., Json]) -> Any:
    return _library("pydantic_ai", "pydantic-ai").Tool.from_schema(
        call,
        name=function["name"],
        description=function["description"],
        json_schema=function["parameters"],
    )


def _library(module: str, package: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{package} is not installed", place="format", fix=f"pip install {package}"
        ) from error


# --- schemas --------------------------------------------------------------------------------------


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
