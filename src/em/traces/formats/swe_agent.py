"""SWE-agent: `.traj` files, with tool calls or with plain commands."""

from typing import Any

from em.traces.formats import Importer, Reader
from em.traces.formats._messages import add_messages, is_message, plain, role_of, text_of
from em.traces.intake import Incoming
from em.values.canonical import Json

NAME = "swe-agent"


def _is_swe_agent(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    steps, history = value.get("trajectory"), value.get("history")
    if isinstance(steps, list) and steps and isinstance(steps[0], dict) and "action" in steps[0]:
        return True
    return (
        isinstance(history, list)
        and any(isinstance(one, dict) and "message_type" in one for one in history)
        and all(map(is_message, history))
    )


class _Reader(Reader):
    def read(self, value: Any) -> None:
        if not isinstance(value, dict):
            self.intake.unknown("no object")
            return
        trace = self.intake.nameless(NAME)
        history = [one for one in value.get("history") or () if is_message(one)]
        steps = [step for step in value.get("trajectory") or () if isinstance(step, dict)]
        if any(message.get("tool_calls") for message in history):
            _add_calls(trace, history)
        elif steps:
            _add_steps(trace, history, steps)
        else:
            _add_actions(trace, history)
        _add_info(trace, value.get("info"), steps)
        trace.close()


def _add_calls(trace: Incoming, history: list[Json]) -> None:
    for message in history:
        if message.get("is_demo"):
            trace.say("demonstration", text_of(message.get("content")))
        else:
            add_messages(trace, [message])


def _add_steps(trace: Incoming, history: list[Json], steps: list[Json]) -> None:
    for message in history:
        if message.get("message_type") == "action" or role_of(plain(message)) == "assistant":
            break
        trace.say(role_of(message), text_of(message.get("content")))
    for number, step in enumerate(steps):
        trace.say("assistant", text_of(step.get("thought") or step.get("response")))
        if not text_of(step.get("action")).strip():
            continue
        call_id = f"step {number}"
        trace.call("bash", {"command": text_of(step.get("action"))}, call_id)
        took = step.get("execution_time")
        trace.result(
            call_id,
            text_of(step.get("observation")),
            duration_ms=took * 1e3 if isinstance(took, int | float) else None,
        )


def _add_actions(trace: Incoming, history: list[Json]) -> None:
    """Add a history of commands; the message after a command is its output."""
    open_call = ""
    for number, message in enumerate(history):
        text = text_of(message.get("content"))
        if message.get("action") and not message.get("is_demo"):
            trace.say("assistant", text_of(message.get("thought")))
            open_call = f"step {number}"
            trace.call("bash", {"command": str(message["action"])}, open_call)
        elif open_call:
            trace.result(open_call, text)
            open_call = ""
        else:
            trace.say(role_of(message), text)


def _add_info(trace: Incoming, info: Any, steps: list[Json]) -> None:
    if not isinstance(info, dict):
        return
    found = info.get("model_stats")
    stats: Json = found if isinstance(found, dict) else {}
    tokens = sum(int(stats.get(name) or 0) for name in ("tokens_sent", "tokens_received"))
    counted = {
        "tokens": tokens,
        "model_calls": int(stats.get("api_calls") or 0) or len(steps),
        "cost_usd": float(stats.get("instance_cost") or 0.0),
    }
    trace.usage.update({name: amount for name, amount in counted.items() if amount})
    if isinstance(info.get("submission"), str):
        trace.output = info["submission"]


IMPORTER = Importer(name=NAME, title="SWE-agent trajectories", fits=_is_swe_agent, reader=_Reader)
