"""Claude Code: one session per file, JSON lines. The format is undocumented and may change.

`claude -p --output-format stream-json` and the Agent SDK write the same messages with other fields
around them (`session_id`, `parent_tool_use_id`), and a `result` at the end.
"""

import re
from collections import OrderedDict
from typing import Any, TypedDict

import msgspec

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import (
    REMEMBERED,
    as_args,
    as_value,
    output_of,
    remember,
    text_of,
    tokens_of,
    when,
)
from em.traces.intake import Incoming, Intake, digest
from em.values.canonical import Json

NAME = "claude-code"
_encode = msgspec.json.Encoder().encode
MOST_CALLS = 16_384
"""How many calls are remembered, to find one that is told again."""
_SESSION = ("sessionId", "isSidechain", "parentUuid")
_FETCHES = frozenset({"WebFetch", "WebSearch"})
"""Tools that return pages of the web."""
_SPAWNS = frozenset({"Task", "Agent"})
_STREAM = frozenset({"system", "assistant", "user", "result"})


class _Took(TypedDict, total=False):
    """What is read of the program's own record of a call, which repeats its result."""

    durationMs: Any


_Extra = _Took | list[Any] | str | int | float | bool | None


class _Message(TypedDict, total=False):
    """The fields of a message that are read."""

    id: Any
    content: Any
    usage: Any


class _Line(TypedDict, total=False):
    """The fields of a line that are read."""

    type: Any
    subtype: Any
    message: _Message | list[Any] | str | int | float | bool | None
    timestamp: Any
    uuid: Any
    parentUuid: Any
    sessionId: Any
    session_id: Any
    agentId: Any
    cwd: Any
    isSidechain: Any
    isMeta: Any
    isApiErrorMessage: Any
    isCompactSummary: Any
    parent_tool_use_id: Any
    is_error: Any
    result: Any
    total_cost_usd: Any
    toolUseResult: _Extra
    tool_use_result: _Extra


def _is_claude_code(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    message = value.get("message")
    return isinstance(value.get("type"), str) and (
        all(name in value for name in _SESSION)
        or ("session_id" in value and value["type"] in _STREAM)
        or (
            # An excerpt without ids.
            value["type"] in ("user", "assistant")
            and isinstance(message, dict)
            and "content" in message
            and ("timestamp" in value or "uuid" in value)
        )
        or (value["type"] == "summary" and "leafUuid" in value)
        or (
            value["type"] in ("file-history-snapshot", "queue-operation") and "message" not in value
        )
    )


class _Reader(Reader):
    def __init__(self, intake: Intake) -> None:
        super().__init__(intake)
        self._first: Incoming | None = None
        self._nameless = ""
        self._chains: OrderedDict[str, str] = OrderedDict()
        self._prompts: OrderedDict[str, str] = OrderedDict()
        self._calls: OrderedDict[str, int] = OrderedDict()
        self._before: list[tuple[int, bytes, str]] = []

    def read(self, value: Any) -> None:
        if not isinstance(value, dict):
            self._unknown("no object")
            return
        message = value.get("message")
        role = value.get("type")
        if role == "result" and isinstance(value.get("subtype"), str):
            self._ended(value)
            return
        content = message.get("content") if isinstance(message, dict) else None
        if role not in ("user", "assistant") or not isinstance(content, str | list):
            self._unknown(f"type {role}" if isinstance(role, str) else "no type")
            return
        assert isinstance(message, dict)
        trace = self._trace(value, content)
        at = when(value.get("timestamp"))
        role = "system" if _is_told_by_program(value, content) else role
        tokens = tokens_of(message.get("usage")) if role == "assistant" else None
        if tokens is not None:
            tokens = trace.spent(tokens, turn=message.get("id"))
        if isinstance(content, str):
            trace.say(role, content, at)
            return
        for block in content:
            self._block(trace, block, role, value, at, tokens)
            if isinstance(block, dict) and block.get("type") == "tool_use" and tokens:
                tokens = 0  # the whole cost of an answer counts for its first call

    def end(self) -> None:
        for number, raw, place in self._before:
            self.intake.reading(number, raw, place)
            self.intake.unknown("a session without a message")
        self._before = []

    def _ended(self, value: Json) -> None:
        """Read the last line of a stream: how the run ended, and its answer."""
        trace = self._trace(value, "")
        trace.outcome = "failure" if value.get("is_error") is True else "unknown"
        if isinstance(value.get("result"), str) and value["result"] and not value.get("is_error"):
            trace.output = value["result"]
        if isinstance(value.get("total_cost_usd"), int | float):
            trace.usage["cost_usd"] = float(value["total_cost_usd"])

    def _block(
        self, trace: Incoming, block: Any, role: str, line: Json, at: Any, tokens: int | None
    ) -> None:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            trace.say(role, str(block.get("text", "")), at)
        elif kind == "thinking":
            trace.say("thinking", str(block.get("thinking", "")), at)
        elif kind == "tool_use":
            name, args = str(block.get("name", "")), as_args(block.get("input"))
            call_id = block.get("id")
            if name in _SPAWNS and isinstance(args.get("prompt"), str):
                remember(self._prompts, digest(args["prompt"]), str(call_id))
            if not self._is_told_again(trace, call_id, hash(_encode((name, args)))):
                trace.call(name, args, call_id, at, tokens=tokens, open_world=name in _FETCHES)
        elif kind == "tool_result":
            self._result(trace, block, line, at)
        elif isinstance(block, str):
            trace.say(role, block, at)
        else:
            trace.unknown(f"block {kind}")

    def _result(self, trace: Incoming, block: Json, line: Json, at: Any) -> None:
        content = block.get("content")
        failed = block.get("is_error") is True
        error = (text_of(content) or as_value(content) or "failed") if failed else None
        extra = line.get("toolUseResult", line.get("tool_use_result"))
        took = extra.get("durationMs") if isinstance(extra, dict) else None
        call_id = str(block.get("tool_use_id"))
        result = output_of(content, is_command=trace.is_command(call_id))
        known = trace.result(
            call_id,
            None if failed else _said(result),
            error,
            at,
            duration_ms=took if isinstance(took, int | float) else None,
        )
        if not known and f"{trace.id} {block.get('tool_use_id')}" not in self._calls:
            trace.unknown("a result of no call")

    def _is_told_again(self, trace: Incoming, call_id: Any, content: int) -> bool:
        """Return whether a call stood in the file before: a resumed session may repeat lines."""
        key = f"{trace.id} {call_id}"
        is_known = isinstance(call_id, str) and self._calls.get(key) == content
        remember(self._calls, key, content, MOST_CALLS)
        return is_known

    def _trace(self, line: Json, content: Any) -> Incoming:
        """Return the trace of a line: the session's, or that of one of its sub-agents."""
        given = line.get("sessionId") or line.get("session_id")
        if not given and not self._nameless:
            self._nameless = digest(self.intake.raw_text())
        session = str(given or self._nameless)
        spawned = line.get("parent_tool_use_id")
        key = self._chain(line, session) if line.get("isSidechain") else session
        key = f"{session}/{spawned}" if isinstance(spawned, str) else key
        trace = self.intake.known_trace(key)
        if trace is None:
            app = {"session": session, "cwd": line.get("cwd"), "agent": line.get("agentId")}
            known = {name: text for name, text in app.items() if isinstance(text, str) and text}
            trace = self.intake.trace(key, NAME, **known)
            trace.ends_with_answer = True
            if key != session:
                trace.parent = digest(NAME, session)
                trace.parent_call = self._prompts.pop(digest(text_of(content)), None)
                trace.parent_call = spawned if isinstance(spawned, str) else trace.parent_call
        if self._first is None:
            self._first = trace
            self._add_lines_before(trace)
        return trace

    def _chain(self, line: Json, session: str) -> str:
        """Return the sub-agent of a line: by its id, else by the line before it."""
        if isinstance(line.get("agentId"), str):
            return f"{session}/{line['agentId']}"
        own, before = str(line.get("uuid")), str(line.get("parentUuid"))
        key = self._chains.get(before) or f"{session}/{own}"
        remember(self._chains, own, key)
        return key

    def _unknown(self, why: str) -> None:
        if self._first is not None:
            self._first.unknown(why)
        elif len(self._before) >= REMEMBERED:
            self.intake.unknown(why)
        else:
            intake = self.intake
            self._before.append((intake.number, intake.raw, intake.place))

    def _add_lines_before(self, trace: Incoming) -> None:
        """Add the lines before the first message, which belong to the session too."""
        here = (self.intake.number, self.intake.raw, self.intake.place)
        before, self._before = self._before, []
        for number, raw, place in before:
            self.intake.reading(number, raw, place)
            trace.unknown("before the first message")
        if before:
            self.intake.reading(*here)


def _is_told_by_program(line: Json, content: Any) -> bool:
    """Return whether Claude Code wrote a message itself: it is no request, and no answer."""
    return (
        line.get("isApiErrorMessage") is True
        or line.get("isCompactSummary") is True
        or (line.get("isMeta") is True and text_of(content).startswith("Caveat:"))
    )


IMPORTER = Importer(
    name=NAME, title="Claude Code sessions", fits=_is_claude_code, reader=_Reader, line=_Line
)


_SAID_NOTHING = re.compile(r"\(\w+ completed with no output\)")


def _said(result: Any) -> Any:
    """Return what a call returned: Claude Code writes a sentence where that was nothing."""
    return "" if isinstance(result, str) and _SAID_NOTHING.fullmatch(result) else result
