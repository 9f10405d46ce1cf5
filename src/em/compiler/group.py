"""Group: the recordings of one kind of task, as they are shown to whoever writes a routine for it.

Some are held back: only their requests are shown, and what is written is tried on them all the
same.
"""

from collections.abc import Iterator, Sequence
from difflib import unified_diff
from functools import cached_property
from typing import Any

import msgspec

from em.compiler.calls import TracedCall, calls_of, specs_of
from em.compiler.draft import Draft
from em.compiler.example import Call, example_of, request_of
from em.compiler.file_changes import session_of
from em.compiler.file_world import Course
from em.compiler.routine_text import routine_text
from em.compiler.sessions import as_check, days_of, is_session
from em.runner.tools.coding import FILE_CHANGES, FILE_TEXT, FILE_THERE, TODAY
from em.settings import Settings
from em.store import redactor_of
from em.traces.trace import KeptTrace
from em.values.canonical import Json

EVERY = 3
"""One of so many recordings is held back."""
MOST_SHOWN = 10
"""Recordings that are shown."""
LONGEST_VALUE = 2_000
"""Characters of one recorded value that are shown."""
LONGEST_LIST = 20
_DAY = "%Y-%m-%d"


class Case(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One recording: what was asked for, what was given, and what was done.

    is_held: only its request is shown.
    """

    name: str
    request: str
    inputs: Json
    calls: Sequence[Call]
    output: Any = None
    is_held: bool = False

    @cached_property
    def course(self) -> Course:
        """How its files came to their texts."""
        return Course(self.calls)

    def shown(self, *, is_session: bool) -> Json:
        """Return it for whoever writes a routine."""
        said = {"recording": self.name, "request": self.request, "inputs": self.inputs}
        days = [one.result for one in self.calls if one.tool == TODAY and one.args["form"] == _DAY]
        said |= {"day": days[0]} if days else {}
        if self.is_held:
            return said
        if is_session:
            before, after = self.course.before, self.course.at[-1]
            return {**said, "files": before, "changes": _diff(before, after), **self._commands()}
        return {**said, **self._calls(self.calls), "output": self.output}

    def _commands(self) -> Json:
        files = (*FILE_CHANGES, FILE_TEXT, FILE_THERE, TODAY)
        return self._calls([call for call in self.calls if call.tool not in files])

    @staticmethod
    def _calls(calls: Sequence[Call]) -> Json:
        told = [
            {"tool": one.tool, "args": one.args, "result": one.result, "effect": one.effect}
            for one in calls
            if one.error is None
        ]
        return {"calls": told}


class Group:
    """The recordings of one kind of task, with what em learnt from them.

    draft: None if em learnt nothing that does what the recordings did. is_session: they changed
    files, and what they changed is compared as texts, whatever steps did it.
    """

    def __init__(self, traces: Sequence[KeptTrace], draft: Draft | None) -> None:
        self.traces, self.draft = traces, draft
        sessions = [
            session_of(kept.trace, {}) if is_session(kept.trace) else None for kept in traces
        ]
        made = [[*days_of(one), *_with_checks(one.calls)] for one in sessions if one is not None]
        self.is_session = len(made) == len(traces) and all(
            any(call.name in FILE_CHANGES for call in calls) for calls in made
        )
        if not self.is_session:
            made = [calls_of(kept.trace, {})[0] for kept in traces]
        self._traced: list[list[TracedCall]] = made
        self.cases = [*self._cases()]

    def _cases(self) -> Iterator[Case]:
        learnt = {} if self.draft is None else {one.name: one for one in self.draft.recordings}
        for number, kept in enumerate(self.traces):
            example, own = example_of(kept), learnt.get(kept.id)
            calls = example.calls if own is None else own.calls
            if self.is_session:
                calls = [_call(call) for call in self._traced[number]]
            yield Case(
                name=kept.id or f"recording {number + 1}",
                request=request_of(kept.trace),
                inputs=example.inputs if own is None else own.inputs,
                calls=calls,
                output=example.output if own is None else own.output,
                is_held=len(self.traces) >= EVERY and number % EVERY == EVERY - 2,
            )

    @cached_property
    def tools(self) -> list[Json]:
        """The tools that were called, as a routine declares them."""
        if self.draft is not None and not self.is_session:
            return [*self.draft.document["tools"]]
        calls = [call for own in self._traced for call in own if not call.failed]
        specs = [msgspec.to_builtins(spec) for spec in specs_of(calls).values()]
        return [{**one, "effect": one.get("effect", "write")} for one in specs]

    @cached_property
    def checks(self) -> frozenset[str]:
        """The commands that every session ran after its last change, before the next effect."""
        if not self.is_session:
            return frozenset()
        found = [
            {call.tool for calls in case.course.checks for call in calls} for case in self.cases
        ]
        return frozenset.intersection(*map(frozenset, found))

    def shown(self) -> Json:
        """Return the group in a compact form, without secrets."""
        redact = redactor_of(Settings.load())
        cases = [case.shown(is_session=self.is_session) for case in self.cases]
        held = [case.is_held for case in self.cases]
        told = [one for one, is_held in zip(cases, held, strict=True) if not is_held]
        kept: Json = {
            "recordings": [_short(one) for one in told[-MOST_SHOWN:]],
            "held_back": [one for one, is_held in zip(cases, held, strict=True) if is_held],
            "tools": self.tools,
        }
        if self.checks:
            kept["run_after_changes"] = sorted(self.checks)
        if self.draft is not None:
            kept["draft"] = routine_text(self.draft.document)
            if self.draft.udfs.functions:
                kept["functions_given"] = sorted(self.draft.udfs.functions)
        made: Json = redact.value(kept)
        return made


def _with_checks(calls: Sequence[TracedCall]) -> Iterator[TracedCall]:
    """Yield calls; a command after a change as what of it must succeed, however it was shown."""
    has_changed = False
    for call in calls:
        check = as_check(call) if has_changed and call.error is None else None
        if check is None or check.error is not None:
            yield call
        else:
            yield msgspec.structs.replace(check, result=call.shown)
        has_changed = has_changed or call.effect == "write"


def _call(call: TracedCall) -> Call:
    is_glance = bool(call.shell) and call.effect == "read" and as_check(call) is None
    return Call(call.name, call.args, call.result, call.error, call.effect, call.is_udf, is_glance)


def _diff(before: dict[str, str], after: dict[str, str]) -> str:
    parts: list[str] = []
    for path in sorted(after):
        old, new = before.get(path, "").splitlines(), after[path].splitlines()
        was = path if path in before else "/dev/null"
        parts += unified_diff(old, new, was, path, lineterm="")
    return "\n".join(parts)


def _short(value: Any, items: int | None = None) -> Any:
    """Shorten long texts and the lists in them."""
    if isinstance(value, str) and len(value) > LONGEST_VALUE:
        return f"{value[:LONGEST_VALUE]} […{len(value) - LONGEST_VALUE:,} more characters]"
    if isinstance(value, dict):
        most = {name: LONGEST_LIST if name == "result" else items for name in value}
        return {name: _short(item, most[name]) for name, item in value.items()}
    if isinstance(value, list):
        kept = [_short(item, items) for item in value[:items]]
        left = len(value) - len(kept)
        return [*kept, f"[…{left:,} more items]"] if left else kept
    return value
