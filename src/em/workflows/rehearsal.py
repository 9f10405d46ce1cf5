"""A dry run: every prompt filled in as far as can be known, and nothing called.

What a step would leave is shown by its name: nobody knows it yet.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from em.errors import EmError
from em.runner.expressions.functions import FUNCTIONS
from em.runner.journal import keepable
from em.runner.tools import Tool
from em.values.canonical import Json
from em.workflows.file import WorkflowFile
from em.workflows.inspection import inputs_of
from em.workflows.needs import FETCHED
from em.workflows.parameters import check_params, prompt_of
from em.workflows.plan import Plan, PlannedStep
from em.workflows.problems import refuse_invalid
from em.workflows.slices import Brought, Context, Slice


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """A step as it would be called."""

    name: str
    tool: str
    needs: Sequence[str] = ()
    inputs: Any = None
    asks: str = ""
    """What a person would be asked first."""
    note: str = ""


def rehearse(
    file: WorkflowFile,
    name: str,
    tools: Mapping[str, Tool],
    params: Mapping[str, Any],
    prompt: str | None = None,
) -> list[Rehearsed]:
    """Every step of a workflow as it would be called."""
    workflow = file.workflow(name)
    refuse_invalid(workflow, tools, file.place)
    plan = Plan(workflow)
    given = keepable(check_params(workflow, params), "params")
    said = prompt_of(workflow, given, prompt)
    context = Context(said, given, [step.name for step in plan.steps])
    for step in plan.steps:
        shown = f"<output of {step.name}>"
        context.leave(step.name, [Slice(by=step.name, name=step.name, output=shown)])
    return [_rehearsed(step, context, given) for step in plan.steps]


def _rehearsed(step: PlannedStep, context: Context, params: Json) -> Rehearsed:
    fetched = {need.text: f"<{need.text}>" for need in step.needs if need.kind in FETCHED}
    values, unmet = context.memory_for(step.needs, fetched, step.before)
    for need in step.needs:
        if need.kind == "classification" and need.text in unmet:
            values |= dict.fromkeys(need.variables, f"<{need.text}>")
    brought = Brought(values, strict=False, place="")
    scope: Json = {**FUNCTIONS, "params": params, "run_id": "<run id>", "memory": brought}
    definition = step.definition
    note = f"when {definition.when}" if definition.when is not None else ""
    inputs: Any
    try:
        inputs = inputs_of(step, scope)
    except (EmError, TypeError):
        # What it depends on is not there yet, as a list of items.
        inputs = definition.inputs
        note = f"{note}; known once the steps before it ran".lstrip("; ")
    return Rehearsed(
        name=step.name,
        tool=definition.tool,
        needs=definition.memory.needs,
        inputs=inputs,
        asks=_asks(step, scope),
        note=note,
    )


def _asks(step: PlannedStep, scope: Json) -> str:
    if step.prompt is None or step.prompt.prompt is None:
        return ""
    try:
        return str(step.prompt.prompt(scope)["message"])
    except EmError:
        return "?"
