"""The timeline of a trace: one short row for each event, and one event with all that it holds."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, NamedTuple

import msgspec

from em.compiler.draft import Draft
from em.compiler.explanations import Explained
from em.runner.expressions.language import names_in
from em.serve.pages.view import short
from em.traces.trace import Approval, Message, ToolCall, Trace, UdfCall

LONGEST_ROW = 140
"""Characters of an event that its row shows."""
MOST_LINES = 400
"""Lines of a change of a file that are shown."""
CONTEXT = 3
FROM = {
    "mission": "the input",
    "input": "the input",
    "said": "the user's words",
    "result": "an earlier result",
    "constant": "a constant",
    "key": "a key of a result",
    "only": "the only item",
    "match": "a matching item",
    "index": "a position in a list",
    "parts": "several parts",
    "secret": "a secret",
    "asked": "a question to you",
}
"""Where a value comes from, in words."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """An event in one line. `depth` is 1 for what was done after a message; `became` is a step."""

    number: int
    kind: str
    name: str
    text: str
    seconds: float | None
    failed: bool
    depth: int
    became: str


def rows_of(trace: Trace, draft: Draft | None) -> list[Row]:
    """Return a row for each event of a trace, in their order."""
    became = {} if draft is None else _became(draft)
    rows: list[Row] = []
    calls, depth = 0, 0
    for number, event in enumerate(trace.events):
        if isinstance(event, Message):
            depth = 1
            rows.append(Row(number, "message", event.role, _line(event.text), None, False, 0, ""))
        elif isinstance(event, Approval):
            text = _line(event.prompt)
            rows.append(Row(number, "approval", "asked", text, None, False, depth, ""))
        else:
            rows.append(_call_row(number, event, depth, became.get(calls, "")))
            calls += 1
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


def _became(draft: Draft) -> dict[int, str]:
    """Return the step that each call became, or `pruned`."""
    steps = iter(draft.recording)
    found: dict[int, str] = {}
    for call, verdict in zip(draft.calls, draft.verdicts, strict=True):
        recorded = next(steps, None) if verdict.keep else None
        found[call.index] = "pruned" if recorded is None else recorded.step
    return found


class Wire(NamedTuple):
    """Where a value of a call comes from; `source` is the event that gave it, if one did."""

    place: str
    recorded: Any
    words: str
    wired: Any
    note: str
    source: int | None


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One event with all that it holds."""

    number: int
    kind: str
    name: str
    text: str = ""
    args: Any = None
    result: Any = None
    error: Any = None
    seconds: float | None = None
    became: str = ""
    reason: str = ""
    wires: Sequence[Wire] = ()
    changes: Sequence[tuple[str, Sequence[str]]] = ()


def shown_event(trace: Trace, draft: Draft | None, number: int) -> Shown | None:
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
    places = [at for at, one in enumerate(trace.events) if isinstance(one, ToolCall | UdfCall)]
    call = places.index(number)
    verdict = None if draft is None else _verdict(draft, call)
    kind, name = _called(event)
    return Shown(
        number=number,
        kind=kind,
        name=name,
        args=event.args,
        result=event.result,
        error=event.error,
        seconds=None if event.duration_ms is None else event.duration_ms / 1e3,
        became="" if draft is None else _became(draft).get(call, ""),
        reason="" if verdict is None else verdict,
        wires=[] if draft is None else [*_wires(draft, call, places)],
        changes=[*changes_in(event.args)],
    )


def _verdict(draft: Draft, call: int) -> str | None:
    both = zip(draft.calls, draft.verdicts, strict=True)
    return next((verdict.reason for one, verdict in both if one.index == call), None)


def _wires(draft: Draft, call: int, places: Sequence[int]) -> Iterator[Wire]:
    """Yield where the values of a call come from."""
    made: dict[str, int] = {}
    became = {step: index for index, step in _became(draft).items() if step != "pruned"}
    for step in draft.routine.steps:
        if step.save_as and step.id in became:
            made[step.save_as] = places[became[step.id]]
    for one in draft.explained:
        if one.call == call:
            words = FROM.get(one.how, one.how)
            yield Wire(one.place, one.recorded, words, one.wired, one.note, _source(one, made))


def _source(one: Explained, made: Mapping[str, int]) -> int | None:
    text = one.wired if isinstance(one.wired, str) else ""
    named = [made[name] for name in sorted(names_in(text, "")) if name in made]
    return named[0] if named else None


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
