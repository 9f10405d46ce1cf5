"""The timeline of a trace: one short row for each event, and one event with all that it holds."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any

import msgspec

from em.runner.routine import Routine, ToolStep, UdfStep
from em.serve.pages.view import short
from em.traces.trace import Approval, Message, ToolCall, Trace, UdfCall

LONGEST_ROW = 140
"""Characters of an event that its row shows."""
MOST_LINES = 400
"""Lines of a change of a file that are shown."""
CONTEXT = 3
UNUSED = "not used"
"""What a row says of a call that the routine does not make."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """An event in one line. `depth` is 1 for what was done after a message.

    became: the step of the routine that makes the call, or UNUSED.
    """

    number: int
    kind: str
    name: str
    text: str
    seconds: float | None
    failed: bool
    depth: int
    became: str


def rows_of(trace: Trace, routine: Routine | None) -> list[Row]:
    """Return a row for each event of a trace, in their order."""
    rows: list[Row] = []
    depth = 0
    for number, event in enumerate(trace.events):
        if isinstance(event, Message):
            depth = 1
            rows.append(Row(number, "message", event.role, _line(event.text), None, False, 0, ""))
        elif isinstance(event, Approval):
            text = _line(event.prompt)
            rows.append(Row(number, "approval", "asked", text, None, False, depth, ""))
        else:
            rows.append(_call_row(number, event, depth, _became(event, routine)))
    return rows


def _call_row(number: int, event: ToolCall | UdfCall, depth: int, became: str) -> Row:
    took = None if event.duration_ms is None else event.duration_ms / 1e3
    text = _line(event.args) if event.error is None else _line(event.error)
    kind, name = _called(event)
    return Row(number, kind, name, text, took, event.error is not None, depth, became)


def _called(event: ToolCall | UdfCall) -> tuple[str, str]:
    return ("tool", event.tool) if isinstance(event, ToolCall) else ("udf", event.function)


def _line(value: Any) -> str:
    """Return a value in one line: of arguments the values, with their names if they are several."""
    if value in ({}, None):
        return ""
    if isinstance(value, dict) and len(value) == 1:
        return short(next(iter(value.values())), LONGEST_ROW)
    if isinstance(value, dict):
        parts = [f"{name}: {short(one, LONGEST_ROW)}" for name, one in value.items()]
        return short(", ".join(parts), LONGEST_ROW)
    return short(value, LONGEST_ROW)


def _step_of(event: ToolCall | UdfCall, routine: Routine) -> ToolStep | UdfStep | None:
    """Return the first step that calls the same tool or function; none for a call that failed."""
    if event.error is not None:
        return None
    called = _called(event)
    for step in routine.all_steps:
        if isinstance(step, ToolStep) and called == ("tool", step.tool):
            return step
        if isinstance(step, UdfStep) and called == ("udf", step.function):
            return step
    return None


def _became(event: ToolCall | UdfCall, routine: Routine | None) -> str:
    if routine is None:
        return ""
    step = _step_of(event, routine)
    return UNUSED if step is None else step.id


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One event with all that it holds.

    wired: the arguments with which the step that makes the call is written.
    """

    number: int
    kind: str
    name: str
    text: str = ""
    args: Any = None
    result: Any = None
    error: Any = None
    seconds: float | None = None
    became: str = ""
    wired: Any = None
    changes: Sequence[tuple[str, Sequence[str]]] = ()


def shown_event(trace: Trace, routine: Routine | None, number: int) -> Shown | None:
    """Return an event of a trace by its number; None if there is none."""
    if not 0 <= number < len(trace.events):
        return None
    event = trace.events[number]
    if isinstance(event, Message):
        return Shown(number=number, kind="message", name=event.role, text=event.text)
    if isinstance(event, Approval):
        return Shown(
            number=number, kind="approval", name="asked", text=event.prompt, result=event.answer
        )
    step = None if routine is None else _step_of(event, routine)
    kind, name = _called(event)
    return Shown(
        number=number,
        kind=kind,
        name=name,
        args=event.args,
        result=event.result,
        error=event.error,
        seconds=None if event.duration_ms is None else event.duration_ms / 1e3,
        became=_became(event, routine),
        wired=None if step is None else step.args,
        changes=[*changes_in(event.args)],
    )


def changes_in(args: Any) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the changes of files that a call makes: the file, and the lines of a diff."""
    if not isinstance(args, dict):
        return
    file = next((str(args[key]) for key in ("file_path", "path", "filename") if args.get(key)), "")
    edits = args.get("edits")
    for edit in edits if isinstance(edits, list) else [args]:
        old, new = _both(edit if isinstance(edit, dict) else {})
        if old is not None and new is not None:
            lines = unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=CONTEXT)
            yield file, [line for line in lines if not line.startswith(("---", "+++"))][:MOST_LINES]
    patches = (one for one in args.values() if isinstance(one, str) and "*** Begin Patch" in one)
    for patch in patches:
        yield file, patch.splitlines()[:MOST_LINES]


def _both(edit: Mapping[str, Any]) -> tuple[str | None, str | None]:
    for before, after in (("old_string", "new_string"), ("old_str", "new_str"), ("old", "new")):
        old, new = edit.get(before), edit.get(after)
        if isinstance(old, str) and isinstance(new, str):
            return old, new
    return None, None


def tools_in(rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Return the names of what was called, the most frequent first, with how often."""
    counts: dict[str, int] = {}
    for row in rows:
        if row.kind in ("tool", "udf"):
            counts[row.name] = counts.get(row.name, 0) + 1
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))
