"""A routine as a tool of an agent that knows nothing of em: for LangChain, and for OpenAI."""

from em.compiler.export.python import Section, export_python
from em.compiler.export.strict_schema import strict_schema
from em.errors import ExportError
from em.runner.package import Package
from em.runner.routine import Routine
from em.runner.tools.tool_names import one_line, tool_name
from em.values.canonical import Json

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
