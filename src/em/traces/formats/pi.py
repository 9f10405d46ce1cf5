"""pi (`@mariozechner/pi-coding-agent`): one session per file, JSON lines.

Entries form a tree: a user can go back and take another branch. What was called on a branch that
was left did happen, so all entries are read in the order in which they were written. The output of
`pi --mode json` has the same messages (`message_end`), and other events around them.
"""

from typing import Any

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import as_args, output_of, text_of, tokens_of, when
from em.traces.intake import Incoming, Intake
from em.values.canonical import Json

NAME = "pi"
_ROLES = frozenset({"user", "assistant", "toolResult", "bashExecution", "custom", "hookMessage"})
_ENTRIES = frozenset({
    "model_change", "thinking_level_change", "compaction", "branch_summary", "custom",
    "custom_message", "label", "session_info",
})  # fmt: skip
_BOOKKEEPING = frozenset({
    "session", "model_change", "thinking_level_change", "label", "session_info",
})  # fmt: skip
_EVENTS = frozenset({
    "agent_start", "agent_end", "turn_start", "turn_end", "message_start", "message_update",
    "tool_execution_start", "tool_execution_update", "tool_execution_end",
})  # fmt: skip
"""Events of `--mode json` that say what `message_end` says too."""


def _is_pi(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    kind, message = value.get("type"), value.get("message")
    if kind == "session":
        return {"id", "timestamp", "cwd"} <= value.keys()
    if kind in ("message", "message_end"):
        return isinstance(message, dict) and message.get("role") in _ROLES
    return kind in _ENTRIES and {"id", "parentId", "timestamp"} <= value.keys()


class _Reader(Reader):
    def __init__(self, intake: Intake) -> None:
        super().__init__(intake)
        self._trace: Incoming | None = None

    def read(self, value: Any) -> None:
        entry: Json = value if isinstance(value, dict) else {}
        kind = entry.get("type")
        trace = self._opened(entry)
        message = entry.get("message")
        if kind in ("message", "message_end") and isinstance(message, dict):
            _add_message(trace, message, when(message.get("timestamp") or entry.get("timestamp")))
        elif kind == "custom_message":
            trace.say("system", text_of(entry.get("content")), when(entry.get("timestamp")))
        elif kind in ("compaction", "branch_summary"):
            trace.say("system", text_of(entry.get("summary")), when(entry.get("timestamp")))
        elif kind not in _BOOKKEEPING and kind not in _EVENTS:
            trace.unknown(f"type {kind}")

    def _opened(self, entry: Json) -> Incoming:
        if self._trace is None:
            given = entry.get("id") if entry.get("type") == "session" else None
            self._trace = self.intake.session(given, NAME, entry.get("cwd"))
        return self._trace


def _add_message(trace: Incoming, message: Json, at: Any) -> None:
    role, content = message.get("role"), message.get("content")
    if role == "toolResult":
        failed = message.get("isError") is True
        error = text_of(content) or "failed"
        call_id = str(message.get("toolCallId"))
        output = output_of(content, is_command=trace.is_command(call_id))
        result = None if failed else output
        if not trace.result(call_id, result, error if failed else None, at):
            trace.unknown("a result of no call")
    elif role == "bashExecution":  # a command of the user's own
        trace.say("user", f"! {message.get('command')}\n{message.get('output')}", at)
    elif role == "assistant":
        _add_answer(trace, message, at)
    elif role == "user":
        trace.say("user", text_of(content), at)
    else:
        trace.say("system", text_of(content), at)


def _add_answer(trace: Incoming, message: Json, at: Any) -> None:
    usage = message.get("usage")
    used: Json = usage if isinstance(usage, dict) else {}
    cost = used.get("cost")
    total = cost.get("total") if isinstance(cost, dict) else None
    tokens = used["totalTokens"] if isinstance(used.get("totalTokens"), int) else tokens_of(used)
    new: int | None = trace.spent(tokens, cost=float(total or 0.0))
    content = message.get("content")
    for block in content if isinstance(content, list) else [content]:
        if not isinstance(block, dict):
            trace.say("assistant", text_of(block), at)
            continue
        kind = block.get("type")
        if kind == "toolCall":
            name, args = str(block.get("name")), as_args(block.get("arguments"))
            trace.call(name, args, str(block.get("id")), at, tokens=new)
            new = 0  # the whole cost of an answer counts for its first call
        elif kind == "thinking":
            trace.say("thinking", str(block.get("thinking", "")), at)
        else:
            trace.say("assistant", text_of([block]), at)
    trace.outcome = "failure" if message.get("stopReason") == "error" else "unknown"


IMPORTER = Importer(name=NAME, title="pi sessions", fits=_is_pi, reader=_Reader)
