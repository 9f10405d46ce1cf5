"""The draft of a routine that was learnt from several tasks of one kind."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.calls import calls_of
from em.compiler.draft import Draft
from em.compiler.homes import Example, Kind
from em.compiler.trials import REQUEST, Trials, trials
from em.errors import RoutineError
from em.runner.plan import Plan, asks_for
from em.runner.routine import PlanStep, ReturnStep, Routine, Step, ToolSpec
from em.traces.trace import KeptTrace
from em.values.call import Effect
from em.values.canonical import Json

PLAN = "plan"
"""The id of the step that finds out what to do and does it."""
SHOWN = 3
"""Examples of an input in the schema."""
DONE = "done"
"""The name of its result."""


def examples_of(
    traces: Sequence[KeptTrace], declared: Mapping[str, Effect | None]
) -> dict[str, Example]:
    """Return the traces as they are learnt from: calls that succeeded, and the request."""
    found = {}
    for kept in traces:
        calls, _ = calls_of(kept.trace, declared)
        good = [call for call in calls if not call.failed]
        for number, call in enumerate(good):
            call.index = number
        found[kept.id] = Example(good, _said(kept, calls))
    return found


def _said(kept: KeptTrace, calls: Sequence[Any]) -> str:
    """Return what was asked for in words: by people, in the task's input, or as its goal."""
    spoken = calls[-1].said.strip() if calls else ""
    texts = [text for text in kept.trace.mission.input_summary.values() if isinstance(text, str)]
    return spoken or "\n".join(texts) or kept.trace.mission.goal


def is_learnable(plan: Plan, examples: Iterable[Example]) -> bool:
    """Return whether each effect was asked for in words at least once."""
    return bool(plan.effects) and all(
        any(
            asks_for(effect, example.said)
            for example in examples
            if any(call.name == effect.tool for call in example.writes)
        )
        for effect in plan.effects.values()
    )


def draft_kind(examples: Mapping[str, Example], *, name: str, description: str) -> Draft:
    """Learn a kind of task from traces, and try what was learnt on each of them."""
    plan = Kind(list(examples.values())).plan()
    made = trials(examples)
    if made.count("wrong"):
        raise RoutineError(
            f"what the traces have in common would do the wrong thing: {made}",
            place="traces",
            fix="compile without these: " + "; ".join(_reasons(made, "wrong")),
        )
    routine = _routine(plan, name, description)
    return Draft(
        routine=routine,
        input={REQUEST: [*examples.values()][-1].said},
        output=None,
        recording=(),
        answers={},
        calls=(),
        verdicts=(),
        explained=(),
        comments={PLAN: [str(made)]},
        proof=(str(made), *_reasons(made)),
    )


def _reasons(made: Trials, verdict: str = "") -> list[str]:
    return [
        f"{one.trace}: {one.verdict}: {one.reason}"
        for one in made.made
        if one.reason and verdict in ("", one.verdict)
    ]


def _routine(plan: Plan, name: str, description: str) -> Routine:
    step = PlanStep(
        id=PLAN, effects=plan.effects, reads=plan.reads, inputs=plan.inputs, save_as=DONE
    )
    steps: list[Step] = [step, ReturnStep(id="return", value=f"{{{{ {DONE} }}}}")]
    writes = {spec.tool for spec in plan.effects.values()}
    tools = [
        ToolSpec(name=tool, effect="write" if tool in writes else "read")
        for tool in sorted(step.tools)
    ]
    return Routine(
        name=name,
        description=description,
        tools=tools,
        input_schema=_schema(plan),
        steps=steps,
    )


def _schema(plan: Plan) -> Json:
    properties: Json = {REQUEST: {"type": "string"}}
    for effect in plan.effects.values():
        for name, slot in effect.slots.items():
            shown = list(slot.values or slot.examples)[:SHOWN]
            properties[name] = {"examples": [shown] if slot.many else shown}
    for name, known in plan.inputs.items():
        properties[name] = {"type": "string", "examples": list(known.examples)[:SHOWN]}
    return {
        "type": "object",
        "properties": properties,
        "required": [],
        "additionalProperties": False,
    }


def with_outcome(draft: Draft, traces: Sequence[KeptTrace]) -> Draft:
    """Return the draft with what the traces say about their outcome."""
    known = {kept.trace.outcome for kept in traces}
    return msgspec.structs.replace(draft, outcome="success" if known == {"success"} else "unknown")
