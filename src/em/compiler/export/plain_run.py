"""The code around an exported function of a plain routine. It needs the standard library only.

`em export` copies it into the script. Whatever stops a function before its first write hands over:
nothing was done. What stops it later says what was done.
"""

from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import Any

from em.compiler.export.script import Failed, NeedsInput, bring, failure_of, having_made


class HandedOver(NeedsInput):
    """Something is not as it was recorded, and nothing was done: do the task without the script."""

    def __init__(self, message: str) -> None:
        super().__init__("", message, [])
        self.args = (message,)


def run_plain(
    work: Callable[..., Any],
    schema: Mapping[str, Any],
    given: Any,
    tools: Any,
    writes: Mapping[str, bool],
) -> Any:
    """Run a function with inputs and tools. writes: each tool, and whether it has an effect."""
    begun: list[str] = []
    made: list[str] = []
    brought = vars(bring(tools, dict.fromkeys(writes, "")))
    noting = {
        name: noted(function, name, begun, made) if writes[name] else function
        for name, function in brought.items()
    }
    take_inputs(schema, given)
    try:
        return work(**given, tools=SimpleNamespace(**noting))
    except Exception as error:
        failure = failure_of("", error)
        if len(begun) > len(made):
            unknown = f"{failure.message}. It is not known whether {begun[-1]} was done"
            failure = failure._replace(message=unknown)
        if begun:
            raise having_made(Failed(failure), made) from error
        raise HandedOver(f"handed over: {failure.message}; nothing was done") from error


def noted(
    function: Callable[..., Any], name: str, begun: list[str], made: list[str]
) -> Callable[..., Any]:
    """Return a tool that says that its call was begun, and that it was made."""

    def call(**args: Any) -> Any:
        begun.append(name)
        result = function(**args)
        made.append(name)
        return result

    return call


def take_inputs(schema: Mapping[str, Any], given: Any) -> None:
    """Raise unless the required inputs are there, and no others than those that are known."""
    known: Collection[str] = schema.get("properties", {})
    strange = [name for name in given if name not in known]
    if strange:
        raise HandedOver(f"handed over: there is no input {strange[0]!r}; nothing was done")
    missing = [name for name in schema.get("required", ()) if name not in given]
    if missing:
        fields = [{"name": name, "type": "json"} for name in missing]
        raise NeedsInput("input", f"give {', '.join(missing)}", fields)
