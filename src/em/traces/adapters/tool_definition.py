"""Definitions of tools as models get them, each with its function: `(definition, function)`.

OpenAI's (chat completions and responses), Anthropic's and MCP's definitions are known, and
pydantic models.
"""

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from em.errors import UsageError
from em.traces.adapters import Adapted, Function, Wrap
from em.values.canonical import Json

_SCHEMAS = ("parameters", "input_schema", "inputSchema")


def adapted_definition(definition: Any, function: Any) -> Adapted:
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
