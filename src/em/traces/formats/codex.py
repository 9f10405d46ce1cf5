"""Codex: rollout files (`session_meta`, `response_item`, `event_msg`) and its event stream."""

from collections import OrderedDict
from typing import Any

from em.traces.formats import Importer
from em.traces.formats._messages import as_args, as_value, text_of, tokens_of, when
from em.traces.intake import Incoming, Intake, digest
from em.values.canonical import Json

NAME = "codex"
REMEMBERED = 256
"""How many calls and messages are remembered to recognise repetitions."""
_ROLLOUT = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_STREAM = frozenset({
    "thread.started", "turn.started", "turn.completed", "turn.failed",
    "item.started", "item.updated", "item.completed",
})  # fmt: skip
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "web_search_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_STREAM_CALLS = frozenset({"command_execution", "mcp_tool_call", "file_change", "web_search"})
_META = frozenset({"id", "cwd", "timestamp", "originator"})
_SAID = {"user_message": "user", "agent_message": "assistant", "agent_reasoning": "thinking"}


def _fits(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    return (kind in _ROLLOUT and isinstance(value.get("payload"), dict)) or kind in _STREAM


class _Reader:
    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._trace: Incoming | None = None
        self._done: OrderedDict[str, None] = OrderedDict()
        self._said: OrderedDict[tuple[str, str], None] = OrderedDict()

    def read(self, value: Any) -> None:
        if not isinstance(value, dict) or not isinstance(value.get("type"), str):
            self._opened({}).unknown("no type")
            return
        payload = value.get("payload")
        body: Json = payload if isinstance(payload, dict) else value
        at = when(value.get("timestamp") or body.get("timestamp"))
        trace = self._opened(body)
        if not self._read(trace, value["type"], body, at):
            trace.unknown(f"type {value['type']}/{body.get('type', '')}".rstrip("/"))

    def end(self) -> None:
        return

    def _opened(self, body: Json) -> Incoming:
        if self._trace is None:
            session = body.get("id") or body.get("thread_id") or body.get("session_id")
            named = isinstance(session, str)
            key = session if named else digest(self._intake.raw_text())
            cwd = body.get("cwd")
            app = {"cwd": cwd} if isinstance(cwd, str) else {}
            self._trace = self._intake.trace(str(key), NAME, session=str(key), **app)
        return self._trace

    def _read(self, trace: Incoming, outer: str, body: Json, at: Any) -> bool:
        """Read a line; return False if it is not understood."""
        kind = body.get("type", "")
        if outer in ("session_meta", "thread.started"):
            return outer == "thread.started" or body.keys() <= _META
        if outer.startswith(("item.", "turn.")):
            return self._stream(trace, outer, body, at)
        if "role" in body and kind in ("message", ""):
            self._say(trace, str(body["role"]), text_of(body.get("content")), at)
            return True
        if kind in _CALLS:
            self._call(trace, body, at)
            return True
        if kind in _OUTPUTS:
            return self._output(trace, body, at)
        return self._event(trace, kind, body, at)

    def _say(self, trace: Incoming, role: str, text: str, at: Any) -> None:
        """Add a message once: `response_item` and `event_msg` both have it."""
        if (role, text) in self._said:
            return
        _remember(self._said, (role, text))
        trace.say("system" if role == "developer" else role, text, at)

    def _call(self, trace: Incoming, body: Json, at: Any) -> None:
        kind, action = body.get("type"), body.get("action")
        name = str(body.get("name") or str(kind).removesuffix("_call"))
        given = body.get("arguments") if kind == "function_call" else body.get("input", action)
        call_id = str(body.get("call_id") or body.get("id") or "")
        if trace.has_open(call_id) and digest(name, as_args(given)) in self._done:
            return  # a repetition
        _remember(self._done, digest(name, as_args(given)))
        self._done.pop(call_id, None)
        trace.call(name, as_args(given), call_id, at)
        if kind == "web_search_call" and call_id:
            trace.result(call_id, body.get("status"), None, at)
            _remember(self._done, call_id)

    def _output(self, trace: Incoming, body: Json, at: Any) -> bool:
        call_id = str(body.get("call_id"))
        if call_id in self._done:
            return True  # `exec_command_end` had more details
        given = as_value(body.get("output"))
        result, took = given, None
        error: Any = None
        if isinstance(given, dict) and isinstance(given.get("metadata"), dict):
            result = given.get("output")
            took = given["metadata"].get("duration_seconds")
            error = _failure(given["metadata"].get("exit_code"), result)
        elif isinstance(given, dict) and given.get("success") is False:
            error = given.get("content") or given
        took = took * 1e3 if isinstance(took, int | float) else None
        return self._ended(trace, call_id, result, error, at, took)

    def _ended(
        self, trace: Incoming, call_id: str, result: Any, error: Any, at: Any, took: float | None
    ) -> bool:
        known = trace.result(
            call_id, None if error is not None else result, error, at, duration_ms=took
        )
        if known:
            _remember(self._done, call_id)
        return known

    def _event(self, trace: Incoming, kind: str, body: Json, at: Any) -> bool:
        if kind in _SAID:
            text = body.get("message") or body.get("text") or ""
            self._say(trace, _SAID[kind], str(text), at)
            return True
        if kind == "reasoning":
            text = text_of(body.get("summary")) or text_of(body.get("content"))
            self._say(trace, "thinking", text, at)
            return bool(text)
        if kind == "token_count":
            info = body.get("info") if isinstance(body.get("info"), dict) else body
            tokens = tokens_of((info or {}).get("last_token_usage") or info)
            if tokens is not None:
                trace.spent(tokens)
            return tokens is not None
        if kind == "exec_command_end":
            result = as_value(body.get("aggregated_output") or body.get("stdout") or "")
            error = _failure(body.get("exit_code"), result or body.get("stderr"))
            return self._ended(
                trace, str(body.get("call_id")), result, error, at, _took(body.get("duration"))
            )
        return False

    def _stream(self, trace: Incoming, outer: str, body: Json, at: Any) -> bool:
        """Read a line of `codex exec --json`."""
        if outer == "turn.completed":
            trace.spent(tokens_of(body.get("usage")))
            return True
        item = body.get("item")
        if not isinstance(item, dict):
            return outer == "turn.started"
        kind = item.get("type") or item.get("item_type")
        if kind in ("agent_message", "assistant_message", "reasoning"):
            role = "thinking" if kind == "reasoning" else "assistant"
            self._say(trace, role, str(item.get("text", "")), at)
            return True
        if kind not in _STREAM_CALLS or outer == "item.updated":
            return False
        return self._item(trace, outer, item, at)

    def _item(self, trace: Incoming, outer: str, item: Json, at: Any) -> bool:
        item_id = str(item.get("id"))
        if not trace.has_open(item_id):
            names = ("command", "arguments", "changes", "query")
            args = {name: item[name] for name in names if name in item}
            if item.get("type") == "mcp_tool_call":
                args = as_args(item.get("arguments"))
            trace.call(str(item.get("tool") or item.get("type")), args, item_id, at)
        if outer == "item.completed":
            result = item.get("aggregated_output", item.get("result", item.get("status")))
            error = _failure(item.get("exit_code"), result)
            if item.get("status") == "failed" and error is None:
                error = item.get("error") or result
            self._ended(trace, item_id, result, error, at, None)
        return True


def _failure(exit_code: Any, output: Any) -> str | None:
    if not isinstance(exit_code, int) or exit_code == 0:
        return None
    return f"exit code {exit_code}: {output if output is not None else ''}".rstrip(": ")


def _took(duration: Any) -> float | None:
    if isinstance(duration, dict):
        return float(duration.get("secs", 0)) * 1e3 + float(duration.get("nanos", 0)) / 1e6
    return None


def _remember(seen: "OrderedDict[Any, None]", key: Any) -> None:
    seen[key] = None
    if len(seen) > REMEMBERED:
        seen.popitem(last=False)


IMPORTER = Importer(name=NAME, title="Codex rollouts and event streams", fits=_fits, reader=_Reader)
