"""Slices: what steps left, and the part of it that one step is given."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec

from em.errors import InputError, UsageError, WorkflowError
from em.log.use import collecting
from em.runner.expressions.language import Missing, as_text
from em.runner.tools import Function, Tool
from em.values.canonical import Json
from em.values.mismatch import closest
from em.workflows.needs import FETCHED, Need

OUTPUT, ERROR = "output", "error"
_RECORD = frozenset({"output", "classification", "metadata"})


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """What a step left in memory: `by` is the step, `name` what it is called."""

    by: str
    name: str
    output: Any = None
    classification: str = OUTPUT
    metadata: Json = {}
    failed: bool = False


def as_record(value: Any) -> Json:
    """Return a tool's result as a record, which may have a classification and metadata."""
    is_record = isinstance(value, dict) and "output" in value and value.keys() <= _RECORD
    return dict(value) if is_record else {"output": value}


def record_of(result: Any) -> Json:
    """Return a result of the journal as a record; a person's answer for a call is a plain value."""
    return result if isinstance(result, dict) and "output" in result else as_record(result)


def slice_of(step: str, record: Json, name: str | None = None) -> Slice:
    """Return the slice of a record of the journal."""
    return Slice(
        by=step,
        name=step if name is None else name,
        output=record.get("output"),
        classification=str(record.get("classification") or OUTPUT),
        metadata=record.get("metadata") or {},
    )


def slices_of(step: str, records: Sequence[Json], *, is_list: bool) -> Iterator[Slice]:
    """Yield the slices that a step left: what its tool saved, then its output."""
    for record in records:
        for saved in record.get("saved") or ():
            yield slice_of(step, saved, str(saved["name"]))
    if not is_list:
        yield from (slice_of(step, record) for record in records)
        return
    for record in records:
        if record.get("classification"):
            yield slice_of(step, record, "")
    yield Slice(by=step, name=step, output=[record.get("output") for record in records])


def failed_slice(step: str, error: str) -> Slice:
    """Return the slice of a step that failed in a workflow that goes on."""
    return Slice(by=step, name=step, output=error, classification=ERROR, failed=True)


class Brought(Mapping[str, Any]):
    """`memory` in a step's templates: what its needs brought, and nothing else.

    A name that no need brought is an empty text and is noted in `missed`. With `strict` it is an
    error.
    """

    def __init__(self, values: Json, *, strict: bool, place: str) -> None:
        self._values = values
        self._strict = strict
        self._place = place
        self.missed: dict[str, None] = {}
        # A warning for each need without a value.
        self.unmet: list[str] = []

    def __getitem__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            if self._strict:
                raise self._unknown(name) from None
            self.missed.setdefault(name)
            return Missing()

    def __contains__(self, _name: object) -> bool:
        # So that every lookup reaches __getitem__, which notes missing names.
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def _unknown(self, name: str) -> WorkflowError:
        known = ", ".join(self._values) or "nothing"
        return WorkflowError(
            f"Memory variable {name!r} not found",
            place=self._place,
            fix=closest(name, list(self._values)) or f"its needs bring: {known}",
        )

    def warnings(self) -> list[str]:
        """Return a warning for each variable and need that resolved to nothing."""
        if not self.missed:
            return [*self.unmet]
        return self.unmet + [
            f"Memory variable {name!r} resolved to empty string"
            + (f": {hint}" if (hint := closest(name, list(self._values))) else "")
            for name in self.missed
        ]


class RunContext:
    """What a run has so far: the prompt, the parameters, and what each step left."""

    def __init__(self, prompt: str | None, params: Json, order: Sequence[str]) -> None:
        self.prompt = prompt
        self.params = params
        self._order = order
        self._left: dict[str, Sequence[Slice]] = {}

    def leave(self, step: str, slices: Sequence[Slice]) -> None:
        """Store the slices that a step left."""
        self._left[step] = slices

    def left_by(self, steps: Collection[str]) -> list[Slice]:
        """Return the slices of these steps, in the order of the file."""
        return [one for step in self._order if step in steps for one in self._left.get(step, ())]

    def memory_for(
        self,
        needs: Sequence[Need],
        fetched: Mapping[str, Any],
        within: Collection[str],
    ) -> tuple[Json, list[str]]:
        """Return the values of needs by name, and the unmet needs. Use slices of `within` only."""
        values: Json = {}
        unmet: list[str] = []
        for need in needs:
            if need.kind in ("user_prompt", "parameters"):
                values |= self.params
            found = self._found(need, fetched, within)
            if found is None or found in ("", []):
                unmet.append(need.text)
            if found is not None:
                values |= dict.fromkeys(need.variables, found)
        return values, unmet

    def _found(self, need: Need, fetched: Mapping[str, Any], within: Collection[str]) -> Any:
        kind = need.kind
        if kind == "step":
            return self._output(need.target)
        if kind in FETCHED:
            return fetched.get(need.text)
        if kind == "last_output":
            return self._last(within)
        if kind == "classification":
            return self._classified(need.target, within)
        return self.prompt if kind == "user_prompt" else self.params

    def _output(self, step: str) -> Any:
        """Return what a step left under its own name: the last of its slices."""
        left = self._left.get(step)
        return left[-1].output if left and not left[-1].failed else None

    def _last(self, within: Collection[str]) -> Any:
        left = (one for one in reversed(self.left_by(within)) if not one.failed)
        return next((one.output for one in left if one.name == one.by), None)

    def _classified(self, name: str, within: Collection[str]) -> Any:
        found = [one.output for one in self.left_by(within) if one.classification == name]
        if len(found) <= 1:
            return found[0] if found else None
        return "\n".join(as_text(output) for output in found)


_now: ContextVar[list[Json] | None] = ContextVar("em_workflow_step", default=None)
"""What the tool of the call that runs has saved."""
MANAGER = "memory_manager"


class MemoryManager:
    """The memory of the step that runs, as its tool sees it."""

    def save_step_result(self, step_name: str, result: Any) -> None:
        """Store a result under a name: a value, or `output`, `classification` and `metadata`.

        It is stored together with the result of the tool that calls this. If the tool fails,
        it is not stored.
        """
        saved = _now.get()
        if saved is None:
            raise UsageError(
                "memory_manager works only while a workflow step runs",
                place="memory_manager",
                fix="call it in the tool of a step",
            )
        if isinstance(result, Mapping) and "output" not in result:
            found = ", ".join(map(str, result)) or "no fields"
            raise InputError(
                f"a result with fields must have the field `output`, got {found}"[:200],
                place=f"memory_manager, {step_name}",
                fix='wrap the result: {"output": …}',
            )
        saved.append({"name": str(step_name), **as_record(result)})


memory_manager = MemoryManager()


Extras = Callable[[], Json]
"""Returns what is stored beside a result: values from outside the run, and warnings."""


NoteUse = Callable[[Sequence[str]], None]
"""Notes the events that a call used from a memory."""


def recording(tool: Tool, extras: Extras, note: NoteUse) -> None:
    """Make a tool return a record: with what it saved, and what its step was given."""
    inner = tool.within
    tool.function = _recorded(tool.function, tool, extras, note)
    if inner is not None:
        tool.within = lambda timeout: _recorded(inner(timeout), tool, extras, note)


def _recorded(function: Function, tool: Tool, extras: Extras, note: NoteUse) -> Function:
    wants_manager = MANAGER in tool.parameters

    def given(args: Json) -> Json:
        return {**args, MANAGER: memory_manager} if wants_manager else args

    @contextmanager
    def saved() -> Iterator[list[Json]]:
        saved: list[Json] = []
        token = _now.set(saved)
        with collecting() as uses:
            try:
                yield saved
            finally:
                note(uses.take())
                _now.reset(token)

    def call(**args: Any) -> Json:
        with saved() as made:
            value = function(**given(args))
        return _record(value, made, extras)

    async def acall(**args: Any) -> Json:
        with saved() as made:
            value = await function(**given(args))
        return _record(value, made, extras)

    return acall if tool.is_async else call


def _record(value: Any, saved: list[Json], extras: Extras) -> Json:
    record = as_record(value) | extras()
    if saved:
        record["saved"] = saved
    return record


CountTokens = Callable[[str], int]

_PIECE = re.compile(r"[A-Za-z]+|\d{1,3}|[^\sA-Za-z\d]")
LETTERS = 7
"""A Latin word of up to this many letters is usually one token."""


def about(text: str) -> int:
    """Estimate the tokens of a text: words by their length, other signs one by one."""
    return sum(
        -(-len(piece) // LETTERS) if piece.isascii() else 1 for piece in _PIECE.findall(text)
    )


def tokens_of(value: Any, count: CountTokens = about) -> int:
    """Count the tokens of a value as it would stand in a prompt."""
    if isinstance(value, str):
        return count(value)
    if value is None:
        return 0
    return count(as_text(value) if isinstance(value, dict | list) else str(value))


class StepTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that a step sent, and those it would have sent with the full context.

    `told`: the provider's own count, if it has one.
    """

    sent: int = 0
    full: int = 0
    told: int | None = None

    @property
    def saved(self) -> int:
        """How many tokens fewer were sent than with the full context."""
        return self.full - self.sent

    def __add__(self, other: "StepTokens") -> "StepTokens":
        told = None if None in (self.told, other.told) else (self.told or 0) + (other.told or 0)
        return StepTokens(sent=self.sent + other.sent, full=self.full + other.full, told=told)
