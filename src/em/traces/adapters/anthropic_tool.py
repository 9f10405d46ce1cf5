"""Tools of the Anthropic SDK: functions decorated with `beta_tool` or `beta_async_tool`."""

import copy
import functools
import inspect
from typing import Any

from anthropic.lib.tools import BetaAsyncFunctionTool, BetaFunctionTool

from em.traces.adapters import Adapted, Wrap, of_named, with_signature


def adapted_tool(thing: Any) -> Adapted | None:
    """Return a tool of the Anthropic SDK as em sees it."""
    if not isinstance(thing, BetaFunctionTool | BetaAsyncFunctionTool):
        return None
    schema = dict(thing.input_schema)
    return Adapted(
        name=thing.name,
        function=with_signature(of_named(thing.call, dict), thing.name, thing.description, schema),
        around=functools.partial(_around, thing),
        description=thing.description,
        schema=schema,
    )


def _around(tool: Any, wrap: Wrap) -> Any:
    """Return a copy of the tool whose function is wrapped; it checks its arguments as before."""
    other = copy.copy(tool)
    checked = tool._func_with_validate
    other.func = wrap(tool.func)

    if inspect.iscoroutinefunction(tool.func):

        @functools.wraps(tool.func)
        async def acall(**args: Any) -> Any:
            return await checked(**args)

        other._func_with_validate = wrap(acall)
    else:

        @functools.wraps(tool.func)
        def call(**args: Any) -> Any:
            return checked(**args)

        other._func_with_validate = wrap(call)
    return other
