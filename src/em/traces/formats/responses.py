"""OpenAI Responses: answers with `output`, or the items of a conversation themselves."""

from typing import Any

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import (
    as_args,
    as_value,
    text_of,
    text_or_json,
    tokens_of,
    when,
)
from em.traces.intake import Incoming, Intake
from em.traces.trace import reports_error
from em.values.canonical import Json

NAME = "responses"
_ITEMS = frozenset({
    "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
    "reasoning", "web_search_call", "file_search_call", "computer_call", "computer_call_output",
    "code_interpreter_call", "mcp_call", "local_shell_call", "local_shell_call_output",
})  # fmt: skip


def _is_responses(value: Any) -> bool:
    if isinstance(value, list):
        return bool(value) and all(map(_is_item, value)) and any(map(_is_typed, value))
    if not isinstance(value, dict):
        return False
    if value.get("object") == "response" and isinstance(value.get("output"), list):
        return True
    given = value.get("response") if isinstance(value.get("response"), dict) else value
    return isinstance(given, dict) and any(
        isinstance(given.get(name), list) and any(map(_is_typed, given[name]))
        for name in ("input", "output")
    )


def _is_item(item: Any) -> bool:
    return isinstance(item, dict) and ("role" in item or _is_typed(item))


def _is_typed(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") in _ITEMS


class _Reader(Reader):
    """Answers that are linked by `previous_response_id` are one trace."""

    def __init__(self, intake: Intake) -> None:
        super().__init__(intake)
        self._chains: dict[str, str] = {}

    def read(self, value: Any) -> None:
        if isinstance(value, list):
            self._add_items(value)
        elif isinstance(value, dict):
            self._add_answer(value)
        else:
            self.intake.unknown("no object")

    def _add_items(self, items: list[Any]) -> None:
        trace = self.intake.nameless(NAME)
        for item in items:
            tell_item(trace, item, None)
        trace.close()

    def _add_answer(self, value: Json) -> None:
        given = value.get("request")
        request: Json = given if isinstance(given, dict) else value
        inner = value.get("response")
        answer: Json = inner if isinstance(inner, dict) else value
        own, before = answer.get("id"), answer.get("previous_response_id")
        if isinstance(own, str):
            key = self._chains.get(str(before), str(before or own))
            self._chains[own] = key
            trace = self.intake.trace(key, NAME)
        else:
            trace = self.intake.nameless(NAME)
        at = when(answer.get("created_at"))
        trace.say("system", text_of(answer.get("instructions")), at, key=_key("system", own))
        for source, name in ((request, "input"), (answer, "output")):
            items = source.get(name)
            for n, item in enumerate(items if isinstance(items, list) else [items]):
                tell_item(trace, item, at, _key(name, own, n))
        trace.spent(tokens_of(answer.get("usage")), turn=own)
        if not isinstance(own, str):
            trace.close()


def _key(name: str, answer: Any, number: int = 0) -> str | None:
    return f"{name} {answer} {number}" if isinstance(answer, str) else None


def tell_item(trace: Incoming, item: Any, at: Any, key: str | None = None) -> None:
    """Add one item of a conversation."""
    if isinstance(item, str):
        trace.say("user", item, at, key=key)
        return
    if not isinstance(item, dict):
        return
    kind = str(item.get("type", "message"))
    if kind.endswith("_output"):
        _add_output(trace, item, at)
    elif kind == "reasoning":
        text = text_of(item.get("summary")) or text_of(item.get("content"))
        trace.say("thinking", text, at, key=key)
    elif kind.endswith("_call"):
        _add_call(trace, item, kind, at, key)
    elif "role" in item:
        role = "system" if item["role"] == "developer" else str(item["role"])
        trace.say(role, text_of(item.get("content")), at, key=key)
    else:
        trace.say("unknown", text_or_json(item), at, key=key)


def _add_call(trace: Incoming, item: Json, kind: str, at: Any, key: str | None) -> None:
    call_id = str(item.get("call_id") or item.get("id") or "")
    name = str(item.get("name") or kind.removesuffix("_call"))
    fields = ("arguments", "input", "action", "queries", "code")
    given: Any = next((item[field] for field in fields if item.get(field) is not None), {})
    is_open = kind == "web_search_call"
    trace.call(name, as_args(given), call_id, at, key=key, open_world=is_open)
    if kind not in ("function_call", "custom_tool_call", "local_shell_call", "computer_call"):
        result = item.get("output", item.get("results", item.get("status")))
        trace.result(call_id, as_value(result), item.get("error"), at)


def _add_output(trace: Incoming, item: Json, at: Any) -> None:
    output = as_value(item.get("output"))
    failed = item.get("status") == "incomplete" or (
        isinstance(output, str) and reports_error(output)
    )
    call_id = str(item.get("call_id"))
    if not trace.result(call_id, None if failed else output, output if failed else None, at):
        trace.say("tool", text_or_json(output), at)


IMPORTER = Importer(name=NAME, title="OpenAI Responses", fits=_is_responses, reader=_Reader)
