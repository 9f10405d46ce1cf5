"""Pins: params whose use in a recording can't be followed must be the same again."""

from collections.abc import Sequence
from typing import Any

from em.behaviour.behaviour import Answer, Step, Task
from em.behaviour.params import constant_texts, followed, param_names
from em.compiler.leaves import leaves, said_in
from em.values.canonical import Json, identical


def pinned(task: Task, steps: Sequence[Step], answer: Answer, lost: set[str]) -> Json:
    """The params whose use can't be followed: they must be the same on a replay."""
    templates = [*(step.args for step in steps), answer.value]
    names = param_names(task.params)
    found = followed(templates, list(names.values()))
    texts = list(constant_texts(templates))
    derived = _has_own_numbers(task, templates)
    found_pins = {}
    for name, value in task.params.items():
        # "ERIK" was made from "erik" in a way that nobody recorded.
        bent = isinstance(value, str) and any(_is_in(value, text) for text in texts)
        # Which of several params of one value was meant is part of the key, so any will do.
        equal = [names[other] for other, same in task.params.items() if identical(same, value)]
        # 30 may be ten times a param of 3.
        bent = bent or (derived and is_number(value))
        if found.isdisjoint(equal) or bent or not lost.isdisjoint(equal):
            found_pins[name] = value
    return found_pins


def is_number(value: Any) -> bool:
    """Whether it is a number, and not yes or no."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_own_numbers(task: Task, templates: Any) -> bool:
    """Whether numbers stand in a template that neither the task nor a result gave."""
    known = {leaf for _, leaf in leaves(task.inputs) if is_number(leaf)}
    return any(is_number(leaf) and leaf not in known for _, leaf in leaves(templates))


def _is_in(value: str, text: str) -> bool:
    """Whether a text holds a value, written in whatever case."""
    if len(value) < 4:
        return len(value) == 3 and said_in(value, text)
    return value.casefold() in text.casefold()
