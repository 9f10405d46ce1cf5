"""A run of an agent under an engine as a trace, so that the log has it as it has any other."""

from typing import Any

from em.behaviour.model import Behaviour, Task
from em.behaviour.recording import Call, Run
from em.behaviour.values import seen
from em.models.trace import Mission, ToolCall, Trace, Usage


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


def _goal(task: Task) -> str:
    """The task in words: the first text among its arguments, if there is one."""
    return next((str(v) for v in task.arguments.values() if isinstance(v, str)), "")


def _event(call: Call) -> ToolCall:
    error = None if call.error is None else f"{type(call.error).__name__}: {call.error}"
    return ToolCall(
        tool=call.tool.name,
        args={**call.args, **{name: {"step": number} for name, number in call.live.items()}},
        result=call.result,
        error=error,
        duration_ms=call.seconds * 1e3,
    )
