"""OpenHands with its SDK (version 1): one event per line, named by `kind`."""

from typing import Any

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import as_args, as_value, exit_failure, text_of, when
from em.traces.intake import Incoming, Intake, digest
from em.values.canonical import Json

NAME = "openhands-sdk"
_ENDS = ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation")


def _is_openhands_sdk(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("kind"), str)
        and value["kind"].endswith(("Event", "Observation", "Condensation"))
        and "source" in value
        and "id" in value
    )


class _Reader(Reader):
    def __init__(self, intake: Intake) -> None:
        super().__init__(intake)
        self._trace: Incoming | None = None

    def read(self, value: Any) -> None:
        event: Json = value if isinstance(value, dict) else {}
        if self._trace is None:
            key = str(event.get("id") or digest(self.intake.raw_text()))
            self._trace = self.intake.trace(key, NAME)
        if not _add(self._trace, event):
            self._trace.unknown(f"kind {event.get('kind')}")


def _add(trace: Incoming, event: Json) -> bool:
    kind, at = event.get("kind"), when(event.get("timestamp"))
    if kind == "MessageEvent":
        message = event.get("llm_message")
        inner: Json = message if isinstance(message, dict) else {}
        role = inner.get("role") or ("user" if event.get("source") == "user" else "assistant")
        trace.say(str(role), text_of(inner.get("content")), at)
        return True
    if kind == "SystemPromptEvent":
        trace.say("system", text_of(event.get("system_prompt")), at)
        return True
    if kind == "ActionEvent":
        _add_action(trace, event, at)
        return True
    if kind in _ENDS:
        return _add_end(trace, event, at)
    return kind == "ConversationStateUpdateEvent" and _add_usage(trace, event)


def _add_action(trace: Incoming, event: Json, at: Any) -> None:
    trace.say("thinking", text_of(event.get("reasoning_content")), at)
    trace.say("assistant", text_of(event.get("thought")), at)
    call = event.get("tool_call") if isinstance(event.get("tool_call"), dict) else {}
    action = event.get("action") if isinstance(event.get("action"), dict) else {}
    given = (call or {}).get("arguments")
    args = as_args(given) if given is not None else dict(action or {})
    trace.call(str(event.get("tool_name")), args, event.get("tool_call_id"), at)
    if event.get("tool_name") == "finish" and isinstance(args.get("message"), str):
        trace.output = args["message"]


def _add_end(trace: Incoming, event: Json, at: Any) -> bool:
    found = event.get("observation")
    observation: Json = found if isinstance(found, dict) else {}
    content = observation.get("content", observation.get("output"))
    text = text_of(content)
    code = observation.get("exit_code")
    error: str | None = None
    if event.get("error") or event.get("kind") == "UserRejectObservation":
        error = str(event.get("error") or event.get("rejection_reason") or "rejected")
    elif observation.get("is_error") is True:
        error = text or "failed"
    elif code != -1:  # it still runs
        error = exit_failure(code, text)
    result = None if error is not None else as_value(content)
    return trace.result(str(event.get("tool_call_id")), result, error, at)


def _add_usage(trace: Incoming, event: Json) -> bool:
    """Set the usage; the newest count includes all before it."""
    value = event.get("value")
    if event.get("key") != "stats" or not isinstance(value, dict):
        return False
    metrics = value.get("usage_to_metrics")
    tokens, cost = 0, 0.0
    for one in (metrics if isinstance(metrics, dict) else {}).values():
        used = one.get("accumulated_token_usage") or {}
        tokens += int(used.get("prompt_tokens") or 0) + int(used.get("completion_tokens") or 0)
        cost += float(one.get("accumulated_cost") or 0.0)
    trace.usage["tokens"] = tokens
    if cost:
        trace.usage["cost_usd"] = cost
    return True


IMPORTER = Importer(name=NAME, title="OpenHands SDK events", fits=_is_openhands_sdk, reader=_Reader)
