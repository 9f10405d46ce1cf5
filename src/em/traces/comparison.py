"""Traces in short, and beside each other."""

from collections.abc import Sequence
from datetime import datetime
from difflib import SequenceMatcher
from typing import Any, Literal

import msgspec

from em.log.event import Event, EventQuery
from em.store.protocol import Store
from em.traces.stream import PREFIX
from em.traces.trace import ToolCall, Trace, UdfCall
from em.values.canonical import Json, identical

_KINDS = ("trace_started", "tool_call", "udf_call", "call_ended", "trace_ended")


class TraceSummary(msgspec.Struct, kw_only=True):
    """A trace in short."""

    id: str
    at: datetime
    goal: str
    app: str = ""
    outcome: str = "unknown"
    calls: int = 0
    failed: int = 0
    tokens: int | None = None
    parent: str | None = None
    subject: str | None = None


def summaries(
    store: Store, *, task: str | None = None, outcome: str | None = None
) -> list[TraceSummary]:
    """Every trace in short, the oldest first, from one pass over the log."""
    found: dict[str, TraceSummary] = {}
    for event in store.read(EventQuery(kinds=_KINDS)):
        if event.body is None:
            continue
        if event.kind == "trace_started":
            found[event.stream] = _started(event, event.body)
        elif event.stream in found:
            _note(found[event.stream], event.kind, event.body)
    wanted = None if task is None else task.casefold()
    return [
        one
        for one in found.values()
        if (wanted is None or wanted in one.goal.casefold())
        and (outcome is None or one.outcome == outcome)
    ]


def _started(event: Event, body: Json) -> TraceSummary:
    app = body.get("app")
    return TraceSummary(
        id=event.stream.removeprefix(PREFIX),
        at=event.at,
        goal=str(body.get("goal", "")),
        app=str(app.get("name", "")) if isinstance(app, dict) else "",
        parent=body.get("parent"),
        subject=event.subject,
    )


def _note(summary: TraceSummary, kind: str, body: Json) -> None:
    if kind == "trace_ended":
        summary.outcome = str(body.get("outcome", "unknown"))
        usage = body.get("usage")
        tokens = usage.get("tokens") if isinstance(usage, dict) else None
        summary.tokens = tokens if isinstance(tokens, int) else None
    else:
        summary.calls += kind != "call_ended"
        summary.failed += body.get("error") is not None


class DiffStep(msgspec.Struct, frozen=True, kw_only=True):
    """A call in two traces: the same, otherwise (~), or in only one of them."""

    sign: Literal[" ", "~", "-", "+"]
    tool: str
    differs: Sequence[str] = ()
    one: Json = {}
    other: Json = {}


def diff_traces(one: Trace, other: Trace) -> list[DiffStep]:
    """How the calls of two traces differ, in their order."""
    left, right = [_told(call) for call in one.calls], [_told(call) for call in other.calls]
    names = [call["tool"] for call in left], [call["tool"] for call in right]
    steps: list[DiffStep] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(
        a=names[0], b=names[1], autojunk=False
    ).get_opcodes():
        if tag == "equal":
            steps += [_both(a, b) for a, b in zip(left[i1:i2], right[j1:j2], strict=True)]
        else:
            steps += [DiffStep(sign="-", tool=call["tool"], one=call) for call in left[i1:i2]]
            steps += [DiffStep(sign="+", tool=call["tool"], other=call) for call in right[j1:j2]]
    return steps


def _told(call: ToolCall | UdfCall) -> Json:
    name = call.tool if isinstance(call, ToolCall) else call.function
    return {"tool": name, "args": call.args, "result": call.result, "error": call.error}


def _both(one: Json, other: Json) -> DiffStep:
    differs = [name for name in ("args", "result", "error") if not _same(one[name], other[name])]
    return DiffStep(
        sign="~" if differs else " ", tool=one["tool"], differs=differs, one=one, other=other
    )


def _same(one: Any, other: Any) -> bool:
    return identical(one, other)
