"""ATIF: the Agent Trajectory Interchange Format (`trajectory.json`)."""

from collections.abc import Sequence
from typing import Any

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import as_args, as_value, text_of, when
from em.traces.intake import Incoming, digest
from em.values.canonical import Json

NAME = "atif"
_ROLES = {"agent": "assistant"}


def _is_atif(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return False
    return str(value.get("schema_version", "")).startswith("ATIF") or (
        "session_id" in value and isinstance(value.get("agent"), dict)
    )


class _Reader(Reader):
    def read(self, value: Any) -> None:
        if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
            self.intake.unknown("an object without `steps`")
            return
        self._add(value, None, None)

    def _add(self, value: Json, parent: str | None, parent_call: str | None) -> None:
        agent = value.get("agent") if isinstance(value.get("agent"), dict) else {}
        name = (agent or {}).get("name")
        app = {"agent": name} if isinstance(name, str) else {}
        session = value.get("session_id") or value.get("trajectory_id")
        if isinstance(session, str):
            trace = self.intake.trace(session, NAME, session=session, **app)
        else:
            trace = self.intake.nameless(NAME, **app)
        trace.parent, trace.parent_call = parent, parent_call
        spawned: dict[str, str] = {}
        for step in value["steps"]:
            _add_step(trace, step, spawned)
        inner = value.get("subagent_trajectories")
        for child in inner if isinstance(inner, list) else ():
            if isinstance(child, dict) and isinstance(child.get("steps"), list):
                call = spawned.get(str(child.get("trajectory_id") or child.get("session_id")))
                self._add(child, digest(NAME, session), call)
        trace.close()
        if isinstance(session, str):
            self.intake.forget(session)


def _add_step(trace: Incoming, step: Any, spawned: dict[str, str]) -> None:
    if not isinstance(step, dict):
        trace.say("unknown", str(step))
        return
    at = when(step.get("timestamp"))
    source = str(step.get("source", ""))
    trace.say("thinking", text_of(step.get("reasoning_content")), at)
    trace.say(_ROLES.get(source, source), text_of(step.get("message")), at)
    tokens = _add_metrics(trace, step.get("metrics")) if source == "agent" else None
    for call in step.get("tool_calls") or ():
        trace.call(
            str(call.get("function_name")),
            as_args(call.get("arguments")),
            str(call.get("tool_call_id")),
            at,
            tokens=tokens,
        )
        tokens = 0 if tokens is not None else None
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, dict) else None
    for result in results or ():
        _add_result(trace, result, step, spawned)


def _add_result(trace: Incoming, result: Json, step: Json, spawned: dict[str, str]) -> None:
    calls: Sequence[Any] = step.get("tool_calls") or []
    only = calls[0].get("tool_call_id") if len(calls) == 1 else None
    call_id = str(result.get("source_call_id") or only)
    for reference in result.get("subagent_trajectory_ref") or ():
        for name in ("trajectory_id", "session_id"):
            if isinstance(reference, dict) and isinstance(reference.get(name), str):
                spawned[reference[name]] = call_id
    content = as_value(result.get("content"))
    extra = result.get("extra") if isinstance(result.get("extra"), dict) else {}
    failed = result.get("is_error") is True or (extra or {}).get("is_error") is True
    known = trace.result(call_id, None if failed else content, content if failed else None)
    if not known:
        trace.say("environment", text_of(result.get("content")))


def _add_metrics(trace: Incoming, metrics: Any) -> int | None:
    if not isinstance(metrics, dict):
        trace.spent(None)
        return None
    names = ("prompt_tokens", "completion_tokens")
    tokens = sum(int(metrics.get(name) or 0) for name in names)
    return trace.spent(tokens, cost=float(metrics.get("cost_usd") or 0.0))


IMPORTER = Importer(name=NAME, title="ATIF trajectories", fits=_is_atif, reader=_Reader)
