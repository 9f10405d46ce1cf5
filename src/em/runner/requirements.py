"""Requirements: what a routine needs before it acts and what must come of it, in plain words."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from em.runner.expressions.words import check_in_words, in_words
from em.runner.routine import AssertStep, ForEachStep, PromptStep, ReturnStep, Routine, Step
from em.values.canonical import short


class Requirement(NamedTuple):
    """What must be so before and after one step, in words.

    hold: what must hold. expect: what must be so of the result. when: in which cases the step is
    made at all.
    """

    step_id: str
    hold: list[str]
    expect: list[str]
    when: Sequence[str] = ()


def requirements(routine: Routine) -> Iterator[Requirement]:
    """Yield what must be so before and after each step that requires something."""
    for step in routine.all_steps:
        if isinstance(step, PromptStep | ReturnStep):
            continue
        hold = (
            [f"{check_in_words(step.check)}{_held(step)}"] if isinstance(step, AssertStep) else []
        )
        found = Requirement(step.id, hold, result_in_words(step), [*_cases(step)])
        if any(found[1:]):
            yield found


def result_in_words(step: Step) -> list[str]:
    """Say what the result of a step must be like."""
    if step.expect is None:
        return []
    return [f"{one}{_held(step)}" for one in schema_in_words(step.save_as or step.id, step.expect)]


def _held(step: Step) -> str:
    return f" (in {step.held} recordings)" if step.held else ""


def schema_in_words(name: str, schema: Any) -> list[str]:
    """Say what a value must be like: `order` has status; `order.status` is "pending"."""
    if not isinstance(schema, dict):
        return []
    found, rest = [], dict(schema)
    required = rest.pop("required", None)
    if isinstance(required, list) and required:
        found.append(f"`{name}` has {', '.join(map(str, required))}")
    if "const" in rest:
        found.append(f"`{name}` is {short(rest.pop('const'))}")
    if isinstance(rest.get("enum"), list):
        found.append(f"`{name}` is {' or '.join(map(short, rest.pop('enum')))}")
    properties = rest.pop("properties", None)
    if isinstance(properties, dict):
        for field, one in properties.items():
            found += schema_in_words(f"{name}.{field}", one)
    if isinstance(rest.get("items"), dict):
        found += schema_in_words(f"{name}[]", rest.pop("items"))
    if rest and rest != {"type": "object"}:
        found.append(f"`{name}` fits {short(rest)}")
    return found


def _cases(step: Step) -> Iterator[str]:
    """Say in which cases a step is made, if not once in every run."""
    if step.when is not None:
        yield check_in_words(step.when)
    if isinstance(step, ForEachStep):
        lists = (f"`{name}` of {in_words(text)}" for name, text in step.over.items())
        yield f"for each {' and '.join(lists)}"
    if step.for_each is not None:
        yield f"for each `{step.as_}` of {in_words(str(step.for_each))}"
