"""OpenHands before its SDK: histories of actions and observations."""

from typing import Any

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import (
    as_args,
    exit_failure,
    output_of,
    said_outcome,
    text_of,
    text_or_json,
    tokens_of,
    when,
)
from em.traces.intake import Incoming
from em.values.canonical import Json

NAME = "openhands"
_NO_CALLS = frozenset({
    "message", "finish", "change_agent_state", "null", "system", "recall", "pause", "resume",
    "stop", "condensation", "condensation_request", "loop_recovery", "agent_state_changed",
})  # fmt: skip
_MARKS = frozenset({"source", "args", "cause", "tool_call_metadata", "action_risk", "is_confirmed"})
_ABOUT = frozenset({"action", "thought", "keep_prompt", "is_confirmed", "action_risk", "blocking"})


def _is_event(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    named = isinstance(value.get("action"), str) or isinstance(value.get("observation"), str)
    return named and bool(_MARKS & value.keys() or "content" in value or "thought" in value)


def _history(value: Any) -> list[Any] | None:
    history = value.get("history") if isinstance(value, dict) else value
    if not isinstance(history, list):
        return None
    # Older histories have pairs of an action and its observation.
    return [event for entry in history for event in (entry if isinstance(entry, list) else [entry])]


def _is_openhands(value: Any) -> bool:
    history = _history(value)
    return bool(history) and all(_is_event(event) for event in (history or [])[:20])


class _Reader(Reader):
    def read(self, value: Any) -> None:
        history = _history(value)
        if history is None:
            self.intake.unknown("no history of events")
            return
        first = history[0] if history and isinstance(history[0], dict) else {}
        began = first.get("timestamp")
        if isinstance(began, str):
            trace = self.intake.trace(f"{began} {text_of(first.get('message'))}", NAME)
        else:
            trace = self.intake.nameless(NAME)
        _History(trace).add(history)
        if isinstance(value, dict):
            _add_about(trace, value)
        trace.close()


class _History:
    def __init__(self, trace: Incoming) -> None:
        self._trace = trace
        self._open = ""

    def add(self, history: list[Any]) -> None:
        for number, event in enumerate(history):
            if not isinstance(event, dict):
                self._trace.say("unknown", text_or_json(event))
            elif isinstance(event.get("action"), str):
                self._action(event, str(event.get("id", number)))
            else:
                self._observation(event)

    def _action(self, event: Json, own: str) -> None:
        action, at = event["action"], when(event.get("timestamp"))
        flat = {name: value for name, value in event.items() if name not in _ABOUT}
        args = event["args"] if isinstance(event.get("args"), dict) else flat
        thought = args.get("thought") or event.get("thought")
        called = event.get("tool_call_metadata")
        if action in _NO_CALLS and not (action == "finish" and isinstance(called, dict)):
            self._said(event, args, at)
            return
        if event.get("source") not in (None, "agent"):
            self._trace.say(str(event["source"]), text_or_json(event), at)
            return
        self._trace.say("assistant", text_of(thought), at)
        if action == "finish":
            answer = text_of(args.get("final_thought") or event.get("message"))
            self._trace.output = answer or self._trace.output
        name, args, tokens = _as_called(event, action, args)
        if tokens is not None:
            tokens = self._trace.spent(tokens, turn=_answer_id(event))
        self._open = f"action {own}"
        self._trace.call(name, args, self._open, at, tokens=tokens)

    def _said(self, event: Json, args: Json, at: Any) -> None:
        text = text_of(args.get("content")) or text_of(args.get("thought"))
        source = event.get("source")
        if event["action"] == "finish":
            self._trace.ends_with_answer = True
            self._trace.say("assistant", text or text_of(event.get("message")), at)
        elif event["action"] == "message":
            role = "assistant" if source == "agent" else "user"
            self._trace.say(role, text or text_of(event.get("message")), at)
        elif event["action"] == "system":
            self._trace.say("system", text, at)
        else:
            self._trace.say("environment", text_or_json(event), at)

    def _observation(self, event: Json) -> None:
        at = when(event.get("timestamp"))
        cause = event.get("cause")
        own = self._open if cause is None else f"action {cause}"
        content = event.get("content")
        failure = _failure(event, content)
        is_command = bool(own) and self._trace.is_command(own)
        result = None if failure is not None else output_of(content, is_command=is_command)
        if not (own and self._trace.result(own, result, failure, at)):
            self._trace.say("environment", text_or_json(_readable(event)), at)


def _readable(event: Json) -> Any:
    extra = {name: value for name, value in event.items() if name not in ("id", "timestamp")}
    return event.get("content") or extra


def _as_called(event: Json, action: str, args: Json) -> tuple[str, Json, int | None]:
    """Return the call of an action: as in the model's answer, if the history has it."""
    given = event.get("tool_call_metadata")
    metadata: Json = given if isinstance(given, dict) else {}
    response = metadata.get("model_response")
    answer: Json = response if isinstance(response, dict) else {}
    tokens = tokens_of(answer.get("usage"))
    for choice in answer.get("choices") or ():
        for call in (choice.get("message") or {}).get("tool_calls") or ():
            if call.get("id") == metadata.get("tool_call_id"):
                function = call.get("function") or {}
                return str(function.get("name")), as_args(function.get("arguments")), tokens
    given = {
        name: value for name, value in args.items() if name not in _ABOUT and value is not None
    }
    return str(metadata.get("function_name") or action), given, tokens


def _answer_id(event: Json) -> str | None:
    answer = event["tool_call_metadata"]["model_response"].get("id")
    return answer if isinstance(answer, str) else None


def _failure(event: Json, content: Any) -> str | None:
    extras = event.get("extras") if isinstance(event.get("extras"), dict) else {}
    metadata = (extras or {}).get("metadata")
    code = event.get("exit_code", (extras or {}).get("exit_code"))
    if isinstance(metadata, dict):
        code = metadata.get("exit_code", code)
    if event.get("observation") == "error":
        return text_of(content) or "error"
    return None if code == -1 else exit_failure(code, text_of(content))  # -1: it still runs


def _add_about(trace: Incoming, value: Json) -> None:
    trace.outcome = said_outcome(value.get("success"))
    if isinstance(value.get("instruction"), str):
        trace.goal = value["instruction"]
    metrics = value.get("metrics")
    if isinstance(metrics, dict):
        cost = metrics.get("accumulated_cost")
        if isinstance(cost, int | float):
            trace.usage["cost_usd"] = float(cost)
        costs = metrics.get("costs")
        if isinstance(costs, list):
            trace.usage["model_calls"] = len(costs)


IMPORTER = Importer(name=NAME, title="OpenHands histories", fits=_is_openhands, reader=_Reader)
