"""What a model may not change in a routine, whatever it answers.

A replay shows what a routine does on one recording. What it would do on another day (a write behind
a condition, a default in place of a failed read, an approval that is skipped) is refused here.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from em.compiler.draft import Draft
from em.runner.expressions.language import syntax_of
from em.runner.routine import AssertStep, PromptStep, ReturnStep, Routine, Step, ToolStep, UdfStep
from em.values.call import Effect

LONGEST_ROUTINE = 200_000
LONGEST_TEXT = 20_000
"""Characters of a model's routine, and of one text in it."""

_NOT_ON_EFFECTS = {
    "when": None,
    "retry": None,
    "timeout": None,
    "idempotency_key": None,
    "parallel": 1,
}


def with_what_stays(draft: Draft, routine: Routine) -> Routine:
    """A model's routine with all that is the draft's to say: name, schemas, secrets, tools."""
    old = draft.routine
    told = {tool.name: tool.description for tool in routine.tools}
    called = {step.tool for step in routine.steps if isinstance(step, ToolStep)}
    tools = [
        msgspec.structs.replace(tool, description=told.get(tool.name) or tool.description)
        for tool in old.tools
        if tool.name in called
    ]
    return msgspec.structs.replace(
        routine,
        name=old.name,
        input_schema=old.input_schema,
        output_schema=old.output_schema,
        secrets=old.secrets,
        tools=tools,
    )


def broken_promises(draft: Draft, routine: Routine) -> list[str]:
    """What a model changed that was not its to change."""
    return [
        *_unbounded(routine),
        *_inputs(draft, routine),
        *_calls(draft, routine),
        *_conditions(draft.routine, routine),
        *_approvals(draft.routine.steps, routine.steps),
        *_end(routine.steps),
    ]


def _unbounded(routine: Routine) -> Iterator[str]:
    for text in _texts(msgspec.to_builtins(routine)):
        if "{%" in text:
            yield "no {% %} in a routine: write an expression, or a function in udf.py"
            return
        if len(text) > LONGEST_TEXT:
            yield f"a text of more than {LONGEST_TEXT:,} characters"
            return


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (key for key in value if isinstance(key, str))
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _inputs(draft: Draft, routine: Routine) -> Iterator[str]:
    """Nothing takes the place of an input or of a secret."""
    fixed = {*draft.input, *(secret.name for secret in draft.routine.secrets)}
    for step in routine.steps:
        if step.save_as in fixed:
            yield f"step {step.id}: {step.save_as} is an input; save under another name"


def _calls(draft: Draft, routine: Routine) -> Iterator[str]:
    effects: dict[str, Effect | None] = {tool.name: tool.effect for tool in draft.routine.tools}
    for step in routine.steps:
        if step.effect is not None:
            yield f"step {step.id}: a step's effect is its tool's: leave `effect` out"
        if step.on_error != "fail" and step.on_error not in _on_error(draft, step):
            yield f"step {step.id}: `on_error` is as in the draft; what fails must be seen"
        if isinstance(step, ToolStep) and effects.get(step.tool) != "read":
            for name, unset in _NOT_ON_EFFECTS.items():
                if getattr(step, name) != unset:
                    yield f"step {step.id}: {step.tool} has an effect, so no `{name}` on it"


def _conditions(old: Routine, new: Routine) -> Iterator[str]:
    """What is handed on is not chosen: a choice would show on other inputs only."""
    known = {text for step in old.steps for text in _texts(_handed_on(step))}
    for step in new.steps:
        for text in _texts(_handed_on(step)):
            if "{{" in text and text not in known and _chooses(text, f"step {step.id}"):
                yield f"step {step.id}: no condition or default in an expression: {text[:80]}"


def _handed_on(step: Step) -> list[Any]:
    if isinstance(step, ToolStep | UdfStep):
        return [step.args, step.for_each]
    if isinstance(step, PromptStep):
        return [step.prompt.message]
    return [step.value] if isinstance(step, ReturnStep) else []


def _chooses(text: str, place: str) -> bool:
    from jinja2 import nodes

    tree = syntax_of(text, place)
    if next(tree.find_all((nodes.CondExpr, nodes.And, nodes.Or)), None) is not None:
        return True
    return any(found.name in ("default", "d") for found in tree.find_all(nodes.Filter))


def _on_error(draft: Draft, step: Step) -> list[Any]:
    if not isinstance(step, ToolStep):
        return []
    return [
        old.on_error
        for old in draft.routine.steps
        if isinstance(old, ToolStep) and old.tool == step.tool
    ]


def _approvals(old: Sequence[Step], new: Sequence[Step]) -> Iterator[str]:
    """Every question is asked as before, and its answer is looked at right after it.

    That it still comes before the same effects, in the same words, is for the replays to show.
    """
    asked, asks = _questions(old), _questions(new)
    if [step.id for step, _ in asks] != [step.id for step, _ in asked]:
        names = ", ".join(step.id for step, _ in asked) or "none"
        yield f"the prompt.user steps, with their ids and in their order, must be: {names}"
        return
    for (was, then), (step, following) in zip(asked, asks, strict=True):
        if step.when is not None:
            yield f"step {step.id}: a person is always asked, so no `when`"
        if step.prompt.fields != was.prompt.fields:
            yield f"step {step.id}: its fields must be as in the draft"
        if isinstance(then, AssertStep):
            # Only the name under which the answer is saved may be another one.
            check = then.check.replace(f"{was.save_as}.", f"{step.save_as}.")
            if not _looks_at(following, check):
                yield (
                    f"step {step.id}: right after it must stand an assert with just"
                    f" `check: {check}`, without when, for_each or on_error"
                )


def _questions(steps: Sequence[Step]) -> list[tuple[PromptStep, Step | None]]:
    followed = zip(steps, [*steps[1:], None], strict=True)
    return [(step, then) for step, then in followed if isinstance(step, PromptStep)]


def _looks_at(step: Step | None, check: str) -> bool:
    return (
        isinstance(step, AssertStep)
        and step.check.strip() == check
        and check.removeprefix("not ").replace(".", "").isidentifier()
        and step.when is None
        and step.for_each is None
        and step.on_error == "fail"
        and step.save_as is None
    )


def _end(steps: Sequence[Step]) -> Iterator[str]:
    returns = [step for step in steps if isinstance(step, ReturnStep)]
    if len(returns) != 1 or returns[0] is not steps[-1] or returns[0].when is not None:
        yield "there is one return step, the last one, without `when`"
