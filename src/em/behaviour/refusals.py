"""Runs that can't be kept because nobody knows all that they did."""

from collections.abc import Sequence

from em.behaviour.result import named
from em.behaviour.tape import Call, Run
from em.compiler.calls import TracedCall, infer_effect
from em.errors import NotRecordable
from em.values.canonical import identical


def refuse_unfinished(run: Run) -> None:
    """What is still going on when the agent is done would be missing from the recording."""
    running = [call.tool.name for call in run.calls if not call.ended and call.error is None]
    if run.left or running:
        raise NotRecordable(
            "it was still running when the agent was done",
            place=f"tool {run.left or running[0]}",
            fix="let the agent wait for what it has started",
        )


def refuse_unknown_effects(calls: Sequence[Call]) -> None:
    """A write that failed so that nobody knows whether it happened can be neither kept nor left."""
    for number, call in enumerate(calls):
        if call.error is None:
            continue
        name = call.tool.name.rpartition(".")[2]
        traced = TracedCall(
            index=number,
            name=name,
            is_udf=False,
            args=call.args,
            result=None,
            error=named(call.error),
            effect=infer_effect(name),
            effect_inferred=True,
            said="",
        )
        again = any(
            later.ended and later.tool is call.tool and identical(later.args, call.args)
            for later in calls[number + 1 :]
        )
        if traced.effect_unknown and not again:
            raise NotRecordable(
                f"a call failed so that its effect is unknown: {traced.error}",
                place=f"tool {call.tool.name}",
            )
