"""MCP clients: calls of a server's tools are recorded by the names of those tools."""

import functools
from contextlib import suppress
from typing import Any

from em.traces.adapters import Adapted, Wrap
from mcp import Client, ClientSession


def adapted_tool(thing: Any) -> Adapted | None:
    """Return a client or a session as em sees it: an object with tools that only it knows."""
    if not isinstance(thing, Client | ClientSession):
        return None
    return Adapted("call_tool", None, functools.partial(_around, thing))


def _around(client: Any, wrap: Wrap) -> Any:
    """Record the calls of this client, and return it: its session can't be copied."""
    inner = client.call_tool
    if hasattr(inner, "__em_wrapped__"):
        return client

    @functools.wraps(inner)
    async def call_tool(name: str, arguments: Any = None, *args: Any, **kwargs: Any) -> Any:
        answer: list[Any] = []

        async def call(**_arguments: Any) -> Any:
            answer.append(await inner(name, arguments, *args, **kwargs))
            failure = _failure(answer[0])
            if failure:
                raise ToolFailed(failure)
            return given_by(answer[0])

        call.__name__ = name
        with suppress(ToolFailed):  # recorded as an error; the client returns what says so
            await wrap(call)(**(arguments or {}))
        return answer[0]

    call_tool.__em_wrapped__ = True  # type: ignore[attr-defined]  # asked for above
    client.call_tool = call_tool
    return client


class ToolFailed(Exception):
    """A server's tool failed."""


def _failure(answer: Any) -> str:
    texts = [block.text for block in answer.content if block.type == "text"]
    return ("\n".join(texts) or "the tool failed without a message") if answer.is_error else ""


def given_by(answer: Any) -> Any:
    """Return what a tool gave: structured content if there is any, else its text."""
    texts = [block.text for block in answer.content if block.type == "text"]
    if answer.structured_content is not None:
        return answer.structured_content
    if len(texts) == len(answer.content):
        return "\n".join(texts)
    return [block.model_dump(mode="json", exclude_none=True) for block in answer.content]
