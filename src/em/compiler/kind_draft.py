"""The draft of a routine that was learnt from several tasks of one kind."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from em.compiler.calls import calls_of
from em.compiler.draft import Draft
from em.compiler.homes import Example, Kind
from em.compiler.learnt_input import learnt_input
from em.compiler.trials import REQUEST, refuse_wrong, trials
from em.runner.plan import Plan, asks_for
from em.runner.routine import PlanStep, ReturnStep, Routine, Step, ToolSpec
from em.traces.trace import KeptTrace, Trace
from em.values.call import Effect

PLAN = "plan"
"""The id of the step that finds out what to do and does it."""
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
        found[kept.id] = Example(good, words_of(kept.trace, calls))
    return found


def words_of(trace: Trace, calls: Sequence[Any]) -> str:
    """Return what was asked for in words: by people, in the task's input, or as its goal."""
    spoken = calls[-1].said.strip() if calls else ""
    texts = [text for text in trace.mission.input_summary.values() if isinstance(text, str)]
    return spoken or "\n".join(texts) or trace.mission.goal


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


def draft_kind(
    examples: Mapping[str, Example], *, name: str, description: str, force: bool = False
) -> Draft:
    """Learn a kind of task from traces, and try what was learnt on each of them.

    force: return it though a trial was wrong.
    """
    plan = Kind(list(examples.values())).plan()
    made = trials(examples)
    refuse_wrong(made, force=force)
    routine = _routine(plan, name, description, list(examples.values()))
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
        proof=(str(made), *made.reasons()),
        trials=made,
    )


def _routine(plan: Plan, name: str, description: str, examples: Sequence[Example]) -> Routine:
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
        input_schema=learnt_input(plan, examples, REQUEST),
        steps=steps,
    )


def with_outcome(draft: Draft, traces: Sequence[KeptTrace]) -> Draft:
    """Return the draft with what the traces say about their outcome."""
    known = {kept.trace.outcome for kept in traces}
    return msgspec.structs.replace(draft, outcome="success" if known == {"success"} else "unknown")
