"""LangChain tools: `@tool` functions, StructuredTool, and classes of BaseTool."""

import functools
import inspect
from contextvars import ContextVar
from typing import Any

from langchain_core.tools import BaseTool

from em.traces.adapters import Adapted, Function, Wrap, of_named, with_signature
from em.values.canonical import Json


def adapted_tool(thing: Any) -> Adapted | None:
    """Return a LangChain tool as em sees it."""
    if not isinstance(thing, BaseTool):
        return None
    schema = _schema(thing)
    return Adapted(
        name=thing.name,
        function=with_signature(_function(thing), thing.name, thing.description, schema),
        around=functools.partial(_around, thing, frozenset(schema.get("properties") or {})),
        description=thing.description,
        schema=schema,
    )


def _schema(tool: BaseTool) -> Json:
    shown: Any = tool.tool_call_schema
    found: Json = shown if isinstance(shown, dict) else shown.model_json_schema()
    return found


def _function(tool: BaseTool) -> Function:
    """Return a function that calls the tool; its errors are raised, not returned as texts."""
    strict = tool.model_copy(update={"handle_tool_error": False, "handle_validation_error": False})
    has_two = tool.response_format == "content_and_artifact"

    def asked(args: Json) -> Any:
        # As a tool call, the tool also returns its artifact; recorded calls have both.
        return (
            {"type": "tool_call", "id": "em", "name": tool.name, "args": args} if has_two else args
        )

    def given(answer: Any) -> Any:
        return [answer.content, answer.artifact] if has_two else answer

    is_async = getattr(tool, "func", tool) is None and getattr(tool, "coroutine", None) is not None
    return of_named(strict.ainvoke if is_async else strict.invoke, asked, given)


def _around(tool: BaseTool, shown: frozenset[str], wrap: Wrap) -> BaseTool:
    """Return a copy of the tool whose function is wrapped."""
    if hasattr(tool, "func"):
        functions = {
            name: _without_hidden(own, shown, wrap)
            for name in ("func", "coroutine")
            if (own := getattr(tool, name, None)) is not None
        }
        return tool.model_copy(update=functions)
    copy = tool.model_copy()
    for name in ("_run", "_arun"):
        # Past pydantic, which knows no such field.
        object.__setattr__(copy, name, _without_hidden(getattr(copy, name), shown, wrap))
    return copy


_OWN = frozenset({"callbacks", "config", "run_manager"})
_hidden: ContextVar[Json] = ContextVar("em_langchain_hidden")


def _without_hidden(function: Function, shown: frozenset[str], wrap: Wrap) -> Function:
    """Wrap a function so that only the arguments are seen that the model gives.

    LangChain adds others, such as `config`, `run_manager` or an injected state.
    """
    signature = inspect.signature(function)
    names = {
        one.name
        for one in signature.parameters.values()
        if one.name not in shown and one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    if any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values()):
        names |= _OWN - shown
    if not names:
        return wrap(function)
    left = [one for one in signature.parameters.values() if one.name not in names]

    def apart(kwargs: Json) -> Json:
        return {name: kwargs.pop(name) for name in list(kwargs) if name in names}

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def ainner(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs, **_hidden.get())

        inner: Any = ainner
    else:

        @functools.wraps(function)
        def plain_inner(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs, **_hidden.get())

        inner = plain_inner
    inner.__signature__ = signature.replace(parameters=left)
    wrapped = wrap(inner)

    @functools.wraps(function)
    def outer(*args: Any, **kwargs: Any) -> Any:
        token = _hidden.set(apart(kwargs))
        try:
            return wrapped(*args, **kwargs)
        finally:
            _hidden.reset(token)

    @functools.wraps(function)
    async def aouter(*args: Any, **kwargs: Any) -> Any:
        token = _hidden.set(apart(kwargs))
        try:
            return await wrapped(*args, **kwargs)
        finally:
            _hidden.reset(token)

    return aouter if inspect.iscoroutinefunction(function) else outer
