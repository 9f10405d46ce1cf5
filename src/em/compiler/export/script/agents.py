"""An exported routine as a tool of an agent."""

import json
from collections.abc import Callable
from typing import Any

from em.compiler.export.script.ends import Failed, NeedsInput


def for_agent(run: Callable[..., Any], given: Any, tools: Any, answers: Any) -> Any:
    """What an agent is told: the output, or what a person must be asked first."""
    try:
        return run(given, tools or {}, answers or {})
    except NeedsInput as problem:
        return {
            "status": "needs_input",
            "step_id": problem.step_id,
            "message": str(problem.message),
            "fields": problem.fields,
        }


def as_langchain(run: Callable[..., Any], about: dict[str, Any], tools: Any, answers: Any) -> Any:
    """A LangChain tool; a run that fails is told to the model, which may do better."""
    from langchain_core.tools import StructuredTool, ToolException

    def work(**given: Any) -> Any:
        try:
            return for_agent(run, given, tools, answers)
        except Failed as problem:
            raise ToolException(str(problem)) from problem

    return StructuredTool.from_function(
        func=work,
        name=about["name"],
        description=about["description"],
        args_schema=about["parameters"],
        handle_tool_error=True,
    )


def openai_answer(
    run: Callable[..., Any], schema: Any, arguments: Any, tools: Any, answers: Any
) -> str:
    """What to send back for a call of the function; a run that fails is told to the model."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
        output = for_agent(run, without_nulls(schema, given), tools, answers)
    except (Failed, ValueError) as problem:
        return json.dumps({"error": str(problem)}, ensure_ascii=False)
    return json.dumps(output, ensure_ascii=False, default=str)


def without_nulls(schema: Any, value: Any) -> Any:
    """A strict function names every argument: null in one that may be left out leaves it out."""
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
    """Whether null is a value of its own here."""
    if not isinstance(schema, dict) or not schema.keys() & {"type", "enum", "const", "anyOf"}:
        return True
    kinds = schema.get("type", [])
    named = "null" in ([kinds] if isinstance(kinds, str) else kinds)
    listed = None in schema.get("enum", ()) or ("const" in schema and schema["const"] is None)
    return named or listed or any(takes_null(part) for part in schema.get("anyOf", ()))
