"""Tools of other libraries: what they are called, how they are called, and how to record them.

One file for each kind. A kind is recognised only if its library is already imported, so asking
imports nothing.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import msgspec

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
        from em.traces.adapters.tool_definition import adapted_definition

        return adapted_definition(*thing)
    for library, module in _KINDS.items():
        if library in sys.modules:
            found: Adapted | None = import_module(module).adapted_tool(thing)
            if found is not None:
                return found
    return None


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
