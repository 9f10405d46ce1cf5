"""The return value: the words that an agent ended with, where several traces show what varies.

`There are 2 pending lines` is wrong for the next task unless the 2 comes from a result. One trace
can't tell: a small number stands everywhere. Several can.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from em.compiler.differences import recorded_scope, with_names
from em.compiler.draft import Draft
from em.runner.routine import ReturnStep, ToolStep, UdfStep
from em.values.json_schema import of_output

_FIGURE = re.compile(r"\w*\d\w*(?:[.,:/-]\w+)*")
"""Matches a number, an id, a date or a version."""
_EXPRESSION = re.compile(r"(\{\{.*?\}\}|\{%.*?%\})", re.DOTALL)


def with_return(draft: Draft, others: Sequence[Draft]) -> Draft:
    """Return a draft that does not return a figure which other traces don't.

    The figure is taken from a result that has it in every trace. Without one the routine returns
    its last result instead of words that would be wrong.
    others: drafts that make the same calls in the same order.
    """
    step = next((one for one in draft.routine.steps if isinstance(one, ReturnStep)), None)
    if step is None or not isinstance(step.value, str):
        return draft
    varying = [
        figure
        for figure in dict.fromkeys(_figures_of(step.value))
        if any(figure not in _FIGURE.findall(str(other.output)) for other in others)
    ]
    if not varying:
        return draft
    named = with_names(draft, others)
    sources = [_source(figure, named, others) for figure in varying]
    text: Any = step.value
    output = draft.output
    for figure, name in zip(varying, sources, strict=True):
        text = _filled(text, figure, name) if name else text
    if not all(sources):
        last = _last_result(named)
        if last is None:
            return draft
        text, output = last
    return _returning(named, step, text, output)


def _figures_of(template: str) -> Iterator[str]:
    """Yield the figures in the constant parts of a text."""
    for part in _EXPRESSION.split(template)[::2]:
        yield from _FIGURE.findall(part)


def _source(figure: str, draft: Draft, others: Sequence[Draft]) -> str:
    """Return the result that is this figure here, and one of the output's in every other trace."""
    scope = recorded_scope(draft, draft)
    for step in draft.routine.steps:
        name = step.save_as if isinstance(step, ToolStep | UdfStep) else None
        if name is None or str(scope.get(name)).strip() != figure:
            continue
        found = [(str(recorded_scope(draft, one).get(name)).strip(), one.output) for one in others]
        if all(value in _FIGURE.findall(str(output)) for value, output in found):
            return name
    return ""


def _filled(template: str, figure: str, name: str) -> str:
    parts = _EXPRESSION.split(template)
    parts[::2] = [
        _FIGURE.sub(
            lambda found: f"{{{{ {name} }}}}" if found.group() == figure else found.group(), part
        )
        for part in parts[::2]
    ]
    return "".join(parts)


def _last_result(draft: Draft) -> tuple[str, Any] | None:
    """Return the last result that has a name, as an expression and as it was recorded."""
    results = {item.step: item.result for item in draft.recording}
    for step in reversed(draft.routine.steps):
        is_call = isinstance(step, ToolStep | UdfStep)
        if is_call and step.save_as is not None and step.id in results:
            return f"{{{{ {step.save_as} }}}}", results[step.id]
    return None


def _returning(draft: Draft, step: ReturnStep, value: Any, output: Any) -> Draft:
    steps = [
        msgspec.structs.replace(one, value=value) if one.id == step.id else one
        for one in draft.routine.steps
    ]
    routine = msgspec.structs.replace(
        draft.routine, steps=steps, output_schema=of_output(value, output) or None
    )
    return msgspec.structs.replace(draft, routine=routine, output=output)
