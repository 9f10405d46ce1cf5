"""A run of an agent under an engine as a trace, so that the log has it as it has any other."""

from typing import Any

from em.behaviour.behaviour import Behaviour, Task
from em.behaviour.codec import seen
from em.behaviour.result import named
from em.behaviour.tape import Call, Run
from em.traces.trace import Mission, ToolCall, Trace
from em.values.call import Usage


def trace_of(run: Run, task: Task, value: Any, behaviour: Behaviour, engine: str) -> Trace:
    """The trace of a run that ended well."""
    return Trace(
        app={"name": engine},
        mission=Mission(_goal(task), {**task.arguments, **task.params}),
        events=[_event(call) for call in run.calls],
        final_output=seen(value)[0],
        outcome="success",
        tags=list(task.tags),
        usage=Usage(tokens=run.tokens, cost_usd=run.cost_usd, duration_ms=behaviour.seconds * 1e3),
    )


_GOALS = ("task", "goal", "prompt", "instruction", "instructions", "request", "question", "query")


def _goal(task: Task) -> str:
    """The task in words, where an argument is called so. Another may be a secret by its name."""
    texts = (task.arguments.get(name) for name in _GOALS)
    return next((text for text in texts if isinstance(text, str)), "")


def _event(call: Call) -> ToolCall:
    error = None if call.error is None else named(call.error)
    return ToolCall(
        tool=call.tool.name,
        args={**call.args, **{name: {"step": number} for name, number in call.live.items()}},
        result=call.result,
        error=error,
        duration_ms=call.seconds * 1e3,
    )
