"""Codex: rollout files of every version so far, and the stream of `codex exec --json`.

A rollout has each call as the model made it (`response_item`) and as Codex ran it (`event_msg`:
`item_completed`, before that `exec_command_end` and others). Both have the same id, so a call is
added once; the second source completes it. The oldest rollouts are response items without wrapper.
"""

import re
from collections import OrderedDict
from typing import Any

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import (
    REMEMBERED,
    as_args,
    as_value,
    exit_failure,
    output_of,
    remember,
    text_of,
    text_or_json,
    tokens_of,
    when,
)
from em.traces.intake import Incoming, Intake, digest
from em.values.canonical import Json

NAME = "codex"
_ROLLOUT = frozenset({
    "session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state",
    "token_usage_record", "inter_agent_communication", "inter_agent_communication_metadata",
    "security_risk_score",
})  # fmt: skip
_STREAM = frozenset({
    "thread.started", "turn.started", "turn.completed", "turn.failed",
    "item.started", "item.updated", "item.completed",
})  # fmt: skip
_CALLS = frozenset({
    "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call",
    "image_generation_call",
})  # fmt: skip
_WITHOUT_OUTPUT = frozenset({"web_search_call", "image_generation_call"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output", "tool_search_output"})
_STREAM_CALLS = frozenset({"command_execution", "mcp_tool_call", "file_change", "web_search"})
_META = frozenset({"id", "cwd", "timestamp", "originator"})
_SAID = {"user_message": "user", "agent_message": "assistant", "agent_reasoning": "thinking"}
_BOOKKEEPING = frozenset({
    "turn_context", "world_state", "token_usage_record", "security_risk_score",
    "task_started", "turn_started", "thread_settings_applied", "turn_aborted",
})  # fmt: skip
_BY_CODEX = re.compile(
    r"\s*<(environment_context|user_instructions|turn_aborted|subagent_notification)>.*</\1>\s*"
    r"|# AGENTS\.md instructions for .*</INSTRUCTIONS>\s*",
    re.DOTALL,
)
"""Matches what Codex tells a model in the name of the user, where it does not say so itself."""
_ITEMS_SAID = {"UserMessage": "user", "AgentMessage": "assistant", "Plan": "assistant"}
_FAILED = frozenset({"failed", "declined"})
_HEADERS = (
    re.compile(
        r"(?:Chunk ID: [^\n]*\n)?Wall time: (?P<took>[\d.]+) seconds\n"
        r"Process exited with code (?P<code>-?\d+)\n(?:Original token count: \d+\n)?Output:\n?"
    ),
    re.compile(
        r"Exit code: (?P<code>-?\d+)\nWall time: (?P<took>[\d.]+) seconds\n"
        r"(?:Total output lines: \d+\n)?Output:\n?"
    ),
)
"""How the text that a command gave to the model begins, with its exit code."""
_FAILURES = (
    "exec_command failed for ", "write_stdin failed: ", "apply_patch verification failed",
    "failed to parse function arguments", "unsupported call: ", "unsupported custom tool call: ",
    "aborted by user", "Script failed\n", "failed in sandbox",
)  # fmt: skip
"""How a text begins with which Codex tells the model that it could not make a call."""


def _is_codex(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind = value.get("type")
    if isinstance(value.get("payload"), dict):
        return kind in _ROLLOUT
    if kind in _STREAM:
        return True
    if "record_type" in value or ("instructions" in value and {"id", "timestamp"} <= value.keys()):
        return kind is None
    return kind in _CALLS | _OUTPUTS and ("call_id" in value or "id" in value)


class _Reader(Reader):
    def __init__(self, intake: Intake) -> None:
        super().__init__(intake)
        self._trace: Incoming | None = None
        self._done: OrderedDict[str, None] = OrderedDict()
        self._told: OrderedDict[str, dict[str, int]] = OrderedDict()

    def read(self, value: Any) -> None:
        if not isinstance(value, dict):
            self._opened({}).unknown("no object")
            return
        payload = value.get("payload")
        body: Json = payload if isinstance(payload, dict) else value
        at = when(value.get("timestamp") or body.get("timestamp"))
        trace = self._opened(body)
        outer = str(value.get("type", ""))
        if not self._read(trace, outer, body, at):
            trace.unknown(f"type {outer}/{body.get('type', '')}".rstrip("/"))

    def _opened(self, body: Json) -> Incoming:
        if self._trace is None:
            session = body.get("id") or body.get("thread_id") or body.get("session_id")
            self._trace = self.intake.session(session, NAME, body.get("cwd"))
            if isinstance(body.get("parent_thread_id"), str):
                self._trace.parent = self.intake.trace_id(NAME, body["parent_thread_id"])
        return self._trace

    def _read(self, trace: Incoming, outer: str, body: Json, at: Any) -> bool:
        """Read a line; return False if it is not understood."""
        kind = str(body.get("type", ""))
        if outer in ("session_meta", "thread.started", ""):
            return outer == "thread.started" or body.keys() <= _META
        if outer.startswith(("item.", "turn.")):
            return self._stream(trace, outer, body, at)
        if outer in _BOOKKEEPING or kind in _BOOKKEEPING:
            return True
        if kind == "item_completed" and isinstance(body.get("item"), dict):
            return self._completed(trace, body["item"], at)
        return self._payload(trace, kind, body, at)

    def _payload(self, trace: Incoming, kind: str, body: Json, at: Any) -> bool:
        """Read an item of the conversation, or an event."""
        if "role" in body and kind in ("message", ""):
            text = text_of(body.get("content"))
            role = "system" if _is_by_codex(body, text) else str(body["role"])
            self._say(trace, role, text, at, "item")
            return True
        if kind in _CALLS:
            self._call(trace, body, at)
            return True
        if kind in _OUTPUTS:
            return self._output(trace, body, at)
        return self._event(trace, kind, body, at)

    def _say(self, trace: Incoming, role: str, text: str, at: Any, source: str) -> None:
        """Add a message once: `response_item` and `event_msg` both have it."""
        if self._is_new(source, role, text):
            trace.say("system" if role == "developer" else role, text, at)

    def _is_new(self, source: str, *told: str) -> bool:
        """Return whether a source tells this more often than the other sources did."""
        counts = self._told.setdefault(digest(*told), {})
        counts[source] = counts.get(source, 0) + 1
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        return counts[source] > max((n for by, n in counts.items() if by != source), default=0)

    def _call(self, trace: Incoming, body: Json, at: Any) -> None:
        kind, action = body.get("type"), body.get("action")
        name = str(body.get("name") or str(kind).removesuffix("_call"))
        if str(body.get("namespace", "")).startswith("mcp__"):
            name = f"{str(body['namespace']).removesuffix('__')}__{name}"
        given = body.get("arguments", body.get("input", action))
        call_id = str(body.get("call_id") or body.get("id") or "")
        if trace.has_open(call_id) and digest(name, as_args(given)) in self._done:
            return  # a repetition
        if kind in _WITHOUT_OUTPUT and not self._is_new("item", str(kind), text_or_json(given)):
            return
        remember(self._done, digest(name, as_args(given)))
        self._done.pop(call_id, None)
        trace.call(name, as_args(given), call_id, at)
        if kind in _WITHOUT_OUTPUT:
            trace.result(call_id, body.get("status"), None, at)
            remember(self._done, call_id)

    def _output(self, trace: Incoming, body: Json, at: Any) -> bool:
        call_id = str(body.get("call_id"))
        if call_id in self._done:
            return True  # `item_completed` or `exec_command_end` had more details
        result, error, took = _read_output(body.get("output", body.get("tools")))
        return self._ended(trace, call_id, result, error, at, took)

    def _ended(
        self, trace: Incoming, call_id: str, result: Any, error: Any, at: Any, took: float | None
    ) -> bool:
        if isinstance(result, str):
            result = output_of(result, is_command=trace.is_command(call_id))
        known = trace.result(
            call_id, None if error is not None else result, error, at, duration_ms=took
        )
        if known:
            remember(self._done, call_id)
        return known

    def _event(self, trace: Incoming, kind: str, body: Json, at: Any) -> bool:
        if kind in _SAID:
            text = body.get("message") or body.get("text") or ""
            self._say(trace, _SAID[kind], str(text), at, "event")
            return True
        if kind == "reasoning":
            text = text_of(body.get("summary")) or text_of(body.get("content"))
            self._say(trace, "thinking", text, at, "item")
            return bool(text)
        if kind == "token_count":
            return _add_tokens(trace, body)
        if kind in ("task_complete", "turn_complete"):
            trace.outcome = "failure" if body.get("error") else "unknown"
            return True
        return self._ended_event(trace, kind, body, at)

    def _ended_event(self, trace: Incoming, kind: str, body: Json, at: Any) -> bool:
        """Read how Codex says that a call ended, in rollouts without `item_completed`."""
        call_id, took = str(body.get("call_id")), _took(body.get("duration"))
        if kind == "exec_command_end":
            result = body.get("aggregated_output") or body.get("stdout") or ""
            error = exit_failure(body.get("exit_code"), result or body.get("stderr"))
        elif kind == "patch_apply_end":
            result = body.get("stdout")
            error = None if body.get("success") else body.get("stderr") or "failed"
        elif kind == "mcp_tool_call_end" and isinstance(body.get("result"), dict):
            result, error = _mcp_result(body["result"].get("Ok"), body["result"].get("Err"))
        else:
            return False
        if call_id in self._done:
            return True
        return self._ended(trace, call_id, result, error, at, took)

    def _completed(self, trace: Incoming, item: Json, at: Any) -> bool:
        """Read an item of a rollout: a message, or a call as Codex ran it."""
        item = {**item, "type": _capitalised(item.get("type"))}
        kind, item_id = item["type"], str(item.get("id"))
        if kind in _ITEMS_SAID:
            text = text_of([{**part, "type": "text"} for part in _parts(item)])
            self._say(trace, _ITEMS_SAID[kind], text or str(item.get("text", "")), at, "event")
            return True
        if kind == "Reasoning":
            self._say(trace, "thinking", "\n".join(item.get("summary_text") or ()), at, "event")
            return True
        if kind == "WebSearch":
            if self._is_new("event", "web_search_call", text_or_json(item.get("action"))):
                trace.call("web_search", {"query": item.get("query")}, item_id, at, open_world=True)
                trace.result(item_id, item.get("results"), None, at)
            return True
        called = _called(item)
        if called is None or item.get("source") == "user_shell":
            return False
        if item_id in self._done:
            return True
        if not trace.has_open(item_id):
            trace.call(*called, item_id, at)
        result, error = _item_end(item)
        return self._ended(trace, item_id, result, error, at, _took(item.get("duration")))

    def _stream(self, trace: Incoming, outer: str, body: Json, at: Any) -> bool:
        """Read a line of `codex exec --json`."""
        if outer == "turn.completed":
            trace.spent(tokens_of(body.get("usage")))
            return True
        if outer == "turn.failed":
            trace.outcome = "failure"
            return False
        item = body.get("item")
        if not isinstance(item, dict):
            return outer == "turn.started"
        kind = item.get("type") or item.get("item_type")
        if kind in ("agent_message", "assistant_message", "reasoning"):
            role = "thinking" if kind == "reasoning" else "assistant"
            if outer == "item.completed":
                trace.say(role, str(item.get("text", "")), at)
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
            name = str(item.get("tool") or item.get("type"))
            trace.call("shell" if name == "command_execution" else name, args, item_id, at)
        if outer == "item.completed":
            result = item.get("aggregated_output", item.get("result", item.get("status")))
            error = exit_failure(item.get("exit_code"), result)
            if item.get("status") in _FAILED and error is None:
                error = item.get("error") or result
            self._ended(trace, item_id, result, error, at, None)
        return True


def _read_output(output: Any) -> tuple[Any, Any, float | None]:
    """Return result, error and milliseconds of what a call gave to the model."""
    given = as_value(output)
    if isinstance(given, dict) and isinstance(given.get("metadata"), dict):
        took = given["metadata"].get("duration_seconds")
        error = exit_failure(given["metadata"].get("exit_code"), given.get("output"))
        return given.get("output"), error, took * 1e3 if isinstance(took, int | float) else None
    if isinstance(given, dict) and (given.get("success") is False or given.get("isError") is True):
        return None, text_of(given.get("content")) or given, None
    text = given if isinstance(given, str) else text_of(output)
    for header in _HEADERS:
        found = header.match(text)
        if found:
            rest = text[found.end() :]
            error = exit_failure(int(found["code"]), rest)
            return rest, error, float(found["took"]) * 1e3
    if text.startswith(_FAILURES) or re.match(r"Wall time: [\d.]+ seconds\naborted by user", text):
        return None, text, None
    return given, None, None


def _add_tokens(trace: Incoming, body: Json) -> bool:
    info = body.get("info") if isinstance(body.get("info"), dict) else body
    tokens = tokens_of((info or {}).get("last_token_usage") or info)
    if tokens is not None:
        total = tokens_of((info or {}).get("total_token_usage"))
        trace.spent(tokens, turn=None if total is None else f"total {total}")
    return tokens is not None


def _capitalised(kind: Any) -> str:
    """Return the type of an item as rollouts write it; the app server writes `commandExecution`."""
    return f"{kind[:1].upper()}{kind[1:]}" if isinstance(kind, str) else ""


def _parts(item: Json) -> list[Json]:
    content = item.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def _called(item: Json) -> tuple[str, Json] | None:
    """Return tool and arguments of an item, None if it is not a call."""
    kind = item.get("type")
    if kind == "CommandExecution":
        workdir = str(item.get("cwd", "")).removeprefix("file://")
        return "shell", {"command": item.get("command"), "workdir": workdir}
    if kind == "FileChange":
        return "apply_patch", {"changes": item.get("changes")}
    if kind == "McpToolCall":
        return f"mcp__{item.get('server')}__{item.get('tool')}", as_args(item.get("arguments"))
    if kind == "DynamicToolCall":
        return str(item.get("tool")), as_args(item.get("arguments"))
    if kind == "ImageView":
        return "view_image", {"path": item.get("path")}
    return None


def _item_end(item: Json) -> tuple[Any, Any]:
    """Return result and error of an item."""
    if item.get("type") == "McpToolCall":
        failure = item.get("error")
        return _mcp_result(item.get("result"), failure.get("message") if failure else None)
    result = item.get("aggregated_output") or item.get("stdout") or item.get("content_items")
    result = "" if result is None else result
    error = exit_failure(item.get("exit_code"), result)
    if error is None and (item.get("status") in _FAILED or item.get("success") is False):
        error = item.get("error") or item.get("stderr") or result or str(item.get("status"))
    return result if isinstance(result, str) else as_value(result), error


def _mcp_result(result: Any, error: Any) -> tuple[Any, Any]:
    """Return result and error of a call of an MCP server."""
    if not isinstance(result, dict):
        return result, error
    content = result.get("content")
    if result.get("isError") is True:
        return None, text_of(content) or content or "failed"
    structured = result.get("structuredContent")
    return structured if structured is not None else as_value(content), error


def _took(duration: Any) -> float | None:
    if isinstance(duration, dict):
        return float(duration.get("secs", 0)) * 1e3 + float(duration.get("nanos", 0)) / 1e6
    return None


IMPORTER = Importer(
    name=NAME, title="Codex rollouts and event streams", fits=_is_codex, reader=_Reader
)


def _is_by_codex(body: Json, text: str) -> bool:
    """Return whether Codex wrote a user's message itself: the folder, what a sub-agent found."""
    if body["role"] != "user":
        return False
    told = body.get("internal_chat_message_metadata_passthrough")
    parts = told.get("content_item_metadata") if isinstance(told, dict) else None
    by = [
        one["provenance"].get("type")
        for one in (parts if isinstance(parts, list) else ())
        if isinstance(one, dict) and isinstance(one.get("provenance"), dict)
    ]
    return "user" not in by if by else _BY_CODEX.fullmatch(text) is not None
