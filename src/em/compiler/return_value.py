"""The return value: what an agent ended with, where several traces show what varies.

`There are 2 pending lines` is wrong for the next task unless the 2 comes from a result. One trace
can't tell: a small number stands everywhere. Several can: a value is returned only if it is put
together, in every one of the traces, to exactly what that trace ended with.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import msgspec

from em.compiler.arguments import OUTPUT
from em.compiler.differences import recorded_scope, with_names
from em.compiler.draft import Draft
from em.compiler.explanations import Explained
from em.compiler.inputs import escaped
from em.errors import EmError
from em.runner.expressions.functions import FUNCTIONS
from em.runner.expressions.language import compile_value
from em.runner.routine import ReturnStep, ToolStep, UdfStep
from em.values.canonical import Json, identical
from em.values.json_schema import of_output

FEWEST_SIGNS = 3
"""Signs of an input that was always the same, for a text that has it to be about it."""
_LEFT_OUT = "the answers of the traces differ in words or values that nothing explains"
_ONE = "one trace does not show which words of the answer depend on what was read"
_HOLE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_BARE = re.compile(r"\{\{\s*[\w.]+\s*\}\}")
_NOTHING = object()


def with_return(draft: Draft, others: Sequence[Draft]) -> Draft:
    """Return a draft whose return value is explained by all traces.

    Where a text is not, the routine returns its last result instead of words that would be wrong,
    or nothing. Of an object only the fields are left out that nothing explains.
    others: drafts that make the same calls in the same order.
    """
    step = _return_step(draft)
    if step is None or not others:
        return draft
    named = with_names(draft, others)
    shown = _Shown(named, others)
    value = shown.explained(step.value, [one.output for one in (draft, *others)])
    if value is not _NOTHING:
        if identical(value, step.value):
            return draft
        return _returning(named, step, value, shown.output(value))
    value, output = _last_result(named) or (None, None)
    note = f"it returns {'no text' if value is None else 'its last result'}: {_LEFT_OUT}"
    return _returning(named, step, value, output, note)


def says_what_one_saw(draft: Draft) -> bool:
    """Return whether a draft of one trace has an answer that may be about something else next time.

    An agent that only looked ends with what it saw. Words in which no result stands, or a number
    that is none of a result, are right for what was recorded; what they would be for other results
    one trace can't show.
    """
    step = _return_step(draft)
    kept = [call for call, one in zip(draft.calls, draft.verdicts, strict=True) if one.keep]
    if step is None or not returns_words(draft) or any(call.effect != "read" for call in kept):
        return False
    return _is_unexplained(str(step.value), _result_names(draft))


def with_last_result(draft: Draft) -> Draft:
    """Return a draft that returns what its last call returned, instead of words about it."""
    step = _return_step(draft)
    assert step is not None
    named = _with_last_named(draft)
    value, output = _last_result(named) or (None, None)
    note = f"it returns {'no text' if value is None else 'its last result'}: {_ONE}"
    return _returning(named, step, value, output, note)


def _return_step(draft: Draft) -> ReturnStep | None:
    return next((one for one in draft.routine.steps if isinstance(one, ReturnStep)), None)


def _is_unexplained(text: str, results: Collection[str]) -> bool:
    """Return whether the words of an answer have a number, or nothing, of what was read."""
    holes = [set(re.findall(r"[A-Za-z_]\w*", hole)) for hole in _HOLE.findall(text)]
    words = _HOLE.sub("", text)
    return any(map(str.isdigit, words)) or not any(map(set(results).intersection, holes))


def _result_names(draft: Draft) -> set[str]:
    return {
        step.save_as
        for step in draft.routine.steps
        if isinstance(step, ToolStep | UdfStep) and step.save_as is not None
    }


def _with_last_named(draft: Draft) -> Draft:
    """Return a draft whose last call saves its result, under the name of its step."""
    calls = [one for one in draft.routine.steps if isinstance(one, ToolStep | UdfStep)]
    if not calls or calls[-1].save_as is not None:
        return draft
    taken = {*draft.input, *_result_names(draft), *FUNCTIONS}
    free = next(name for name in _names_after(calls[-1].id) if name not in taken)
    steps = [
        msgspec.structs.replace(one, save_as=free) if one is calls[-1] else one
        for one in draft.routine.steps
    ]
    return msgspec.structs.replace(
        draft, routine=msgspec.structs.replace(draft.routine, steps=steps)
    )


def _names_after(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}_{number}" for number in count(2))


class _Shown:
    """What each trace shows by the names of a draft; the draft's own trace comes first."""

    def __init__(self, draft: Draft, others: Sequence[Draft]) -> None:
        self._inputs = frozenset(draft.input)
        self._scopes = [recorded_scope(draft, one) for one in (draft, *others)]

    def output(self, value: Any) -> Any:
        """Return what a value is in the draft's own trace."""
        return compile_value(value, "")(self._scopes[0])

    def explained(self, value: Any, outputs: Sequence[Any]) -> Any:
        """Return the value, or a better one, that is what every trace ended with."""
        if self._gives(value, outputs):
            return value
        if isinstance(value, dict):
            return self._fields(value, outputs)
        texts = [one for one in outputs if isinstance(one, str)]
        if len(texts) == len(outputs) and all(escaped(one) == one for one in texts):
            text = self._text(texts)
            if text and self._gives(text, outputs):
                return text
        return next((one for one in self._whole() if self._gives(one, outputs)), _NOTHING)

    def _fields(self, value: Json, outputs: Sequence[Any]) -> Any:
        """Return the fields of an object that are explained."""
        objects = [one for one in outputs if isinstance(one, dict)]
        if len(objects) < len(outputs):
            return _NOTHING
        parts = {
            key: self.explained(part, [one[key] for one in objects])
            for key, part in value.items()
            if all(key in one for one in objects)
        }
        return {key: part for key, part in parts.items() if part is not _NOTHING} or _NOTHING

    def _gives(self, value: Any, outputs: Sequence[Any]) -> bool:
        try:
            found = [compile_value(value, "")(scope) for scope in self._scopes]
        except EmError:
            return False
        return all(map(_same, found, outputs))

    def _whole(self) -> Iterator[str]:
        yield from (f"{{{{ {name} }}}}" for name in self._names())

    def _names(self) -> Iterator[str]:
        """Yield the names that every trace has a value for, the inputs first."""
        known = [name for name in self._scopes[0] if name not in FUNCTIONS]
        for name in sorted(known, key=lambda one: one not in self._inputs):
            if all(name in scope for scope in self._scopes):
                yield name

    def _text(self, outputs: Sequence[str]) -> str:
        """Return the text that all outputs are, with names for what differs; empty if none is."""
        values: dict[tuple[str, ...], str] = {}
        unclear = set()
        for name in self._names():
            own = tuple(_written(scope[name]) for scope in self._scopes)
            if all(own) and (len(set(own)) > 1 or self._is_telling(name, own[0])):
                other = values.setdefault(own, name)
                if other != name and (name in self._inputs) == (other in self._inputs):
                    unclear.add(own)  # nothing tells which of the two it is
        return _common(outputs, {own: name for own, name in values.items() if own not in unclear})

    def _is_telling(self, name: str, value: str) -> bool:
        """Return whether a text that has the value of an input, always the same, is about it."""
        return name in self._inputs and len(value) >= FEWEST_SIGNS


def _common(texts: Sequence[str], values: Mapping[tuple[str, ...], str]) -> str:
    """Return a template for texts: what is equal stays, what differs must be one of the values."""
    made, at = "", [0] * len(texts)
    longest = sorted(values, key=lambda own: -len(own[0]))
    while any(place < len(text) for text, place in zip(texts, at, strict=True)):
        found = next((own for own in longest if _stands(own, texts, at)), None)
        signs = {text[place : place + 1] for text, place in zip(texts, at, strict=True)}
        if found is not None:
            made += f"{{{{ {values[found]} }}}}"
            at = [place + len(value) for place, value in zip(at, found, strict=True)]
        elif len(signs) == 1:
            made += signs.pop()
            at = [place + 1 for place in at]
        else:
            return ""
    return made


def _stands(own: Sequence[str], texts: Sequence[str], at: Sequence[int]) -> bool:
    """Return whether each text has its value at its place, as whole words."""
    return all(
        re.compile(
            rf"(?<!\w){re.escape(value)}(?!\w)" if value[0].isalnum() else re.escape(value)
        ).match(text, place)
        is not None
        for value, text, place in zip(own, texts, at, strict=True)
    )


def _written(value: Any) -> str:
    """Return a value as it stands in a text; empty if it does not."""
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value).strip() if is_plain else ""


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one.split() == other.split()
    return identical(one, other)


def returns_words(draft: Draft) -> bool:
    """Return whether a routine returns a text that it puts together, not just a result."""
    values = [step.value for step in draft.routine.steps if isinstance(step, ReturnStep)]
    return any(isinstance(one, str) and not _BARE.fullmatch(one) for one in values)


def _last_result(draft: Draft) -> tuple[str, Any] | None:
    """Return the last result that has a name, as an expression and as it was recorded."""
    results = {item.step: item.result for item in draft.recording}
    for step in reversed(draft.routine.steps):
        is_call = isinstance(step, ToolStep | UdfStep)
        if is_call and step.save_as is not None and step.id in results:
            return f"{{{{ {step.save_as} }}}}", results[step.id]
    return None


def _returning(draft: Draft, step: ReturnStep, value: Any, output: Any, note: str = "") -> Draft:
    steps = [
        msgspec.structs.replace(one, value=value) if one.id == step.id else one
        for one in draft.routine.steps
    ]
    routine = msgspec.structs.replace(
        draft.routine, steps=steps, output_schema=of_output(value, output) or None
    )
    comments = {**draft.comments}
    if note:
        comments[step.id] = [*comments.get(step.id, ()), note]
    end = len(draft.calls)
    explained = [
        *(one for one in draft.explained if one.call < end),
        Explained(end, OUTPUT, output, value, "parts", note),
    ]
    return msgspec.structs.replace(
        draft, routine=routine, output=output, comments=comments, explained=explained
    )
