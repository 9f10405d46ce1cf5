"""Composition of a behaviour from a run of an agent that succeeded."""

from typing import Any

import msgspec

from em.behaviour.agent_run import Call, Run, refuse_unfinished, refuse_unknown_effects
from em.behaviour.behaviour import FORMAT, Answer, Behaviour, Capture, Step
from em.behaviour.codec import NotEncodable, encode
from em.behaviour.task import Params, Task, param_names
from em.errors import NotRecordable


def composed(run: Run, task: Task, value: Any, hint: Any, seconds: float) -> Behaviour:
    """Return the behaviour of a run and its answer; raise NotRecordable if there is none."""
    refuse_unfinished(run)
    refuse_unknown_effects(run.calls)
    calls = [call for call in run.calls if call.ended]
    if not calls:
        raise NotRecordable(
            "the agent called no tool",
            fix="a behaviour is made of calls of decorated tools",
        )
    numbers = {id(call): number for number, call in enumerate(calls)}
    number_of = {n: numbers[id(call)] for n, call in enumerate(run.calls) if id(call) in numbers}
    params = Params(task.params, param_names([*task.params]))
    return Behaviour(
        task=task.template,
        inputs=task.inputs,
        tags=list(task.tags),
        params=list(task.params),
        steps=[
            Step(
                tool=call.tool.name,
                args=call.args,
                result=call.result,
                writes=call.tool.writes,
                reads=call.tool.reads,
                opaque=call.opaque,
                code=call.tool.code,
                forms=call.forms,
                live={name: number_of[source] for name, source in call.live.items()},
                pre=_filled(call.pre, params),
                post=_filled(call.post, params),
                seconds=call.seconds,
            )
            for call in calls
        ],
        answer=_answer(calls, value, hint),
        seconds=seconds,
        tokens=run.tokens,
        cost_usd=run.cost_usd,
        format=FORMAT,
    )


def _answer(calls: list[Call], value: Any, hint: Any) -> Answer:
    try:
        return Answer(*encode(value, hint))
    except NotEncodable as problem:
        for number in range(len(calls) - 1, -1, -1):
            if calls[number].value is value:
                return Answer(live=number)
        raise NotRecordable(
            f"the agent's return value can't be stored: {problem}",
            place="the agent's return value",
            fix="annotate the agent's return type, or return plain values",
        ) from None


def _filled(capture: Capture | None, params: Params) -> Capture | None:
    """Fill params into a capture. Results are not wired, so that changes are noticed."""
    if capture is None:
        return None
    return msgspec.structs.replace(capture, value=params.fill(capture.value, cautious=True))
