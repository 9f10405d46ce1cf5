"""opencode: `opencode export`, its database, and the stream of `opencode run --format json`.

A call is a part of a message (`type: tool`) with its state: input, then output or error. A shell's
exit code is in the state's metadata; its call is `completed` whatever the code.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import as_args, exit_failure, output_of, when
from em.traces.intake import Incoming, digest
from em.values.canonical import Json

NAME = "opencode"
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_STREAM = frozenset({"step_start", "step_finish", "text", "reasoning", "tool_use", "error"})
_BOOKKEEPING = frozenset({"step-start", "snapshot", "patch", "compaction", "retry", "agent"})


def _is_opencode(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    if value.get("type") in _STREAM and isinstance(value.get("sessionID"), str):
        return True
    info, messages = value.get("info"), value.get("messages")
    if not isinstance(info, dict) or not isinstance(messages, list):
        return False
    return str(info.get("id", "")).startswith("ses") and all(
        isinstance(one, dict) and isinstance(one.get("parts"), list) for one in messages
    )


class _Reader(Reader):
    def read(self, value: Any) -> None:
        if not isinstance(value, dict):
            self.intake.unknown("no object")
        elif isinstance(value.get("messages"), list):
            self._session(value)
        else:
            self._event(value)

    def _session(self, value: Json) -> None:
        given = value.get("info")
        info: Json = given if isinstance(given, dict) else {}
        trace = self.intake.session(info.get("id"), NAME, info.get("directory"))
        if isinstance(info.get("parentID"), str):
            trace.parent = digest(NAME, info["parentID"])
        for message in value["messages"]:
            _add_message(trace, message)
        trace.close()
        self.intake.forget(trace.app["session"])

    def _event(self, value: Json) -> None:
        """Read a line of `opencode run --format json`: a part of an answer."""
        trace = self.intake.session(str(value.get("sessionID") or "stream"), NAME, None)
        part, at = value.get("part"), when(value.get("timestamp"))
        if value.get("type") == "error":
            trace.outcome = "failure"
        if not isinstance(part, dict) or not _add_part(trace, part, "assistant", at):
            trace.unknown(f"type {value.get('type')}")
        elif part.get("type") == "step-finish":
            trace.spent(_tokens(part.get("tokens")), cost=_cost(part))


def _add_message(trace: Incoming, message: Json) -> None:
    given = message.get("info")
    info: Json = given if isinstance(given, dict) else {}
    times = info.get("time")
    at = when(times.get("created")) if isinstance(times, dict) else None
    role = str(info.get("role"))
    if role == "assistant":
        trace.spent(_tokens(info.get("tokens")), cost=_cost(info))
        trace.outcome = "failure" if _failed(info.get("error")) else "unknown"
    for part in message["parts"]:
        if not isinstance(part, dict):
            trace.say("unknown", str(part), at)
        elif not _add_part(trace, part, role, at):
            trace.say("unknown", str(part), at, key=_key(part))


def _failed(error: Any) -> bool:
    """Return whether an answer failed. One that the user aborted did not."""
    return bool(error) and not (
        isinstance(error, dict) and error.get("name") == "MessageAbortedError"
    )


def _add_part(trace: Incoming, part: Json, role: str, at: Any) -> bool:
    """Add a part of a message; return False if it is not understood.

    A part has an id, so that a session comes in once, whichever way it was written.
    """
    kind, key = part.get("type"), _key(part)
    if kind == "tool" and isinstance(part.get("state"), dict):
        _add_call(trace, part, part["state"], key)
    elif kind == "text":
        told_by_program = part.get("synthetic") is True or part.get("ignored") is True
        by = "system" if told_by_program else role
        trace.say(by, str(part.get("text", "")), at, key=key)
    elif kind == "reasoning":
        trace.say("thinking", str(part.get("text", "")), at, key=key)
    elif kind == "subtask":
        trace.say(role, str(part.get("prompt", "")), at, key=key)
    elif kind == "file":
        trace.say("system", f"file {part.get('filename') or part.get('url')}"[:1000], at, key=key)
    else:
        return kind in _BOOKKEEPING or kind == "step-finish"
    return True


def _key(part: Json) -> str | None:
    own = part.get("id")
    return own if isinstance(own, str) else None


def _add_call(trace: Incoming, part: Json, state: Json, key: str | None) -> None:
    times = state.get("time") if isinstance(state.get("time"), dict) else {}
    began, ended = (when((times or {}).get(name)) for name in ("start", "end"))
    call_id = str(part.get("callID"))
    tool = str(part.get("tool"))
    if tool.startswith("em_"):  # opencode names the tools of a server so, em's too
        tool = f"mcp__em__{tool[3:]}"
    trace.call(tool, as_args(state.get("input")), call_id, began, key=key)
    metadata = state.get("metadata") if isinstance(state.get("metadata"), dict) else {}
    output = state.get("output")
    if state.get("status") == "error":
        trace.result(call_id, None, state.get("error") or "failed", ended)
    elif state.get("status") == "completed":
        error = exit_failure((metadata or {}).get("exit"), output)
        result = output_of(output, is_command=trace.is_command(call_id))
        trace.result(call_id, None if error is not None else result, error, ended)


def _tokens(tokens: Any) -> int | None:
    """Return all tokens of an answer."""
    if not isinstance(tokens, dict):
        return None
    if isinstance(tokens.get("total"), int):
        return int(tokens["total"])
    return int(sum(_numbers(tokens)))


def _numbers(tokens: Json) -> Iterator[int | float]:
    for value in tokens.values():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, int | float):
            yield value


def _cost(source: Json) -> float:
    cost = source.get("cost")
    return float(cost) if isinstance(cost, int | float) else 0.0


def _documents(database: sqlite3.Connection, only: str | None = None) -> Iterator[Json]:
    """Yield each session of opencode's database, or one, as `opencode export` writes it."""
    sessions = (
        "SELECT id, parent_id, directory FROM session WHERE ? IN (id, '') ORDER BY time_created, id"
    )
    for session, parent, directory in database.execute(sessions, (only or "",)):
        rows = database.execute(
            "SELECT m.id, m.data, p.id, p.data FROM message m LEFT JOIN part p"
            " ON p.message_id = m.id WHERE m.session_id = ? ORDER BY m.time_created, m.id, p.id",
            (session,),
        )
        messages: dict[str, Json] = {}
        for message_id, message, part_id, part in rows:
            found = messages.setdefault(message_id, {"info": _content(message), "parts": []})
            if part is not None:
                found["parts"].append({**_content(part), "id": part_id})
        info = {"id": session, "parentID": parent, "directory": directory}
        yield {"info": info, "messages": list(messages.values())}


def _content(data: Any) -> Json:
    """Return what a row holds; what is not a JSON object verbatim, as a part of an unknown type."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, TypeError):
        text = data.decode(errors="replace") if isinstance(data, bytes) else str(data)
        return {"type": "unreadable", "text": text}


IMPORTER = Importer(
    name=NAME,
    title="opencode sessions",
    fits=_is_opencode,
    reader=_Reader,
    tables=frozenset({"session", "message", "part"}),
    documents=_documents,
)
