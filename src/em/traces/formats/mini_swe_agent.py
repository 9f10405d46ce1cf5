"""mini-swe-agent: a chat whose answers have one command in a code block, or call a tool."""

import re
from typing import Any

from em.traces.formats import Importer
from em.traces.formats._messages import add_messages, is_message, plain, role_of, text_of
from em.traces.intake import Incoming, Intake
from em.values.canonical import Json

NAME = "mini-swe-agent"
_COMMAND = re.compile(r"```(?:mswea_bash_command|bash)\s*\n(.*?)\n?```", re.DOTALL)
_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")
_OUTPUT = re.compile(r"<output>\n?(.*?)\n?</output>", re.DOTALL)


def _fits(value: Any) -> bool:
    if isinstance(value, dict):
        if str(value.get("trajectory_format", "")).startswith("mini-swe-agent"):
            return True
        messages = value.get("messages")
    else:
        messages = value
    return (
        isinstance(messages, list)
        and all(map(is_message, messages))
        and any("```mswea_bash_command" in text_of(one.get("content")) for one in messages)
    )


class _Reader:
    def __init__(self, intake: Intake) -> None:
        self._intake = intake

    def read(self, value: Any) -> None:
        messages = value.get("messages") if isinstance(value, dict) else value
        if not isinstance(messages, list):
            self._intake.unknown("no messages")
            return
        trace = self._intake.nameless(NAME)
        _add(trace, [message for message in messages if is_message(message)])
        info = value.get("info") if isinstance(value, dict) else None
        if isinstance(info, dict):
            _add_info(trace, info)
        trace.close()

    def end(self) -> None:
        return


def _add(trace: Incoming, messages: list[Json]) -> None:
    open_call = ""
    for number, message in enumerate(messages):
        text, role = text_of(message.get("content")), role_of(plain(message))
        if message.get("tool_calls") or role == "tool":
            add_messages(trace, [message])
            continue
        commands = _commands(message, text) if role == "assistant" else []
        if role == "assistant":
            trace.spent(None)
            trace.say("assistant", text)
        if commands:
            open_call = f"message {number}"
            trace.call("bash", {"command": commands[0]}, open_call)
        elif open_call and role == "user":
            _add_observation(trace, open_call, text)
            open_call = ""
        elif role != "assistant":
            trace.say(role, text)


def _commands(message: Json, text: str) -> list[str]:
    extra = message.get("extra")
    actions = extra.get("actions") if isinstance(extra, dict) else None
    if isinstance(actions, list):
        return [str(one.get("command")) for one in actions if isinstance(one, dict)]
    found = _COMMAND.findall(text)
    return found if len(found) == 1 else []


def _add_observation(trace: Incoming, call_id: str, text: str) -> None:
    code, output = _CODE.search(text), _OUTPUT.search(text)
    result = output.group(1) if output else text
    failed = code is not None and code.group(1) != "0"
    error = f"exit code {code.group(1)}: {result}" if code is not None and failed else None
    trace.result(call_id, None if failed else result, error)


def _add_info(trace: Incoming, info: Json) -> None:
    found = info.get("model_stats")
    stats: Json = found if isinstance(found, dict) else {}
    if stats.get("api_calls"):
        trace.usage["model_calls"] = int(stats["api_calls"])
    if stats.get("instance_cost"):
        trace.usage["cost_usd"] = float(stats["instance_cost"])
    if isinstance(info.get("submission"), str):
        trace.output = info["submission"]


IMPORTER = Importer(name=NAME, title="mini-swe-agent trajectories", fits=_fits, reader=_Reader)
